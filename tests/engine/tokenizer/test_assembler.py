"""Streams of tokens to text: whole characters, stop strings across token borders, nothing lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.tokenizer.assembler import Detokenizer, StopFinder, TextAssembler
from engine.tokenizer.tokenizer import Tokenizer
from tests.call_count import count_calls

MAX_TOKEN_CALLS = 60
"""What a token may cost, in calls of functions; about 20 are usual."""


def stream(stop: tuple[str, ...], pieces: list[str]) -> tuple[list[str], StopFinder]:
    finder = StopFinder(stop)
    return [finder.push(piece) for piece in pieces] + [finder.flush()], finder


# K031: stop strings across token borders


def test_stop_string_across_pieces_is_cut() -> None:
    given_out, finder = stream(("\nUser:", "</end>"), ["ok", "\nUs", "er:", " x"])
    assert given_out == ["ok", "", "", "", ""]
    assert finder.matched == "\nUser:"


def test_near_miss_is_complete() -> None:
    given_out, finder = stream(("\nUser:", "</end>"), ["ok", "\nUs", "age"])
    assert given_out == ["ok", "", "\nUsage", ""]
    assert finder.matched is None


def test_held_back_text_comes_at_the_end() -> None:
    given_out, _ = stream(("\nUser:",), ["ok", "\nUser"])
    assert given_out == ["ok", "", "\nUser"]


def test_no_more_than_a_possible_beginning_is_held_back() -> None:
    given_out, _ = stream(("aab", "xyz"), ["aaaa", "x"])
    assert given_out == ["aa", "aa", "x"]


# K004: empty stop values


@pytest.mark.parametrize("stop", [("",), (), ("", "\n\n")])
def test_empty_stop_strings_are_dropped(stop: tuple[str, ...]) -> None:
    given_out, finder = stream(stop, ["hi ", "there"])
    assert "".join(given_out) == "hi there"
    assert finder.matched is None


def test_the_stop_complete_first_wins() -> None:
    for pieces in (["abcd"], ["a", "b", "c", "d"], ["ab", "cd"]):
        given_out, finder = stream(("abcd", "c"), pieces)
        assert "".join(given_out) == "ab"
        assert finder.matched == "c"


@given(
    text=st.text(st.sampled_from("ab\né<"), max_size=30),
    stop=st.lists(st.text(st.sampled_from("ab\né<"), max_size=4), max_size=3),
    cuts=st.lists(st.integers(0, 30), max_size=8),
)
def test_any_split_gives_the_text_before_the_first_stop(
    text: str, stop: list[str], cuts: list[int]
) -> None:
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in zip(borders, borders[1:], strict=False)]
    given_out, finder = stream(tuple(stop), pieces)
    ends = [(text.find(s) + len(s), text.find(s)) for s in stop if s and s in text]
    assert "".join(given_out) == (text[: min(ends)[1]] if ends else text)
    assert (finder.matched is None) == (not ends)


@given(text=st.text(st.characters(exclude_categories=("Cs",))), is_scored=st.booleans())
def test_pushed_one_by_one_equals_decode(
    chatml: Tokenizer, spm: Tokenizer, text: str, is_scored: bool
) -> None:
    tokenizer = spm if is_scored else chatml
    ids = tokenizer.encode(text)
    detokenizer = Detokenizer(tokenizer, is_start=True)
    pieces = [detokenizer.push(token_id) for token_id in ids]
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)
    assert "".join(pieces) + detokenizer.flush() == tokenizer.decode(ids)


@given(ids=st.lists(st.integers(-1, 400)), keep_special=st.booleans())
def test_any_ids_equal_decode(chatml: Tokenizer, ids: list[int], keep_special: bool) -> None:
    detokenizer = Detokenizer(chatml, keep_special=keep_special)
    text = "".join([detokenizer.push(token_id) for token_id in ids]) + detokenizer.flush()
    assert text == chatml.decode(ids, keep_special=keep_special)


def test_half_a_character_is_held_back_until_flush(chatml: Tokenizer) -> None:
    ids = chatml.encode("🙂")
    assert len(ids) == 4
    detokenizer = Detokenizer(chatml)
    assert [detokenizer.push(token_id) for token_id in ids] == ["", "", "", "🙂"]
    detokenizer = Detokenizer(chatml)
    assert [detokenizer.push(token_id) for token_id in ids[:2]] == ["", ""]
    assert detokenizer.flush() == "\ufffd"


def test_an_answer_keeps_its_first_space(spm: Tokenizer) -> None:
    ids = spm.encode("hello")
    assert Detokenizer(spm).push(ids[0]) == " hello"
    assert Detokenizer(spm, is_start=True).push(ids[0]) == "hello"


@given(
    text=st.text(st.sampled_from("abé🙂\n<|im_end|>"), max_size=40),
    stop=st.lists(st.text(st.sampled_from("ab\n🙂"), max_size=3), max_size=2),
)
def test_assembler_cuts_token_streams(chatml: Tokenizer, text: str, stop: list[str]) -> None:
    assembler = TextAssembler(chatml, tuple(stop))
    text_out = "".join([assembler.push(token_id) for token_id in chatml.encode(text)])
    text_out += assembler.flush()
    ends = [(text.find(s) + len(s), text.find(s)) for s in stop if s and s in text]
    assert text_out == (text[: min(ends)[1]] if ends else text)
    assert assembler.is_stopped == bool(ends)


def test_a_token_costs_little_however_long_the_text(chatml: Tokenizer) -> None:
    ids = chatml.encode("the quick brown fox jumps over the lazy dog. " * 200)
    assembler = TextAssembler(chatml, ("\nUser:", "</end>", "over and out" * 20))
    tenth = len(ids) // 10

    def cost(of: list[int]) -> float:
        return count_calls(lambda: [assembler.push(token_id) for token_id in of]) / len(of)

    first = cost(ids[:tenth])
    cost(ids[tenth:-tenth])
    last = cost(ids[-tenth:])
    assert last < MAX_TOKEN_CALLS
    assert last < 1.5 * first
