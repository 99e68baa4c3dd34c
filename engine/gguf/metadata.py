"""The key-value part of a GGUF header, read by type: a missing or wrong key is named.

Reading it from the file is left to `engine.gguf.header`.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, KeysView, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from engine.errors import GGUFFormatError

Scalar = str | int | float | bool
T = TypeVar("T", str, int, float, bool, bytes)
D = TypeVar("D")

_U64 = struct.Struct("<Q")


class ValueKind(enum.IntEnum):
    """Type of a metadata value, by the format's number.

    Source:
        GGUF format, `gguf_metadata_value_type`.
    """

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12

    @property
    def is_integer(self) -> bool:
        """Whether it is a whole number."""
        return self in _DTYPES and _DTYPES[self].kind in "iu" and self is not ValueKind.BOOL

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point number."""
        return self in _DTYPES and _DTYPES[self].kind == "f"

    @property
    def n_bytes(self) -> int | None:
        """Bytes of a number or truth value, None for strings and arrays."""
        return _DTYPES[self].itemsize if self in _DTYPES else None


_DTYPES: Mapping[ValueKind, np.dtype[np.generic]] = {
    ValueKind.UINT8: np.dtype("u1"),
    ValueKind.INT8: np.dtype("i1"),
    ValueKind.UINT16: np.dtype("<u2"),
    ValueKind.INT16: np.dtype("<i2"),
    ValueKind.UINT32: np.dtype("<u4"),
    ValueKind.INT32: np.dtype("<i4"),
    ValueKind.FLOAT32: np.dtype("<f4"),
    ValueKind.BOOL: np.dtype("u1"),
    ValueKind.UINT64: np.dtype("<u8"),
    ValueKind.INT64: np.dtype("<i8"),
    ValueKind.FLOAT64: np.dtype("<f8"),
}


@dataclass(frozen=True, kw_only=True)
class ArrayValue:
    """An array of the metadata, decoded when first asked for.

    Attributes:
        kind: type of the items.
        n_items: how many.
        encoded: the items as they lie in the file, already known to be complete; empty for
            nested arrays.
        nested: the items of an array of arrays.
    """

    kind: ValueKind
    n_items: int
    encoded: bytes = b""
    nested: tuple[ArrayValue, ...] = ()

    @cached_property
    def texts(self) -> list[bytes]:
        """The bytes of each string."""
        texts: list[bytes] = []
        encoded, at = self.encoded, 0
        unpack_from, append = _U64.unpack_from, texts.append
        for _ in range(self.n_items):
            stop = at + 8 + unpack_from(encoded, at)[0]
            append(encoded[at + 8 : stop])
            at = stop
        return texts

    def to_numbers(self) -> npt.NDArray[Any]:
        """Return the numbers as an array of the type the file has; not for strings or arrays."""
        return np.frombuffer(self.encoded, _DTYPES[self.kind])

    def to_list(self) -> list[Any]:
        """Return the items as Python values."""
        if self.kind is ValueKind.STRING:
            return [text.decode("utf-8", errors="replace") for text in self.texts]
        if self.kind is ValueKind.ARRAY:
            return [item.to_list() for item in self.nested]
        numbers = self.to_numbers()
        return list((numbers != 0).tolist() if self.kind is ValueKind.BOOL else numbers.tolist())


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One key's value.

    Attributes:
        kind: its type.
        value: the scalar or array.
        offset_bytes: where the key lies in the file.
    """

    kind: ValueKind
    value: Scalar | ArrayValue
    offset_bytes: int

    def describe(self) -> str:
        """Return the type in a few words, for errors."""
        if isinstance(self.value, ArrayValue):
            return f"an array of {self.value.n_items} {self.value.kind.name.lower()}"
        return self.kind.name.lower()


class Metadata:
    """The keys of a model; every access says which type it wants.

    A getter without a default raises for a missing key; with a default it returns that. A key of
    the wrong type always raises.
    """

    def __init__(self, entries: Mapping[str, Entry], path: Path | None = None) -> None:
        self._entries = dict(entries)
        self.path = path

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def keys(self) -> KeysView[str]:
        """Return all keys in file order."""
        return self._entries.keys()

    def value(self, key: str) -> object:
        """Return the value as it is: a scalar, or a (nested) list.

        Raises:
            GGUFFormatError: the key is missing.
        """
        value = self.entry(key).value
        return value.to_list() if isinstance(value, ArrayValue) else value

    def entry(self, key: str) -> Entry:
        """Return the value with its type and place.

        Raises:
            GGUFFormatError: the key is missing.
        """
        try:
            return self._entries[key]
        except KeyError:
            raise GGUFFormatError(
                f"the key {key!r} is missing; this model cannot be used without it.",
                path=self.path,
            ) from None

    @overload
    def get_str(self, key: str) -> str: ...
    @overload
    def get_str(self, key: str, default: D) -> str | D: ...
    def get_str(self, key: str, default: object = ...) -> object:
        """Return a string.

        Raises:
            GGUFFormatError: missing without a default, or of another type.
        """
        if default is not ... and key not in self._entries:
            return default
        entry = self.entry(key)
        if entry.kind is not ValueKind.STRING:
            raise self._wrong(key, entry, "a string")
        return entry.value

    @overload
    def get_int(
        self, key: str, *, minimum: int | None = None, maximum: int | None = None
    ) -> int: ...
    @overload
    def get_int(
        self, key: str, default: D, *, minimum: int | None = None, maximum: int | None = None
    ) -> int | D: ...
    def get_int(
        self,
        key: str,
        default: object = ...,
        *,
        minimum: int | None = None,
        maximum: int | None = None,
    ) -> object:
        """Return a whole number of any width.

        Raises:
            GGUFFormatError: missing without a default, of another type, or out of bounds.
        """
        if default is not ... and key not in self._entries:
            return default
        entry = self.entry(key)
        if not entry.kind.is_integer or not isinstance(entry.value, int):
            raise self._wrong(key, entry, "a whole number")
        if minimum is not None and entry.value < minimum:
            raise self._wrong(key, entry, f"at least {minimum}", had=str(entry.value))
        if maximum is not None and entry.value > maximum:
            raise self._wrong(key, entry, f"at most {maximum}", had=str(entry.value))
        return entry.value

    @overload
    def get_float(self, key: str) -> float: ...
    @overload
    def get_float(self, key: str, default: D) -> float | D: ...
    def get_float(self, key: str, default: object = ...) -> object:
        """Return a number as a float; whole numbers are taken too.

        Raises:
            GGUFFormatError: missing without a default, or of another type.
        """
        if default is not ... and key not in self._entries:
            return default
        entry = self.entry(key)
        if not (entry.kind.is_float or entry.kind.is_integer) or not isinstance(
            entry.value, int | float
        ):
            raise self._wrong(key, entry, "a number")
        return float(entry.value)

    @overload
    def get_bool(self, key: str) -> bool: ...
    @overload
    def get_bool(self, key: str, default: D) -> bool | D: ...
    def get_bool(self, key: str, default: object = ...) -> object:
        """Return a truth value.

        Raises:
            GGUFFormatError: missing without a default, or of another type.
        """
        if default is not ... and key not in self._entries:
            return default
        entry = self.entry(key)
        if entry.kind is not ValueKind.BOOL:
            raise self._wrong(key, entry, "a bool")
        return entry.value

    @overload
    def get_array(self, key: str, kind: type[T]) -> list[T]: ...
    @overload
    def get_array(self, key: str, kind: type[T], default: D) -> list[T] | D: ...
    def get_array(self, key: str, kind: type, default: object = ...) -> object:
        """Return an array as a list.

        Args:
            key: which.
            kind: str, bytes (strings undecoded), int, float or bool.
            default: returned when the key is missing.

        Raises:
            GGUFFormatError: missing without a default, no array, or one of other items.
        """
        if default is not ... and key not in self._entries:
            return default
        entry = self.entry(key)
        wanted = f"an array of {kind.__name__}"
        if not isinstance(entry.value, ArrayValue):
            raise self._wrong(key, entry, wanted)
        array = entry.value
        if array.n_items == 0:
            return []
        match_of = {
            str: array.kind is ValueKind.STRING,
            bytes: array.kind is ValueKind.STRING,
            int: array.kind.is_integer,
            float: array.kind.is_float or array.kind.is_integer,
            bool: array.kind is ValueKind.BOOL,
        }
        if not match_of[kind]:
            raise self._wrong(key, entry, wanted)
        if kind is bytes:
            return list(array.texts)
        if kind is float:
            return list(array.to_numbers().astype(np.float64).tolist())
        return array.to_list()

    def get_per_layer(self, key: str, n_layers: int, default: int | None = None) -> list[int]:
        """Return a whole number for each layer: the key may hold one for all, or an array.

        Raises:
            GGUFFormatError: missing without a default, of another type, or of another length.
        """
        if key not in self._entries and default is not None:
            return [default] * n_layers
        entry = self.entry(key)
        if not isinstance(entry.value, ArrayValue):
            return [self.get_int(key)] * n_layers
        numbers = self.get_array(key, int)
        if len(numbers) != n_layers:
            raise self._wrong(key, entry, f"{n_layers} numbers, one a layer")
        return numbers

    def _wrong(self, key: str, entry: Entry, wanted: str, had: str = "") -> GGUFFormatError:
        return GGUFFormatError(
            f"the key {key!r} should be {wanted}, but is {had or entry.describe()}.",
            path=self.path,
            offset_bytes=entry.offset_bytes,
        )
