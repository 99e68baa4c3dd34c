"""The card divided: exact bytes on extents of 1000, refusals that say what would fit, no gaps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import MemoryBudgetError
from engine.memory.arena import Arena
from engine.memory.budget import (
    MIB,
    VramBound,
    VramDemand,
    VramLimits,
    VramModel,
    VramOwner,
    plan_vram,
)
from tests.fake_driver import FakeDriver

E = 1024
MODEL = VramModel(
    weights_bytes=5000,
    kv_cell_bytes=10,
    state_lane_bytes=300,
    expert_blob_bytes=(384, 384, 640),
    n_experts=32,
)
DEMAND = VramDemand(n_lanes=4, kv_cells=500, workspace_bytes=1024)


def limits(n_extents: int, *, limit: int | None = None) -> VramLimits:
    """A card with this many extents usable, others and the desktop aside."""
    return VramLimits(
        total_bytes=(n_extents + 5) * E,
        free_bytes=(n_extents + 2) * E,
        limit_bytes=limit,
        reserve_bytes=2 * E,
        extent_bytes=E,
    )


def owners(model: VramModel, demand: VramDemand, given: VramLimits) -> list[int]:
    plan = plan_vram(model, demand, limits=given)
    assert plan.held_bytes + plan.free_bytes == plan.usable_bytes
    return [*(plan.bytes_of(owner) // E for owner in VramOwner), plan.free_bytes // E]


def test_experts_get_what_the_others_leave() -> None:
    plan = plan_vram(MODEL, DEMAND, limits=limits(33))
    assert [(part.owner.value, part.wanted_bytes, part.n_extents) for part in plan.owners] == [
        ("weights", 5000, 5),
        ("kv", 5000, 5),
        ("state", 1200, 2),
        ("workspace", 1024, 1),
        ("experts", 20096, 20),
    ]
    # 64 experts of 384 want 24 extents, 32 of 640 want 20: 20 are shared 10.9 : 9.1
    assert [(part.n_extents, part.n_slots) for part in plan.slot_classes] == [(11, 29), (9, 14)]
    assert plan.lost_bytes == 20 * E - (29 * 384 + 14 * 640)
    assert (plan.n_slots, plan.n_experts) == (43, 96)
    assert plan.expert_places == (*range(11), *range(24, 33))
    assert plan.places[VramOwner.EXPERTS] == 44
    assert (plan.free_bytes, plan.bound) == (0, VramBound.CARD)


def test_what_nobody_needs_stays_free() -> None:
    assert owners(MODEL, DEMAND, limits(60)) == [5, 5, 2, 1, 44, 3]
    plan = plan_vram(MODEL, DEMAND, limits=limits(60))
    assert (plan.bound, plan.n_slots) == (VramBound.NOTHING, 96)


def test_without_room_for_experts_the_rest_still_runs() -> None:
    assert owners(MODEL, DEMAND, limits(13)) == [5, 5, 2, 1, 0, 0]


def test_a_dense_model() -> None:
    dense = VramModel(weights_bytes=1024, kv_cell_bytes=4)
    assert owners(dense, DEMAND, limits(10)) == [1, 2, 0, 1, 0, 6]
    plan = plan_vram(dense, DEMAND, limits=limits(10))
    assert (plan.n_slots, plan.n_experts, plan.lost_bytes, plan.slot_classes) == (0, 0, 0, ())
    assert plan.bound == VramBound.NOTHING


def test_a_smaller_card_is_named_as_the_limit() -> None:
    card = limits(100, limit=(33 + 5) * E)  # 3 extents of others and 2 reserved count inside it
    assert card.usable_bytes() == 33 * E
    assert owners(MODEL, DEMAND, card) == [5, 5, 2, 1, 20, 0]
    assert plan_vram(MODEL, DEMAND, limits=card).bound == VramBound.LIMIT
    larger = limits(33, limit=10**9)
    assert plan_vram(MODEL, DEMAND, limits=larger).bound == VramBound.CARD


def test_usable_memory_counts_what_owners_hold_already() -> None:
    card = VramLimits(
        total_bytes=20 * E, free_bytes=12 * E, reserve_bytes=E + 1, extent_bytes=E
    )  # 8 held: 5 by owners, 3 by others
    assert card.usable_bytes(held_bytes=5 * E) == 15 * E
    assert VramLimits(total_bytes=9, free_bytes=9).usable_bytes() == 0


def test_ranges_are_long_enough_for_what_comes_later() -> None:
    demand = VramDemand(
        n_lanes=4,
        kv_cells=100,
        kv_max_cells=500,
        workspace_bytes=1024,
        workspace_max_bytes=4000,
    )
    plan = plan_vram(MODEL, demand, limits=limits(33))
    assert plan.of(VramOwner.KV).n_extents == 1
    assert plan.places == {
        VramOwner.WEIGHTS: 5,
        VramOwner.KV: 5,
        VramOwner.STATE: 2,
        VramOwner.WORKSPACE: 4,
        VramOwner.EXPERTS: 44,
    }
    assert plan.bytes_of(VramOwner.EXPERTS) == 24 * E


def test_the_longest_context_must_fit_though_it_is_not_mapped_yet() -> None:
    demand = VramDemand(n_lanes=4, kv_cells=100, kv_max_cells=500, workspace_bytes=1024)
    assert owners(MODEL, demand, limits(13)) == [5, 1, 2, 1, 4, 0]
    with pytest.raises(MemoryBudgetError, match="K/V of 500 cells 5,000 bytes"):
        plan_vram(MODEL, demand, limits=limits(12))


def test_a_refusal_says_what_is_needed_what_is_there_and_what_would_fit() -> None:
    with pytest.raises(MemoryBudgetError) as caught:
        plan_vram(MODEL, DEMAND, limits=limits(11))
    assert caught.value.limit == "vram"
    assert str(caught.value) == (
        "The model does not fit: it needs 13,312 bytes of VRAM (weights 5,000 bytes, K/V of 500 "
        "cells 5,000 bytes, state 1,200 bytes, workspace 1,024 bytes; in pieces of 1,024 bytes), "
        "and 11,264 bytes can be used: the card has 16,384 bytes, 13,312 bytes of it free, and "
        "2,048 bytes stay free for the desktop. 2,048 bytes are lacking. It fits with 295 K/V "
        "cells or fewer: use a smaller --max-context, --kv-pool-tokens or --batch, or close "
        "programs that use the card."
    )
    smaller = VramDemand(n_lanes=4, kv_cells=295, workspace_bytes=1024)
    assert owners(MODEL, smaller, limits(11)) == [5, 3, 2, 1, 0, 0]


def test_a_refusal_that_no_shorter_context_mends_says_so() -> None:
    big = VramModel(weights_bytes=24_000 * MIB, kv_cell_bytes=1000)
    card = VramLimits(total_bytes=16_384 * MIB, free_bytes=15_000 * MIB, limit_bytes=8192 * MIB)
    with pytest.raises(MemoryBudgetError) as caught:
        plan_vram(big, DEMAND, limits=card)
    text = str(caught.value)
    assert "weights 24,000 MiB" in text
    assert "--vram-limit-mib treats it as one of 8,192 MiB" in text
    assert "700 MiB stay free for the desktop" in text
    assert "A shorter context alone would not do" in text


def test_all_experts_can_be_demanded() -> None:
    whole = VramDemand(n_lanes=4, kv_cells=500, workspace_bytes=1024, needs_all_experts=True)
    assert owners(MODEL, whole, limits(57)) == [5, 5, 2, 1, 44, 0]
    with pytest.raises(MemoryBudgetError, match="experts 45,056 bytes.* 1,024 bytes are lacking"):
        plan_vram(MODEL, whole, limits=limits(56))


def test_flash_next_on_a_card_of_16_gib() -> None:
    """Full size: 48 layers of 512 experts of about 0.9 MiB, 262,144 cells of int8 K/V."""
    model = VramModel(
        weights_bytes=4200 * MIB,
        kv_cell_bytes=12_672,
        state_lane_bytes=118_000_000,
        expert_blob_bytes=(983_040,) * 40 + (1_179_648,) * 8,
        n_experts=512,
    )
    demand = VramDemand(n_lanes=4, kv_cells=262_144 + 4096, workspace_bytes=600 * MIB)
    card = VramLimits(total_bytes=16_376 * MIB, free_bytes=15_300 * MIB)
    plan = plan_vram(model, demand, limits=card)
    assert plan.bytes_of(VramOwner.WEIGHTS) == 4224 * MIB
    assert plan.bytes_of(VramOwner.KV) == 3232 * MIB
    assert plan.bytes_of(VramOwner.EXPERTS) == 6048 * MIB
    assert plan.n_slots == 5188 + 1052  # of 152 and 37 extents
    assert plan.lost_bytes < 0.001 * plan.bytes_of(VramOwner.EXPERTS)
    assert plan.held_bytes == plan.usable_bytes


@given(
    st.integers(0, 400),
    st.integers(0, 200_000),
    st.integers(0, 5000),
    st.integers(0, 5000),
    st.lists(st.sampled_from([0, 128, 384, 640, 1500]), max_size=6),
)
def test_a_plan_adds_up_and_the_arena_can_carry_it_out(
    n_extents: int, weights: int, cells: int, more_cells: int, blobs: list[int]
) -> None:
    model = VramModel(
        weights_bytes=weights, kv_cell_bytes=10, expert_blob_bytes=tuple(blobs), n_experts=8
    )
    demand = VramDemand(
        n_lanes=1, kv_cells=cells, kv_max_cells=cells + more_cells, workspace_bytes=100
    )
    try:
        plan = plan_vram(model, demand, limits=limits(n_extents))
    except MemoryBudgetError as fault:
        needed = -(-weights // E) + -(-(cells + more_cells) * 10 // E) + 1
        assert needed > n_extents, fault  # noqa: PT017
        return
    driver = FakeDriver(total_bytes=plan.limits.total_bytes)
    driver.foreign_bytes = plan.limits.total_bytes - plan.limits.free_bytes
    arena = Arena(driver, plan.places, reserve_bytes=2 * E, extent_bytes=E)
    assert arena.usable_bytes == plan.usable_bytes == n_extents * E
    for owner in VramOwner:
        if owner != VramOwner.EXPERTS:
            assert arena.grow(owner, plan.of(owner).n_extents) is not None
    assert arena.map_at(VramOwner.EXPERTS, plan.expert_places)
    assert arena.free_bytes == plan.free_bytes
    arena.check()
    arena.close()
    driver.assert_clean()
