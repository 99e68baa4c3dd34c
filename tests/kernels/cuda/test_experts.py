"""The routed experts of a layer on the card against the definition, some of them absent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from kernels.cuda.device import Device
from kernels.cuda.experts import (
    ExpertScratch,
    ExpertShape,
    Routing,
    experts_down,
    experts_gate_up,
)
from kernels.cuda.module import KernelSet
from kernels.cuda.shapes import Activations, Output, Rows
from kernels.errors import KernelLaunchError
from kernels.quants import QuantType as Q
from kernels.reference import activations
from kernels.reference import experts as reference
from kernels.reference.quants import dequantize
from tests.kernels.cuda.arrays import Array, Guarded, poisoned, quantized, take_apart
from tests.kernels.cuda.random_blocks import random_matrix

pytestmark = pytest.mark.gpu

N_EXPERTS = 12
ROUNDING = 1e-5
"""Of the sum of magnitudes: float32 sums, and an exponential good to a few units."""
PAIRS = [
    (Q.Q2_0, Q.Q2_0, 640, 192),
    (Q.Q2_0, Q.Q2_0, 2560, 640),
    (Q.IQ2_XS, Q.IQ4_NL, 2560, 640),
    (Q.IQ3_S, Q.Q2_0, 512, 64),
    (Q.IQ1_M, Q.IQ4_NL, 256, 32),
    (Q.IQ4_XS, Q.Q8_0, 768, 96),
    (Q.Q4_K, Q.Q5_1, 1024, 320),
    (Q.Q6_K, Q.Q6_K, 256, 256),
    (Q.MXFP4, Q.MXFP4, 96, 64),
]


@dataclass(frozen=True)
class Layer:
    """Experts on the card and the same as numbers."""

    shape: ExpertShape
    gate: Array
    up: Array
    down: Array
    slot_of: Array
    addresses: Array


def make_layer(
    device: Device, gate_up: Q, down: Q, d_model: int, d_ff: int, rng: np.random.Generator
) -> Layer:
    gates = [random_matrix(gate_up, d_ff, d_model, rng) for _ in range(N_EXPERTS)]
    ups = [random_matrix(gate_up, d_ff, d_model, rng) for _ in range(N_EXPERTS)]
    downs = [random_matrix(down, d_model, d_ff, rng) for _ in range(N_EXPERTS)]
    slots = rng.permutation(N_EXPERTS).astype(np.int32)
    slot_of = np.where(np.arange(N_EXPERTS) % 4 == 3, -1, slots).astype(np.int32)
    addresses = np.zeros(N_EXPERTS, np.uint64)
    for expert in range(N_EXPERTS):
        blob = np.concatenate([part[expert].ravel() for part in (gates, ups, downs)])
        addresses[slots[expert]] = device.upload(blob).address
    return Layer(
        ExpertShape(
            gate_up=gate_up,
            down=down,
            d_model=d_model,
            d_ff=d_ff,
            up_offset=gates[0].nbytes,
            down_offset=2 * gates[0].nbytes,
        ),
        *(
            np.stack([dequantize(m, quant, n_cols) for m in matrices]).astype(np.float64)
            for matrices, quant, n_cols in (
                (gates, gate_up, d_model),
                (ups, gate_up, d_model),
                (downs, down, d_ff),
            )
        ),
        slot_of,
        addresses,
    )


@pytest.mark.parametrize(("n_tokens", "n_used"), [(1, 10), (3, 4), (8, 2)])
@pytest.mark.parametrize(
    ("gate_up", "down", "d_model", "d_ff"), PAIRS, ids=lambda value: getattr(value, "name", None)
)
def test_sums_over_the_experts_at_hand(
    device: Device,
    kernels: KernelSet,
    gate_up: Q,
    down: Q,
    d_model: int,
    d_ff: int,
    n_tokens: int,
    n_used: int,
) -> None:
    rng = np.random.default_rng([int(gate_up), int(down), d_model, n_tokens])
    layer = make_layer(device, gate_up, down, d_model, d_ff, rng)
    scale = np.float32(1 / np.abs(layer.gate).max() / np.sqrt(d_model))
    x = rng.standard_normal((n_tokens, d_model)).astype(np.float32) * scale
    ids = np.stack([rng.permutation(N_EXPERTS)[:n_used] for _ in range(n_tokens)]).astype(np.int32)
    weights = rng.random((n_tokens, n_used)).astype(np.float32)
    n_pairs = n_tokens * n_used
    routing = Routing(
        n_tokens=n_tokens,
        n_used=n_used,
        expert_ids=device.upload(ids).address,
        weights=device.upload(weights).address,
        slot_of=device.upload(layer.slot_of).address,
        slot_addresses=device.upload(layer.addresses).address,
    )
    counters = device.upload(np.zeros((n_pairs, d_ff // 32), np.uint32))
    before = rng.standard_normal((n_tokens, d_model)).astype(np.float32)
    is_here = layer.slot_of >= 0
    present = is_here[ids].reshape(n_pairs)
    for is_added in (False, True):
        h = poisoned(device, n_pairs * d_ff * 4)
        hidden = poisoned(device, Activations(0, n_pairs, d_ff).n_bytes)
        scratch = ExpertScratch(
            h=Rows(h.address, n_pairs, d_ff),
            hidden=Activations(hidden.address, n_pairs, d_ff),
            counters=counters.address,
        )
        y: Guarded = poisoned(device, n_tokens * d_model * 4)
        if is_added:
            y.buffer.write(before)
        experts_gate_up(
            kernels,
            device.stream,
            shape=layer.shape,
            routing=routing,
            x=quantized(device, kernels, x),
            scratch=scratch,
        )
        out = Output(y.address, n_tokens, d_model, is_added=is_added)
        experts_down(
            kernels, device.stream, shape=layer.shape, routing=routing, scratch=scratch, y=out
        )
        had_h = h.read(np.float32, (n_pairs, d_ff))
        values = activations.coded_values(x)
        wanted_h = reference.experts_gate_up(values, layer.gate, layer.up, ids)
        sizes = reference_magnitudes(values, layer, ids)
        error = np.abs(had_h - wanted_h.reshape(n_pairs, d_ff))[present]
        assert (error <= ROUNDING * sizes.reshape(n_pairs, d_ff)[present] + 1e-30).all()
        assert np.isnan(had_h[~present]).all(), "rows of absent experts were written"
        assert not counters.read(np.uint32, (n_pairs, d_ff // 32)).any()

        raw = hidden.read(np.uint8, (Activations(0, n_pairs, d_ff).n_bytes,))
        parts = take_apart(raw, n_pairs, d_ff)
        codes, scales = activations.quantize(had_h[present])
        np.testing.assert_array_equal(parts.plain[present], codes[:, 0])
        np.testing.assert_array_equal(parts.quads[present], codes[:, 0])
        np.testing.assert_array_equal(parts.scales[present], scales[:, 0])

        coded = np.zeros((n_pairs, d_ff))
        coded[present] = activations.coded_values(had_h[present])
        coded = coded.reshape(n_tokens, n_used, d_ff)
        wanted = reference.experts_down(coded, layer.down, ids, weights, is_here=is_here)
        wanted = wanted + before * is_added
        bound = reference.experts_down(
            np.abs(coded), np.abs(layer.down), ids, weights, is_here=is_here
        )
        had = y.read(np.float32, (n_tokens, d_model))
        assert np.isfinite(had).all()
        assert (np.abs(had - wanted) <= ROUNDING * (bound + np.abs(before)) + 1e-30).all()


def reference_magnitudes(values: Array, layer: Layer, ids: Array) -> Array:
    """How large errors of silu(gate x) * (up x) may be, by the sums they come from."""
    gate = np.einsum("tkfm,tm->tkf", np.abs(layer.gate[ids]), np.abs(values))
    up = np.einsum("tkfm,tm->tkf", np.abs(layer.up[ids]), np.abs(values))
    return gate * up + gate + up


def test_shapes_that_do_not_fit_are_refused(device: Device, kernels: KernelSet) -> None:
    shape = ExpertShape(
        gate_up=Q.Q8_0, down=Q.Q8_0, d_model=64, d_ff=32, up_offset=0, down_offset=0
    )
    routing = Routing(
        n_tokens=1, n_used=2, expert_ids=256, weights=256, slot_of=256, slot_addresses=256
    )
    scratch = ExpertScratch(h=Rows(256, 1, 32), hidden=Activations(256, 2, 32), counters=256)
    with pytest.raises(KernelLaunchError, match="h_rows = 2, but got 1"):
        experts_down(
            kernels,
            device.stream,
            shape=shape,
            routing=routing,
            scratch=scratch,
            y=Output(256, 1, 64),
        )
