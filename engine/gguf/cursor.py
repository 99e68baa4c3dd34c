"""A bounds-checked walk over the header bytes of one GGUF file.

It knows integers and strings and where the file ends; what they mean is left to
`engine.gguf.header`.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from engine.errors import GGUFFormatError

MAX_HEADER_BYTES = 128 << 20
"""Longest header accepted: five times what the largest vocabularies known need."""

MAX_KEY_BYTES = 65535
"""Longest key the format allows."""

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


class Cursor:
    """A position in a mapped file that never moves past its end.

    Attributes:
        path: the file, for errors.
        file_bytes: its length.
        at: offset of the next byte to read.
    """

    def __init__(self, mapped: mmap.mmap, path: Path) -> None:
        self._mapped = mapped
        self.path = path
        self.file_bytes = len(mapped)
        self.at = 0

    def error(self, message: str, *, at: int | None = None) -> GGUFFormatError:
        """Return (not raise) an error that names the file and the offset."""
        return GGUFFormatError(message, path=self.path, offset_bytes=self.at if at is None else at)

    def need(self, n_bytes: int, what: str) -> None:
        """Check that `n_bytes` more bytes are there before anything is done with them.

        Raises:
            GGUFFormatError: the file ends before, or the header grows beyond all measure.
        """
        end = self.at + n_bytes
        if end > self.file_bytes:
            raise self.error(
                f"{what} needs {n_bytes} bytes, but the file ends after "
                f"{self.file_bytes - self.at}: {end - self.file_bytes} bytes are missing. "
                "The file is cut short or damaged; download it again."
            )
        if end > MAX_HEADER_BYTES:
            raise self.error(
                f"{what} would make the header longer than {MAX_HEADER_BYTES >> 20} MiB, which "
                "no known model needs. The file is damaged."
            )

    def u32(self, what: str) -> int:
        """Read an unsigned 32-bit integer."""
        self.need(4, what)
        value: int = _U32.unpack_from(self._mapped, self.at)[0]
        self.at += 4
        return value

    def u64(self, what: str) -> int:
        """Read an unsigned 64-bit integer."""
        self.need(8, what)
        value: int = _U64.unpack_from(self._mapped, self.at)[0]
        self.at += 8
        return value

    def take(self, n_bytes: int, what: str) -> bytes:
        """Read `n_bytes` bytes as a copy."""
        self.need(n_bytes, what)
        taken = self._mapped[self.at : self.at + n_bytes]
        self.at += n_bytes
        return taken

    def string(self, what: str) -> str:
        """Read a string: u64 length, then UTF-8; bad bytes become replacement characters."""
        n_bytes = self.u64(f"the length of {what}")
        return self.take(n_bytes, what).decode("utf-8", errors="replace")

    def name(self, what: str) -> str:
        """Read a key or tensor name: 1 to `MAX_KEY_BYTES` bytes of valid UTF-8."""
        start = self.at
        n_bytes = self.u64(f"the length of {what}")
        if n_bytes == 0:
            raise self.error(f"{what} is empty. The file is damaged.", at=start)
        if n_bytes > MAX_KEY_BYTES:
            raise self.error(
                f"{what} is {n_bytes} bytes long, the format allows {MAX_KEY_BYTES}. "
                "The file is damaged.",
                at=start,
            )
        try:
            return self.take(n_bytes, what).decode("utf-8")
        except UnicodeDecodeError as fault:
            raise self.error(
                f"{what} is not valid UTF-8. The file is damaged.", at=start
            ) from fault

    def skip_strings(self, n_strings: int, what: str) -> None:
        """Move past `n_strings` strings without reading their text.

        Raises:
            GGUFFormatError: one of them passes the end of the file; names which.
        """
        at = self.at
        end = min(self.file_bytes, MAX_HEADER_BYTES)
        unpack_from, mapped = _U64.unpack_from, self._mapped
        for index in range(n_strings):
            if at + 8 > end:
                self.at = at
                self.need(8, f"the length of item {index} of {what}")
            n_bytes = unpack_from(mapped, at)[0]
            if at + 8 + n_bytes > end:
                self.at = at + 8
                self.need(n_bytes, f"item {index} of {what}")
            at += 8 + n_bytes
        self.at = at

    def slice(self, start: int, stop: int) -> bytes:
        """Return a copy of bytes already walked over."""
        return self._mapped[start:stop]
