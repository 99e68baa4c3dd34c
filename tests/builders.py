"""GGUF files for tests: right ones, wrong ones on purpose, and a tiny llama that really runs.

The writer is small and trusts nothing of the reader under test. It writes what it is told, so a
test can announce a million keys, put a tensor past the end, or join two files.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.quants import QuantType

# Numbers of the metadata value types, as the format lists them.
UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = range(10)
UINT64, INT64, FLOAT64 = 10, 11, 12
_PACK = dict(
    zip(
        (UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, UINT64, INT64, FLOAT64),
        "BbHhIif?Qqd",
        strict=True,
    )
)

NORMAL, UNKNOWN, CONTROL = 1, 2, 3
"""Token types of `tokenizer.ggml.token_type`."""


@dataclass(frozen=True)
class Typed:
    """A metadata value with its type told, where the obvious one is not meant.

    `item` is the item type if `kind` is ARRAY.
    """

    kind: int
    value: Any
    item: int | None = None


@dataclass(frozen=True)
class RawTensor:
    """A tensor as the file shall have it, checked for nothing.

    `offset` is relative to the tensor data; None = behind the one before, aligned.
    """

    dims: tuple[int, ...]
    type_id: int
    encoded: bytes | npt.NDArray[Any]
    offset: int | None = None
    n_dims: int | None = None


Tensor = npt.NDArray[Any] | RawTensor
Metadata = Mapping[str, Any] | Sequence[tuple[str | bytes, Any]]
Tensors = Mapping[str, Tensor] | Sequence[tuple[str | bytes, Tensor]]


def encode_string(text: str | bytes) -> bytes:
    """Return u64 length and bytes."""
    encoded = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(encoded)) + encoded


def typed(value: Any) -> Typed:
    """Give a Python value the type a converter would choose."""
    if isinstance(value, Typed):
        return value
    if isinstance(value, bool):
        return Typed(BOOL, value)
    if isinstance(value, int):
        if 0 <= value < 1 << 32:
            return Typed(UINT32, value)
        if -(1 << 31) <= value < 0:
            return Typed(INT32, value)
        return Typed(UINT64 if value > 0 else INT64, value)
    if isinstance(value, float):
        return Typed(FLOAT32, value)
    if isinstance(value, str | bytes):
        return Typed(STRING, value)
    if isinstance(value, list | tuple):
        item = typed(value[0]).kind if value else STRING
        return Typed(ARRAY, value, INT32 if item == UINT32 else item)
    raise TypeError(f"no metadata type for {value!r}")


def encode_value(value: Typed, *, with_kind: bool = True) -> bytes:
    """Return the type number and the value."""
    head = struct.pack("<I", value.kind) if with_kind else b""
    if value.kind == STRING:
        return head + encode_string(value.value)
    if value.kind == ARRAY:
        item = typed(value.value[0]).kind if value.item is None else value.item
        items = b"".join(
            encode_value(part if isinstance(part, Typed) else Typed(item, part), with_kind=False)
            for part in value.value
        )
        return head + struct.pack("<IQ", item, len(value.value)) + items
    return head + struct.pack("<" + _PACK[value.kind], value.value)


def encode_key(key: str | bytes, value: Any) -> bytes:
    """Return a whole key with its value."""
    return encode_string(key) + encode_value(typed(value))


def raw_tensor(tensor: Tensor) -> RawTensor:
    """Turn a NumPy array into a tensor of the same type."""
    if isinstance(tensor, RawTensor):
        return tensor
    quant = {
        "float32": QuantType.F32,
        "float16": QuantType.F16,
        "float64": QuantType.F64,
        "int8": QuantType.I8,
        "int16": QuantType.I16,
        "int32": QuantType.I32,
        "int64": QuantType.I64,
    }[tensor.dtype.name]
    return RawTensor(tensor.shape[::-1], quant, np.ascontiguousarray(tensor).tobytes())


def gguf_parts(
    metadata: Metadata,
    tensors: Tensors = (),
    *,
    version: int = 3,
    alignment: int = 32,
    magic: bytes = b"GGUF",
    n_keys: int | None = None,
    n_tensors: int | None = None,
) -> tuple[bytes, bytes]:
    """Return header and tensor data of a GGUF file; the padding between them is left out.

    Args:
        metadata: keys in order; pairs allow a key twice.
        tensors: tensors in order; pairs allow a name twice.
        version: as written.
        alignment: used for the data; written as `general.alignment` unless it is 32 or the key is
            among `metadata`.
        magic: first bytes.
        n_keys, n_tensors: counts to announce instead of the true ones.
    """
    keys = list(metadata.items() if isinstance(metadata, Mapping) else metadata)
    named = list(tensors.items() if isinstance(tensors, Mapping) else tensors)
    if alignment != 32 and "general.alignment" not in dict(keys):
        keys.append(("general.alignment", alignment))
    header = magic + struct.pack(
        "<IQQ",
        version,
        len(named) if n_tensors is None else n_tensors,
        len(keys) if n_keys is None else n_keys,
    )
    header += b"".join(encode_key(key, value) for key, value in keys)
    data = bytearray()
    for name, tensor in named:
        raw = raw_tensor(tensor)
        encoded = raw.encoded if isinstance(raw.encoded, bytes) else raw.encoded.tobytes()
        offset = len(data) if raw.offset is None else raw.offset
        header += encode_string(name)
        header += struct.pack("<I", len(raw.dims) if raw.n_dims is None else raw.n_dims)
        header += struct.pack(f"<{len(raw.dims)}Q", *raw.dims)
        header += struct.pack("<IQ", raw.type_id, offset)
        if raw.offset is None:
            data += encoded + bytes(-len(encoded) % alignment)
    return header, bytes(data)


def gguf_bytes(
    metadata: Metadata, tensors: Tensors = (), *, alignment: int = 32, **options: Any
) -> bytes:
    """Return a GGUF file; see `gguf_parts` for the options."""
    header, data = gguf_parts(metadata, tensors, alignment=alignment, **options)
    return header + bytes(-len(header) % alignment) + data


def make_gguf(path: Path, metadata: Metadata, tensors: Tensors = (), **options: Any) -> Path:
    """Write a GGUF file and return its path; see `gguf_parts` for the options."""
    path.write_bytes(gguf_bytes(metadata, tensors, **options))
    return path


def make_split_gguf(
    folder: Path,
    stem: str,
    metadata: Mapping[str, Any],
    parts: Sequence[Mapping[str, Tensor]],
    *,
    overrides: Mapping[int, Mapping[str, Any]] | None = None,
) -> list[Path]:
    """Write a split model: keys in the first file, `split.*` keys in all.

    `overrides` replaces keys of single files (None drops one).
    """
    paths = []
    total = sum(len(part) for part in parts)
    for number, part in enumerate(parts):
        keys: dict[str, Any] = dict(metadata) if number == 0 else {}
        keys |= {
            "split.no": Typed(UINT16, number),
            "split.count": Typed(UINT16, len(parts)),
            "split.tensors.count": Typed(INT32, total),
        }
        keys |= (overrides or {}).get(number, {})
        keys = {key: value for key, value in keys.items() if value is not None}
        path = folder / f"{stem}-{number + 1:05}-of-{len(parts):05}.gguf"
        paths.append(make_gguf(path, keys, part))
    return paths


# --------------------------------------------------------------------------- quantising


def quantize(weights: npt.NDArray[np.float32], quant: QuantType) -> RawTensor:
    """Round weights to a simple format, the plain way: f32[..., n_cols]."""
    dims = weights.shape[::-1]
    if quant is QuantType.F32:
        return RawTensor(dims, quant, weights.astype("<f4").tobytes())
    if quant is QuantType.F16:
        return RawTensor(dims, quant, weights.astype("<f2").tobytes())
    if quant is QuantType.BF16:
        bits = weights.astype("<f4").view("<u4")
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return RawTensor(dims, quant, rounded.astype("<u2").tobytes())
    blocks = weights.reshape(-1, 32)
    if quant is QuantType.Q8_0:
        scale = (np.abs(blocks).max(axis=1, keepdims=True) / 127).astype("<f2")
        codes = np.rint(blocks / np.where(scale == 0, 1, scale)).clip(-127, 127).astype("i1")
        fields = [scale.view("u1"), codes.view("u1")]
    elif quant is QuantType.Q4_0:
        scale = (np.abs(blocks).max(axis=1, keepdims=True) / 7).astype("<f2")
        codes = np.rint(blocks / np.where(scale == 0, 1, scale)).clip(-8, 7) + 8
        fields = [scale.view("u1"), _nibbles(codes)]
    elif quant is QuantType.Q4_1:
        low = blocks.min(axis=1, keepdims=True).astype("<f2")
        scale = ((blocks.max(axis=1, keepdims=True) - low) / 15).astype("<f2")
        codes = np.rint((blocks - low) / np.where(scale == 0, 1, scale)).clip(0, 15)
        fields = [scale.view("u1"), low.view("u1"), _nibbles(codes)]
    else:
        raise ValueError(f"the test builder does not write {quant.name}")
    return RawTensor(dims, quant, np.concatenate(fields, axis=1).tobytes())


def _nibbles(codes: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    codes = codes.astype("u1")
    return codes[:, :16] | codes[:, 16:] << 4


# --------------------------------------------------------------------------- a tiny llama

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
TINY_TEXT = (
    "the cat sat on the mat and the dog sat on the log while the rain fell on the plain in the "
    "night and a small light in the window said hello to the world and the user asked the "
    "assistant a question and the assistant gave the user an answer about the weather"
)
CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def byte_letters() -> list[str]:
    """Return the letter that byte-level BPE writes for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in plain}
    others = (byte for byte in range(256) if byte not in letters)
    letters |= {byte: chr(256 + index) for index, byte in enumerate(others)}
    return [letters[byte] for byte in range(256)]


def learn_merges(text: str, n_merges: int) -> list[tuple[str, str]]:
    """Learn BPE merges from words of a text; among equals the first pair in order wins."""
    words = [list(word) for word in (" " + text).replace(" ", " Ġ").split()]
    merges: list[tuple[str, str]] = []
    for _ in range(n_merges):
        pairs = Counter(pair for word in words for pair in zip(word, word[1:], strict=False))
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        for word in words:
            at = 0
            while at < len(word) - 1:
                if (word[at], word[at + 1]) == best:
                    word[at : at + 2] = ["".join(best)]
                at += 1
    return merges


def tiny_tokenizer(n_merges: int = 93) -> dict[str, Any]:
    """Return the keys of a small byte-level BPE tokenizer with ChatML tokens and template.

    Ids: 0 to 2 the control tokens of `CONTROL_TOKENS`, then 256 bytes, then the merges.
    """
    merges = learn_merges(TINY_TEXT, n_merges)
    tokens = [*CONTROL_TOKENS, *byte_letters(), *("".join(merge) for merge in merges)]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [CONTROL] * 3 + [NORMAL] * (len(tokens) - 3),
        "tokenizer.ggml.merges": [" ".join(merge) for merge in merges],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.padding_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHATML,
    }


def tiny_llama(
    *,
    n_layers: int = 2,
    d_model: int = 64,
    n_heads: int = 4,
    n_kv_heads: int = 2,
    d_ff: int = 128,
    context_tokens: int = 2048,
    quant: QuantType = QuantType.F32,
    is_tied: bool = False,
    seed: int = 1,
    metadata: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return keys and tensors of a llama with seeded random weights.

    `metadata` adds or replaces keys; a value of None drops one.
    """
    rng = np.random.default_rng(seed)
    tokenizer = tiny_tokenizer()
    n_vocab = len(tokenizer["tokenizer.ggml.tokens"])
    head_dim = d_model // n_heads
    keys: dict[str, Any] = {
        "general.architecture": "llama",
        "general.name": "Tiny Llama",
        "llama.block_count": n_layers,
        "llama.context_length": context_tokens,
        "llama.embedding_length": d_model,
        "llama.feed_forward_length": d_ff,
        "llama.attention.head_count": n_heads,
        "llama.attention.head_count_kv": n_kv_heads,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
        "llama.rope.dimension_count": head_dim,
        "llama.vocab_size": n_vocab,
        **tokenizer,
    }
    keys |= metadata or {}
    keys = {key: value for key, value in keys.items() if value is not None}

    def matrix(n_rows: int, n_cols: int, gain: float = 1.0) -> RawTensor:
        weights = rng.standard_normal((n_rows, n_cols)) * (gain / np.sqrt(n_cols))
        return quantize(weights.astype(np.float32), quant)

    def norm() -> RawTensor:
        weights = 1 + 0.1 * rng.standard_normal(d_model)
        return quantize(weights.astype(np.float32), QuantType.F32)

    tensors: dict[str, Tensor] = {"token_embd.weight": matrix(n_vocab, d_model, 4.0)}
    for layer in range(n_layers):
        prefix = f"blk.{layer}."
        tensors |= {
            f"{prefix}attn_norm.weight": norm(),
            f"{prefix}attn_q.weight": matrix(d_model, d_model, 2.0),
            f"{prefix}attn_k.weight": matrix(n_kv_heads * head_dim, d_model, 2.0),
            f"{prefix}attn_v.weight": matrix(n_kv_heads * head_dim, d_model),
            f"{prefix}attn_output.weight": matrix(d_model, d_model),
            f"{prefix}ffn_norm.weight": norm(),
            f"{prefix}ffn_gate.weight": matrix(d_ff, d_model),
            f"{prefix}ffn_up.weight": matrix(d_ff, d_model),
            f"{prefix}ffn_down.weight": matrix(d_model, d_ff),
        }
    tensors["output_norm.weight"] = norm()
    if not is_tied:
        tensors["output.weight"] = matrix(n_vocab, d_model, 2.0)
    return keys, tensors


def make_tiny_llama(path: Path, **options: Any) -> Path:
    """Write a tiny llama with tokenizer and chat template; see `tiny_llama` for the options."""
    keys, tensors = tiny_llama(**options)
    return make_gguf(path, keys, tensors)
