"""The files of a split model: their names, and the checks that they belong together.

Mapping the files is left to `engine.gguf.reader`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.errors import GGUFFormatError
from engine.gguf.header import Header
from engine.gguf.metadata import Metadata

SPLIT_NO = "split.no"
SPLIT_COUNT = "split.count"
SPLIT_TENSORS = "split.tensors.count"

_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardName:
    """A file name of the form `stem-00001-of-00003.gguf`.

    Attributes:
        stem: what stands before.
        number: counted from 1.
        count: files in all.
    """

    stem: str
    number: int
    count: int


def parse_shard_name(path: Path) -> ShardName | None:
    """Return the parts of a shard's name, or None if it is no such name."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        return None
    return ShardName(stem=match["stem"], number=int(match["number"]), count=int(match["count"]))


def model_stem(path: Path) -> str:
    """Return a file's name without shard number and `.gguf`."""
    name = parse_shard_name(path)
    if name is not None:
        return name.stem
    return path.name[:-5] if path.name.lower().endswith(".gguf") else path.name


def shard_paths(path: Path, metadata: Metadata) -> tuple[Path, ...]:
    """Return all files of the model that `path` belongs to, in order.

    Args:
        path: any file of the model.
        metadata: the keys of that file.

    Raises:
        GGUFFormatError: it is a shard, but its name does not say which, or others are missing.
    """
    count = metadata.get_int(SPLIT_COUNT, 0)
    if count <= 1:
        return (path,)
    number = metadata.get_int(SPLIT_NO) + 1
    name = parse_shard_name(path)
    if name is None or name.count != count or name.number != number:
        raise GGUFFormatError(
            f"this is part {number} of {count} of a split model, but its name does not end in "
            f"-{number:05}-of-{count:05}.gguf, so the other parts cannot be found. Give all "
            "parts the names they were published with.",
            path=path,
            offset_bytes=metadata.entry(SPLIT_COUNT).offset_bytes,
        )
    written = path.name[: len(name.stem)], path.name[-5:]
    paths = [
        path.with_name(f"{written[0]}-{part:05}-of-{count:05}{written[1]}")
        for part in range(1, count + 1)
    ]
    missing = [part.name for part in paths if not part.is_file()]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise GGUFFormatError(
            f"this is part {number} of {count} of a split model; {len(missing)} of its files are "
            f"not beside it: {', '.join(missing[:3])}{more}. Download them into the same folder.",
            path=path,
        )
    return tuple(paths)


def check_shards(headers: Sequence[Header]) -> None:
    """Check that the files of a split model belong together.

    Raises:
        GGUFFormatError: a number, count or total does not match, or a tensor is there twice.
    """
    count = len(headers)
    if count == 1:
        return
    seen: dict[str, Path] = {}
    for number, header in enumerate(headers):
        had = header.metadata.get_int(SPLIT_NO), header.metadata.get_int(SPLIT_COUNT)
        if had != (number, count):
            raise GGUFFormatError(
                f"its keys say part {had[0] + 1} of {had[1]}, but its name says part "
                f"{number + 1} of {count}. Files of different models are mixed up, or a file was "
                "renamed; download the parts again.",
                path=header.path,
                offset_bytes=header.metadata.entry(SPLIT_NO).offset_bytes,
            )
        for name in [t.name for t in header.tensors] + [t.name for t in header.unknown_tensors]:
            if name in seen:
                raise GGUFFormatError(
                    f"the tensor {name!r} is in {seen[name].name} too. Files of different models "
                    "are mixed up; download the parts again.",
                    path=header.path,
                )
            seen[name] = header.path
    for header in headers:
        total = header.metadata.get_int(SPLIT_TENSORS, len(seen))
        if total != len(seen):
            raise GGUFFormatError(
                f"the key {SPLIT_TENSORS!r} promises {total} tensors in all parts, but "
                f"{len(seen)} are there. Files of different models are mixed up; download the "
                "parts again.",
                path=header.path,
                offset_bytes=header.metadata.entry(SPLIT_TENSORS).offset_bytes,
            )
