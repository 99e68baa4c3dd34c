"""The values of a GGUF header: numbers, strings and arrays behind their keys.

Strings of arrays are walked over here and decoded when asked for, by `engine.gguf.metadata`.
"""

from __future__ import annotations

import struct

from engine.gguf.cursor import Cursor
from engine.gguf.metadata import ArrayValue, Entry, Scalar, ValueKind

MAX_NESTING = 4
MAX_NESTED_ARRAYS = 8192
MAX_STRINGS = 1 << 22
"""Strings in one array: sixteen times the largest vocabulary known."""

MIN_ARRAY_BYTES = 4 + 8
"""Least bytes of an array inside another."""


def _read_kind(cursor: Cursor, what: str) -> ValueKind:
    at = cursor.at
    number = cursor.u32(what)
    try:
        return ValueKind(number)
    except ValueError:
        raise cursor.error(
            f"{what} is {number}, which is none of the format's types (0 to 12). "
            "The file is damaged.",
            at=at,
        ) from None


def read_entry(cursor: Cursor, key: str, start: int) -> Entry:
    """Read a value behind its key; the cursor ends behind it.

    Args:
        cursor: stands at the value's type.
        key: its name, for errors.
        start: where the key lies in the file.

    Raises:
        GGUFFormatError: the value is of no type of the format, or passes the end of the file.
    """
    kind = _read_kind(cursor, f"the type of {key!r}")
    value: Scalar | ArrayValue
    if kind is ValueKind.ARRAY:
        value, _ = _read_array(cursor, key, depth=1, n_nested=0)
    elif kind is ValueKind.STRING:
        value = cursor.string(f"the value of {key!r}")
    else:
        value = _read_number(cursor, key, kind)
    return Entry(kind=kind, value=value, offset_bytes=start)


def _read_number(cursor: Cursor, key: str, kind: ValueKind) -> int | float | bool:
    at = cursor.at
    encoded = cursor.take(kind.n_bytes or 0, f"the value of {key!r}")
    if kind is ValueKind.BOOL:
        if encoded[0] > 1:
            raise cursor.error(
                f"the value of {key!r} is a bool of {encoded[0]}; only 0 and 1 exist. "
                "The file is damaged.",
                at=at,
            )
        return encoded[0] == 1
    if kind is ValueKind.FLOAT32 or kind is ValueKind.FLOAT64:
        number: float = struct.unpack("<f" if kind is ValueKind.FLOAT32 else "<d", encoded)[0]
        return number
    return int.from_bytes(encoded, "little", signed=kind.name.startswith("INT"))


def _read_array(cursor: Cursor, key: str, *, depth: int, n_nested: int) -> tuple[ArrayValue, int]:
    """Read an array; also returns how many nested arrays of this key were read so far."""
    if depth > MAX_NESTING:
        raise cursor.error(
            f"the arrays of {key!r} are nested more than {MAX_NESTING} deep. The file is damaged."
        )
    kind = _read_kind(cursor, f"the item type of {key!r}")
    at = cursor.at
    n_items = cursor.u64(f"the number of items of {key!r}")
    start = cursor.at
    if kind is ValueKind.STRING:
        if n_items > MAX_STRINGS:
            raise cursor.error(
                f"{key!r} announces {n_items} strings, more than the {MAX_STRINGS} that are "
                "accepted. The file is damaged.",
                at=at,
            )
        cursor.need(8 * n_items, f"{key!r} with {n_items} strings")
        cursor.skip_strings(n_items, repr(key))
    elif kind is ValueKind.ARRAY:
        cursor.need(MIN_ARRAY_BYTES * n_items, f"{key!r} with {n_items} arrays")
        items = []
        for _ in range(n_items):
            n_nested += 1
            if n_nested > MAX_NESTED_ARRAYS:
                raise cursor.error(
                    f"{key!r} holds more than {MAX_NESTED_ARRAYS} nested arrays. "
                    "The file is damaged.",
                    at=at,
                )
            item, n_nested = _read_array(cursor, key, depth=depth + 1, n_nested=n_nested)
            items.append(item)
        return ArrayValue(kind=kind, n_items=n_items, nested=tuple(items)), n_nested
    else:
        n_bytes = n_items * (kind.n_bytes or 0)
        cursor.need(n_bytes, f"{key!r} with {n_items} items")
        cursor.at += n_bytes
    return (
        ArrayValue(kind=kind, n_items=n_items, encoded=cursor.slice(start, cursor.at)),
        n_nested,
    )
