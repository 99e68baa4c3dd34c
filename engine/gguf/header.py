"""The header of one GGUF file: keys, tensor list, and where the tensor bytes lie.

Everything is checked against the length of the file before it is used, so that no number in a
damaged or hostile file can cost memory or time. Joining the files of a split model is left to
`engine.gguf.shards`.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from engine.errors import GGUFFormatError, UnsupportedModelError
from engine.gguf.cursor import Cursor
from engine.gguf.metadata import Entry, Metadata
from engine.gguf.values import read_entry
from kernels.errors import UnsupportedQuantError
from kernels.quants import QuantType

MAGIC = b"GGUF"
ALIGNMENT_KEY = "general.alignment"
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 1 << 20
"""Largest padding accepted: more than any page size in use."""

MAX_DIMS = 4
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 18
"""Far more than any model has: 94 layers of 512 experts, each three tensors, are 144,384."""

MIN_KEY_BYTES = 8 + 1 + 4 + 1
"""Least bytes of a key and its value."""
MIN_TENSOR_BYTES = 8 + 1 + 4 + 4 + 8
"""Least bytes of an item of the tensor list."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorInfo:
    """Where a tensor lies and what it is.

    Attributes:
        name: as in the file.
        dims: lengths in GGUF order, the contiguous one first.
        quant: format of the data.
        shard: index of the file it lies in.
        offset_bytes: start of its data, from the start of that file.
        n_bytes: length of its data.
    """

    name: str
    dims: tuple[int, ...]
    quant: QuantType
    shard: int
    offset_bytes: int
    n_bytes: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths in NumPy order, the contiguous one last."""
        return self.dims[::-1]

    @property
    def n_cols(self) -> int:
        """Weights of a row."""
        return self.dims[0] if self.dims else 1

    @property
    def n_rows(self) -> int:
        """Rows of all further dims together."""
        return self.n_weights // self.n_cols

    @property
    def n_weights(self) -> int:
        """Weights in all."""
        return _product(self.dims)


@dataclass(frozen=True, kw_only=True, slots=True)
class UnknownTensor:
    """A tensor whose format this version does not know.

    Attributes:
        name: as in the file.
        quant_id: ggml's number of the format.
        reason: a sentence that says what to do.
    """

    name: str
    quant_id: int
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    """What the start of one file says.

    Attributes:
        path: the file.
        version: of the format, 2 or 3.
        metadata: its keys.
        tensors: in the order of the file.
        unknown_tensors: those of formats not known here.
        alignment: of the tensor data, in bytes.
        data_offset_bytes: where tensor data starts.
        file_bytes: length of the file.
    """

    path: Path
    version: int
    metadata: Metadata
    tensors: tuple[TensorInfo, ...]
    unknown_tensors: tuple[UnknownTensor, ...]
    alignment: int
    data_offset_bytes: int
    file_bytes: int


def parse_header(mapped: mmap.mmap, path: Path, *, shard: int = 0) -> Header:
    """Read the header of a mapped file.

    Args:
        mapped: the whole file, at least one byte.
        path: the file, for errors.
        shard: index given to its tensors.

    Raises:
        GGUFFormatError: the bytes are not a whole, well-formed GGUF file.
        UnsupportedModelError: it is big-endian or of a version not read here.

    Source:
        GGUF format, "File Structure".
    """
    cursor = Cursor(mapped, path)
    version = _read_version(cursor)
    n_tensors = cursor.u64("the number of tensors")
    n_keys = cursor.u64("the number of keys")
    for count, least_bytes, most, what, at in (
        (n_tensors, MIN_TENSOR_BYTES, MAX_TENSORS, "tensors", 8),
        (n_keys, MIN_KEY_BYTES, MAX_KEYS, "keys", 16),
    ):
        if count > min(cursor.file_bytes // least_bytes, most):
            raise cursor.error(
                f"the header announces {count} {what}, more than a file of {cursor.file_bytes} "
                f"bytes can hold or any model has ({most}). The file is cut short or damaged; "
                "download it again.",
                at=at,
            )
    entries: dict[str, Entry] = {}
    for index in range(n_keys):
        start = cursor.at
        key = cursor.name(f"the name of key {index}")
        if key in entries:
            raise cursor.error(f"the key {key!r} is there twice. The file is damaged.", at=start)
        entries[key] = read_entry(cursor, key, start)
    metadata = Metadata(entries, path)
    alignment = _alignment(metadata)
    rows: dict[str, _TensorRow] = {}
    for index in range(n_tensors):
        row = _read_tensor_row(cursor, index)
        if row.name in rows:
            raise cursor.error(
                f"the tensor {row.name!r} is there twice. The file is damaged.",
                at=row.at,
            )
        rows[row.name] = row
    data_offset = cursor.at + -cursor.at % alignment
    tensors, unknown = _place_tensors(cursor, list(rows.values()), alignment, data_offset, shard)
    _check_end(cursor, tensors, mapped, alignment)
    return Header(
        path=path,
        version=version,
        metadata=metadata,
        tensors=tuple(tensors),
        unknown_tensors=tuple(unknown),
        alignment=alignment,
        data_offset_bytes=data_offset,
        file_bytes=cursor.file_bytes,
    )


def _read_version(cursor: Cursor) -> int:
    magic = cursor.take(min(4, cursor.file_bytes), "the magic number")
    if magic != MAGIC:
        raise cursor.error(_explain_magic(magic), at=0)
    version = cursor.u32("the version")
    if version in (2, 3):
        return version
    if version & 0xFFFF == 0 and version != 0:
        message = (
            f"this is a big-endian GGUF file (version {version.to_bytes(4, 'little').hex()} in "
            "hex), which is not supported. Get the little-endian file of this model."
        )
    elif version == 1:
        message = (
            "this is a GGUF file of version 1, which is not supported; versions 2 and 3 are. "
            "Convert the model again with a current converter."
        )
    elif version == 0:
        raise cursor.error("the version is 0, which does not exist. The file is damaged.", at=4)
    else:
        message = (
            f"this is a GGUF file of version {version}, but this version of Strata reads 2 and 3. "
            "The file may need a newer version of Strata."
        )
    raise UnsupportedModelError(message, path=cursor.path, offset_bytes=4)


def _explain_magic(magic: bytes) -> str:
    if magic == b"vers":
        return (
            "this is not a GGUF file but a text file that points to one (Git LFS). "
            "Download the model itself."
        )
    if magic[:1] == b"<":
        return "this is not a GGUF file but a web page. Download the model again."
    if magic in (b"lmgg", b"tjgg", b"fmgg"):
        return "this is a GGML file from before GGUF, which is not supported. Get a GGUF file."
    if magic in MAGIC[: len(magic)]:
        return f"the file ends after {len(magic)} bytes. Download it again."
    return f"this is not a GGUF file: it starts with {magic!r}, not with {MAGIC!r}."


def _alignment(metadata: Metadata) -> int:
    if ALIGNMENT_KEY not in metadata:
        return DEFAULT_ALIGNMENT
    alignment = metadata.get_int(ALIGNMENT_KEY)
    if not 1 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        raise GGUFFormatError(
            f"the key {ALIGNMENT_KEY!r} is {alignment}, but must be a power of two between 1 and "
            f"{MAX_ALIGNMENT}. The file is damaged.",
            path=metadata.path,
            offset_bytes=metadata.entry(ALIGNMENT_KEY).offset_bytes,
        )
    return alignment


@dataclass(frozen=True, kw_only=True, slots=True)
class _TensorRow:
    """An item of the tensor list as it stands in the file; `at` is where the item lies."""

    name: str
    dims: tuple[int, ...]
    quant_id: int
    offset_bytes: int
    at: int


def _read_tensor_row(cursor: Cursor, index: int) -> _TensorRow:
    start = cursor.at
    name = cursor.name(f"the name of tensor {index}")
    at = cursor.at
    n_dims = cursor.u32(f"the number of dims of {name!r}")
    if n_dims > MAX_DIMS:
        raise cursor.error(
            f"the tensor {name!r} has {n_dims} dims, more than the {MAX_DIMS} that exist. "
            "The file is damaged.",
            at=at,
        )
    dims = tuple(cursor.u64(f"dim {dim} of {name!r}") for dim in range(n_dims))
    if 0 in dims:
        raise cursor.error(
            f"the tensor {name!r} has a dim of 0 (dims {list(dims)}). The file is damaged.", at=at
        )
    if _product(dims) >= 1 << 63:
        raise cursor.error(
            f"the dims {list(dims)} of the tensor {name!r} multiply to more than any file can "
            "hold. The file is damaged.",
            at=at,
        )
    quant_id = cursor.u32(f"the format of {name!r}")
    offset = cursor.u64(f"the offset of {name!r}")
    return _TensorRow(name=name, dims=dims, quant_id=quant_id, offset_bytes=offset, at=start)


def _place_tensors(
    cursor: Cursor, rows: list[_TensorRow], alignment: int, data_offset: int, shard: int
) -> tuple[list[TensorInfo], list[UnknownTensor]]:
    tensors: list[TensorInfo] = []
    unknown: list[UnknownTensor] = []
    n_missing, first_cut = 0, None
    for row in rows:
        start = data_offset + row.offset_bytes
        if row.offset_bytes % alignment:
            raise cursor.error(
                f"the tensor {row.name!r} starts at offset {row.offset_bytes}, which is no "
                f"multiple of the alignment {alignment}. The file is damaged.",
                at=row.at,
            )
        try:
            quant = QuantType(row.quant_id)
        except UnsupportedQuantError as fault:
            reason = f"the tensor {row.name!r} cannot be read: {fault}"
            unknown.append(UnknownTensor(name=row.name, quant_id=row.quant_id, reason=reason))
            n_bytes = 0
        else:
            n_cols = row.dims[0] if row.dims else 1
            try:
                n_bytes = quant.row_bytes(n_cols) * (_product(row.dims) // n_cols)
            except UnsupportedQuantError as fault:
                raise cursor.error(
                    f"the tensor {row.name!r} is damaged: {fault}", at=row.at
                ) from fault
            tensors.append(
                TensorInfo(
                    name=row.name,
                    dims=row.dims,
                    quant=quant,
                    shard=shard,
                    offset_bytes=start,
                    n_bytes=n_bytes,
                )
            )
        missing = start + n_bytes - cursor.file_bytes
        if missing > 0:
            n_missing = max(n_missing, missing)
            first_cut = first_cut or (row, start, n_bytes)
    if first_cut is not None:
        row, start, n_bytes = first_cut
        raise cursor.error(
            f"the tensor {row.name!r} should lie at bytes {start} to {start + n_bytes}, past the "
            f"end of the file ({cursor.file_bytes} bytes): {n_missing} bytes are missing. "
            "The download is incomplete or the file is damaged; download it again.",
            at=row.at,
        )
    _check_overlap(cursor, tensors)
    return tensors, unknown


def _check_overlap(cursor: Cursor, tensors: list[TensorInfo]) -> None:
    ordered = sorted(tensors, key=lambda tensor: tensor.offset_bytes)
    for first, second in pairwise(ordered):
        if first.offset_bytes + first.n_bytes > second.offset_bytes:
            raise cursor.error(
                f"the tensors {first.name!r} and {second.name!r} lie over one another. "
                "The file is damaged.",
                at=second.offset_bytes,
            )


def _check_end(
    cursor: Cursor, tensors: list[TensorInfo], mapped: mmap.mmap, alignment: int
) -> None:
    """Find a second GGUF file behind the first: shards joined by plain copying."""
    end = max((tensor.offset_bytes + tensor.n_bytes for tensor in tensors), default=cursor.at)
    for at in (end, end + -end % alignment):
        if mapped[at : at + 4] == MAGIC and at + 8 <= cursor.file_bytes:
            raise cursor.error(
                "behind the last tensor another GGUF file begins. The parts of a split model "
                "were joined by plain copying; get the parts as they were and open one of them.",
                at=at,
            )


def _product(dims: tuple[int, ...]) -> int:
    product = 1
    for dim in dims:
        product *= dim
    return product
