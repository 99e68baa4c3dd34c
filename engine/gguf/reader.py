"""A GGUF model over mmap: one or several files seen as one, read-only and without copies.

It reads what the files say. Whether a model can be run is left to `engine.gguf.summary` and
`engine.models`.
"""

from __future__ import annotations

import logging
import mmap
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from engine.errors import GGUFFormatError, ModelFileError, UnsupportedModelError
from engine.gguf.header import Header, TensorInfo, UnknownTensor, parse_header
from engine.gguf.metadata import Metadata
from engine.gguf.shards import check_shards, shard_paths

__all__ = ["GGUFModel", "TensorInfo", "UnknownTensor", "open_model"]

_log = logging.getLogger(__name__)

WINDOWS_MAX_PATH = 248
"""From this length on, Windows takes a path only in its extended form."""


class GGUFModel:
    """An open model: keys, tensor list and tensor bytes of all its files.

    Attributes:
        metadata: the keys, those of the first file.
        tensors: by name, in the order of the files.
        unknown_tensors: tensors of formats not known here; empty unless they were allowed.
        headers: one for each file.
    """

    def __init__(self, headers: Sequence[Header], maps: Sequence[mmap.mmap]) -> None:
        self.headers = tuple(headers)
        self._maps: list[mmap.mmap] | None = list(maps)
        self.metadata: Metadata = headers[0].metadata
        self.tensors: Mapping[str, TensorInfo] = {
            tensor.name: tensor for header in headers for tensor in header.tensors
        }
        self.unknown_tensors: tuple[UnknownTensor, ...] = tuple(
            tensor for header in headers for tensor in header.unknown_tensors
        )

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files, in order."""
        return tuple(header.path for header in self.headers)

    @property
    def path(self) -> Path:
        """The first file."""
        return self.headers[0].path

    @property
    def file_bytes(self) -> int:
        """Length of all files together."""
        return sum(header.file_bytes for header in self.headers)

    def tensor(self, name: str) -> TensorInfo:
        """Return where a tensor lies.

        Raises:
            GGUFFormatError: there is no tensor of that name.
        """
        try:
            return self.tensors[name]
        except KeyError:
            raise GGUFFormatError(
                f"the tensor {name!r} is missing; this model cannot be used without it.",
                path=self.path,
            ) from None

    def tensor_bytes(self, name: str) -> npt.NDArray[np.uint8]:
        """Return the bytes of a tensor as they lie in the file, without a copy.

        Returns:
            u8[n_bytes], read-only. It keeps the file mapped for as long as it lives.

        Raises:
            GGUFFormatError: there is no tensor of that name.
            ModelFileError: the model was closed.
        """
        tensor = self.tensor(name)
        return np.frombuffer(self._map_of(tensor), np.uint8, tensor.n_bytes, tensor.offset_bytes)

    def tensor_rows(self, name: str) -> npt.NDArray[np.uint8]:
        """Return the bytes of a tensor row by row: u8[n_rows, row_bytes], read-only, no copy."""
        return self.tensor_bytes(name).reshape(self.tensor(name).n_rows, -1)

    def expect_single_rows(self, name: str) -> None:
        """Tell the system that single rows of a tensor will be read, here and there.

        It then reads no more of the file around a row than it must. Where the system takes no such
        advice nothing happens.

        Raises:
            GGUFFormatError: there is no tensor of that name.
            ModelFileError: the model was closed.
        """
        tensor = self.tensor(name)
        tensor_map = self._map_of(tensor)
        if sys.platform != "win32":
            start = tensor.offset_bytes - tensor.offset_bytes % mmap.PAGESIZE
            n_bytes = tensor.offset_bytes + tensor.n_bytes - start
            tensor_map.madvise(mmap.MADV_RANDOM, start, n_bytes)

    def _map_of(self, tensor: TensorInfo) -> mmap.mmap:
        """Return the mapped file that a tensor lies in; the model must be open."""
        if self._maps is None:
            raise ModelFileError("the model was closed.", path=self.path)
        return self._maps[tensor.shard]

    def close(self) -> None:
        """Let go of the files; each is unmapped when no tensor bytes of it are in use."""
        maps, self._maps = self._maps, None
        for mapped in maps or ():
            try:
                mapped.close()
            except BufferError:
                _log.debug("%s stays mapped while its tensors are in use", self.path.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def open_model(path: Path | str, *, allows_unknown_types: bool = False) -> GGUFModel:
    """Open a GGUF file, or all files of a split model; no tensor byte is read.

    Args:
        path: the file, or any shard of a split model.
        allows_unknown_types: list tensors of unknown formats in `unknown_tensors` instead of
            raising, so that a model can be described that cannot be run.

    Raises:
        GGUFFormatError: a file is not a whole, well-formed GGUF file, or shards do not fit.
        UnsupportedModelError: big-endian, a version or a tensor format not known here.
        ModelFileError: a file is missing or cannot be read.
    """
    path = Path(path)
    with ExitStack() as undo:
        mapped = _map_file(path)
        undo.callback(mapped.close)
        header = parse_header(mapped, path)
        maps, headers = [mapped], [header]
        paths = shard_paths(path, header.metadata)
        if len(paths) > 1:
            maps, headers = [], []
            for shard, part in enumerate(paths):
                other = mapped
                if part != path:
                    other = _map_file(part)
                    undo.callback(other.close)
                maps.append(other)
                headers.append(parse_header(other, part, shard=shard))
            check_shards(headers)
        model = GGUFModel(headers, maps)
        if model.unknown_tensors and not allows_unknown_types:
            raise UnsupportedModelError(model.unknown_tensors[0].reason, path=path)
        undo.pop_all()
        return model


def _map_file(path: Path) -> mmap.mmap:
    """Map a whole file for reading."""
    try:
        with open(_os_path(path), "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise GGUFFormatError(
                    "the file is empty. Download it again.", path=path, offset_bytes=0
                )
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError as fault:
        raise ModelFileError("there is no such file.", path=path) from fault
    except OSError as fault:
        if path.is_dir():
            raise ModelFileError("this is a folder, not a model file.", path=path) from fault
        raise ModelFileError(
            f"the file cannot be read: {fault.strerror or fault}.", path=path
        ) from fault


def _os_path(path: Path) -> str:
    """Return the path as the system's open call wants it."""
    return extended_path(os.path.abspath(path)) if os.name == "nt" else str(path)


def extended_path(text: str) -> str:
    r"""Return an absolute Windows path in the form without a length limit, if it is long.

    `C:\a\...` becomes `\\?\C:\a\...` and `\\server\...` becomes `\\?\UNC\server\...`.
    """
    if len(text) < WINDOWS_MAX_PATH or text.startswith("\\\\?\\"):
        return text
    return f"\\\\?\\UNC\\{text[2:]}" if text.startswith("\\\\") else f"\\\\?\\{text}"
