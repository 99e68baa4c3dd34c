"""Split models: one model from any shard, and clear words when parts do not fit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import GGUFFormatError, UnsupportedModelError
from engine.gguf.reader import open_model
from engine.gguf.shards import ShardName, model_stem, parse_shard_name
from tests.builders import RawTensor, Tensor, make_gguf, make_split_gguf, tiny_llama

KEYS = {"general.architecture": "llama", "general.name": "Split"}


def part(start: int, *names: str) -> dict[str, Tensor]:
    return {
        name: np.arange(start + index, start + index + 5, dtype=np.float32)
        for index, name in enumerate(names)
    }


def three(folder: Path, **options: Any) -> list[Path]:
    parts = [part(0, "a"), part(10, "b", "c"), part(20, "d")]
    return make_split_gguf(folder, "m", KEYS, parts, **options)


@pytest.mark.parametrize("opened", [0, 1, 2])
def test_any_shard_opens_the_whole_model(tmp_path: Path, opened: int) -> None:
    paths = three(tmp_path)
    with open_model(paths[opened]) as model:
        assert model.paths == tuple(paths)
        assert model.path == paths[0]
        assert list(model.tensors) == ["a", "b", "c", "d"]
        assert [tensor.shard for tensor in model.tensors.values()] == [0, 1, 1, 2]
        firsts = [float(model.tensor_bytes(name).view("<f4")[0]) for name in model.tensors]
        assert firsts == [0, 10, 11, 20]
        assert model.metadata.get_str("general.name") == "Split"
        assert model.file_bytes == sum(path.stat().st_size for path in paths)


def test_keys_come_from_the_first_shard(tmp_path: Path) -> None:
    paths = three(tmp_path, overrides={1: {"general.name": "Other", "extra": 1}})
    with open_model(paths[1]) as model:
        assert model.metadata.get_str("general.name") == "Split"
        assert "extra" not in model.metadata


def test_a_first_shard_without_tensors_and_own_alignments(tmp_path: Path) -> None:
    paths = make_split_gguf(tmp_path, "m", KEYS, [{}, part(1, "a")])
    keys = {"split.no": 1, "split.count": 2, "split.tensors.count": 1, "pad": "x" * 50}
    make_gguf(paths[1], keys, part(1, "a"), alignment=256)
    with open_model(paths[0]) as model:
        assert model.tensor_bytes("a").view("<f4").tolist() == [1, 2, 3, 4, 5]
        assert [header.alignment for header in model.headers] == [32, 256]


def test_tensor_count_may_be_absent(tmp_path: Path) -> None:
    absent = {"split.tensors.count": None}
    open_model(three(tmp_path, overrides={0: absent, 1: absent, 2: absent})[0]).close()


def test_a_tiny_llama_in_two_parts_equals_the_whole(tmp_path: Path) -> None:
    keys, tensors = tiny_llama()
    names = list(tensors)
    whole = make_gguf(tmp_path / "whole.gguf", keys, tensors)
    halves = [{name: tensors[name] for name in names[at::2]} for at in range(2)]
    paths = make_split_gguf(tmp_path, "half", keys, halves)
    with open_model(whole) as one, open_model(paths[1]) as two:
        assert set(one.tensors) == set(two.tensors)
        for name in names:
            assert np.array_equal(one.tensor_bytes(name), two.tensor_bytes(name))


@pytest.mark.parametrize("number", [0, 1])
def test_a_renamed_part_says_which_part_it_is(tmp_path: Path, number: int) -> None:
    renamed = three(tmp_path)[number].rename(tmp_path / "model.gguf")
    with pytest.raises(
        GGUFFormatError, match=rf"part {number + 1} of 3 .*0000{number + 1}-of-00003"
    ):
        open_model(renamed)


def test_parts_with_swapped_names(tmp_path: Path) -> None:
    first, second, _ = three(tmp_path)
    first.rename(tmp_path / "x")
    second.rename(first)
    (tmp_path / "x").rename(second)
    with pytest.raises(GGUFFormatError, match="part 2 of 3"):
        open_model(first)


def test_joined_parts(tmp_path: Path) -> None:
    joined = tmp_path / "joined.gguf"
    joined.write_bytes(b"".join(path.read_bytes() for path in three(tmp_path)))
    with pytest.raises(GGUFFormatError, match="behind the last tensor another GGUF") as caught:
        open_model(joined)
    assert caught.value.offset_bytes == (tmp_path / "m-00001-of-00003.gguf").stat().st_size
    as_first = joined.replace(tmp_path / "m-00001-of-00003.gguf")
    with pytest.raises(GGUFFormatError, match="joined by plain copying"):
        open_model(as_first)


def test_other_bytes_behind_the_last_tensor_are_left_alone(tmp_path: Path) -> None:
    path = make_gguf(tmp_path / "m.gguf", KEYS, part(0, "a"))
    path.write_bytes(path.read_bytes() + b"signature of somebody")
    open_model(path).close()


def test_missing_parts_are_named(tmp_path: Path) -> None:
    paths = three(tmp_path)
    paths[0].unlink()
    paths[2].unlink()
    with pytest.raises(GGUFFormatError, match=r"2 of its files .*m-00001-of-00003\.gguf, m-00003"):
        open_model(paths[1])


def test_the_total_must_match(tmp_path: Path) -> None:
    paths = three(tmp_path, overrides={1: {"split.tensors.count": 5}})
    with pytest.raises(GGUFFormatError, match=r"promises 5 tensors in all parts, but 4") as caught:
        open_model(paths[0])
    assert caught.value.path == paths[1]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ({"split.no": 2}, "keys say part 3 of 3, but its name says part 2 of 3"),
        ({"split.count": 2}, "keys say part 2 of 2, but its name says part 2 of 3"),
        ({"split.count": None}, r"'split\.count' is missing"),
        ({"split.no": "1"}, r"'split\.no' should be a whole number"),
    ],
)
def test_a_part_of_another_model(tmp_path: Path, override: dict[str, Any], said: str) -> None:
    paths = three(tmp_path, overrides={1: override})
    with pytest.raises(GGUFFormatError, match=said) as caught:
        open_model(paths[0])
    assert caught.value.path == paths[1]


def test_a_tensor_in_two_parts(tmp_path: Path) -> None:
    paths = make_split_gguf(tmp_path, "m", KEYS, [part(0, "a"), part(1, "b", "a")])
    with pytest.raises(GGUFFormatError, match=r"'a' is in m-00001-of-00002\.gguf too"):
        open_model(paths[1])


def test_a_truncated_part_is_named(tmp_path: Path) -> None:
    paths = three(tmp_path)
    os.truncate(paths[2], paths[2].stat().st_size - 32)
    with pytest.raises(GGUFFormatError, match="bytes are missing") as caught:
        open_model(paths[0])
    assert caught.value.path == paths[2]


def test_an_unknown_type_in_a_later_part(tmp_path: Path) -> None:
    odd: dict[str, Tensor] = {"odd": RawTensor((32,), 250, bytes(32))}
    paths = make_split_gguf(tmp_path, "m", KEYS, [part(0, "a"), odd])
    with pytest.raises(UnsupportedModelError, match="'odd'"):
        open_model(paths[0])
    with open_model(paths[0], allows_unknown_types=True) as model:
        assert [tensor.name for tensor in model.unknown_tensors] == ["odd"]


def test_a_single_file_may_be_named_like_a_part(tmp_path: Path) -> None:
    path = make_gguf(tmp_path / "m-00001-of-00001.gguf", {**KEYS, "split.count": 1})
    with open_model(path) as model:
        assert model.paths == (path,)


@pytest.mark.parametrize(
    ("file", "name", "stem"),
    [
        ("m-00002-of-00003.gguf", ShardName(stem="m", number=2, count=3), "m"),
        ("a-b.Q4-00001-of-00010.GGUF", ShardName(stem="a-b.Q4", number=1, count=10), "a-b.Q4"),
        ("模型-00001-of-00002.gguf", ShardName(stem="模型", number=1, count=2), "模型"),
        ("m.gguf", None, "m"),
        ("m-1-of-3.gguf", None, "m-1-of-3"),
        ("m-00001-of-00003.gguf.part", None, "m-00001-of-00003.gguf.part"),
    ],
)
def test_shard_names(file: str, name: ShardName | None, stem: str) -> None:
    assert parse_shard_name(Path(file)) == name
    assert model_stem(Path(file)) == stem
