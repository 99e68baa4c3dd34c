"""Text to ids and back: reference ids, round trips, and files that must be refused."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import GGUFFormatError, UnsupportedModelError
from engine.gguf.metadata import Metadata
from engine.gguf.reader import open_model
from engine.tokenizer.markers import Segment
from engine.tokenizer.tokenizer import Tokenizer
from tests.builders import byte_letters, tiny_tokenizer
from tests.call_count import count_calls

MakeMetadata = Callable[[dict[str, Any]], Metadata]
texts = st.text(
    st.one_of(
        st.characters(exclude_categories=("Cs",)),
        st.sampled_from(list("helo wrd<|im_end|>\n\r\t ")),
    )
)

MAX_CALLS_A_TOKEN = 12
"""What loading may cost for each token of the vocabulary, in calls of functions; 8 are usual."""


@given(text=texts)
def test_decode_reverses_encode(chatml: Tokenizer, text: str) -> None:
    ids = chatml.encode(text)
    assert chatml.decode(ids) == text
    assert not set(ids) & {0, 1, 2}


@given(text=texts)
def test_decode_reverses_encode_with_scores(spm: Tokenizer, text: str) -> None:
    text = text.replace("\u2581", "_")
    assert spm.decode(spm.encode(text)) == text


@given(text=texts, cuts=st.lists(st.integers(0, 60), max_size=6))
def test_segments_of_one_hand_are_one_text(chatml: Tokenizer, text: str, cuts: list[int]) -> None:
    borders = [0, *sorted(cuts), len(text)]
    pieces = [text[a:b] for a, b in zip(borders, borders[1:], strict=False)]
    if "".join(pieces) != text:
        pieces = [text]
    for is_markup in (True, False):
        segments = [Segment(piece, is_markup) for piece in pieces]
        assert chatml.encode_segments(segments) == chatml.encode(text, parse_special=is_markup)


def test_markers_are_found_in_markup_only(chatml: Tokenizer) -> None:
    text = "<|im_start|>user\nhi<|im_end|>"
    parsed = chatml.encode(text, parse_special=True)
    assert (parsed[0], parsed[-1]) == (1, 2)
    assert chatml.decode(parsed) == "user\nhi"
    assert chatml.decode(parsed, keep_special=True) == text
    plain = chatml.encode(text)
    assert not {1, 2} & set(plain)
    assert chatml.decode(plain) == text


def test_a_marker_across_a_border_is_text(chatml: Tokenizer) -> None:
    half = [Segment("<|im_", is_markup=True), Segment("end|>", is_markup=False)]
    assert 2 not in chatml.encode_segments(half)
    whole = [Segment("<|im_", is_markup=True), Segment("end|>", is_markup=True)]
    assert chatml.encode_segments(whole) == [2]


def test_bos_is_added_once(make_metadata: MakeMetadata) -> None:
    keys = tiny_tokenizer() | {"tokenizer.ggml.add_bos_token": True}
    tokenizer = Tokenizer.from_metadata(make_metadata(keys))
    assert tokenizer.adds_bos
    assert tokenizer.encode("a", add_bos=True)[0] == tokenizer.bos_id == 1
    twice = tokenizer.encode("<|im_start|>a", add_bos=True, parse_special=True)
    assert twice.count(1) == 1


def test_lone_surrogates_become_replacement_characters(chatml: Tokenizer) -> None:
    assert chatml.decode(chatml.encode("a\ud800b\U0001f642")) == "a\ufffdb\U0001f642"


def test_unknown_ids_add_nothing(chatml: Tokenizer) -> None:
    assert chatml.decode([-1, 10**9]) == ""


# K089: tokenizer.ggml.pre missing, default, unknown


@pytest.mark.parametrize("pre", [None, "default"])
def test_unnamed_splitter_loads_with_a_warning(
    make_metadata: MakeMetadata, pre: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    keys = tiny_tokenizer()
    del keys["tokenizer.ggml.pre"]
    if pre:
        keys["tokenizer.ggml.pre"] = pre
    with caplog.at_level(logging.WARNING):
        tokenizer = Tokenizer.from_metadata(make_metadata(keys))
    assert len(tokenizer.warnings) == 1
    assert "tokenizer.ggml.pre" in caplog.text
    assert tokenizer.decode(tokenizer.encode("it's 1234, ok?")) == "it's 1234, ok?"


def test_known_splitter_loads_without_a_warning(make_metadata: MakeMetadata) -> None:
    keys = tiny_tokenizer() | {"tokenizer.ggml.pre": "gpt-4o"}
    assert Tokenizer.from_metadata(make_metadata(keys)).warnings == ()


def test_unknown_splitter_is_refused_by_name_unless_overridden(
    make_metadata: MakeMetadata,
) -> None:
    metadata = make_metadata(tiny_tokenizer() | {"tokenizer.ggml.pre": "made-up"})
    with pytest.raises(UnsupportedModelError, match="'made-up'"):
        Tokenizer.from_metadata(metadata)
    assert Tokenizer.from_metadata(metadata, pre="qwen2").warnings == ()


@pytest.mark.parametrize(
    ("pre", "words"),
    [
        ("gpt-2", ["I", "'m", " 1234", " ok", "!\n\n", " ", " x"]),
        ("smollm", ["I", "'m", " ", "1", "2", "3", "4", " ok", "!\n\n", " ", " x"]),
        ("qwen2", ["I", "'m", " ", "1", "2", "3", "4", " ok", "!\n\n", " ", " x"]),
        ("llama-bpe", ["I", "'m", " ", "123", "4", " ok", "!\n\n", " ", " x"]),
        ("gpt-4o", ["I'm", " ", "123", "4", " ok", "!\n\n", " ", " x"]),
        ("tekken", ["I", "'m", " ", "1", "2", "3", "4", " ok", "!\n\n", " ", " x"]),
        ("deepseek-v3", ["I", "'m", " ", "123", "4", " ok", "!\n\n", " ", " x"]),
    ],
)
def test_splitters_cut_as_named(pre: str, words: list[str]) -> None:
    from engine.tokenizer.pretokenizers import PRE_TOKENIZERS

    splitter = PRE_TOKENIZERS[pre].build()
    text = "I'm 1234 ok!\n\n  x"
    found = [text[a:b] for _, (a, b) in splitter.pre_tokenize_str(text)]
    if pre in ("gpt-2", "smollm"):  # these take punctuation and line ends apart
        at = words.index("!\n\n")
        words = [*words[:at], "!", "\n\n ", *words[at + 2 :]]
    assert found == words


# K091: BPE model without merges


def test_missing_merges_are_refused(make_metadata: MakeMetadata) -> None:
    keys = tiny_tokenizer()
    del keys["tokenizer.ggml.merges"]
    with pytest.raises(
        UnsupportedModelError,
        match="no tokenizer merges in the file; it was converted by a broken converter",
    ):
        Tokenizer.from_metadata(make_metadata(keys))


def test_merges_that_name_no_token_are_left_out_with_a_warning(
    make_metadata: MakeMetadata, caplog: pytest.LogCaptureFixture
) -> None:
    keys = tiny_tokenizer()
    keys["tokenizer.ggml.merges"] = [*keys["tokenizer.ggml.merges"], "zz qq"]
    with caplog.at_level(logging.WARNING):
        tokenizer = Tokenizer.from_metadata(make_metadata(keys))
    assert "1 of" in tokenizer.warnings[0]
    assert tokenizer.decode(tokenizer.encode("zzqq")) == "zzqq"


@pytest.mark.parametrize("model", ["t5", "bert", "rwkv"])
def test_other_kinds_are_refused_by_name(make_metadata: MakeMetadata, model: str) -> None:
    keys = tiny_tokenizer() | {"tokenizer.ggml.model": model}
    with pytest.raises(UnsupportedModelError, match=repr(model)):
        Tokenizer.from_metadata(make_metadata(keys))


def test_missing_tokens_and_wrong_lengths_are_refused(
    make_metadata: MakeMetadata, make_spm_keys: Callable[..., dict[str, Any]]
) -> None:
    keys = tiny_tokenizer()
    del keys["tokenizer.ggml.tokens"]
    with pytest.raises(UnsupportedModelError, match="no tokens in the file"):
        Tokenizer.from_metadata(make_metadata(keys))
    with pytest.raises(GGUFFormatError, match="token_type"):
        Tokenizer.from_metadata(
            make_metadata(tiny_tokenizer() | {"tokenizer.ggml.token_type": [1, 1]})
        )
    with pytest.raises(GGUFFormatError, match="scores"):
        Tokenizer.from_metadata(make_metadata(make_spm_keys(scores=[0.5])))


# K092: control tokens in rendered prompts become single ids


def test_control_token_of_a_score_vocabulary(spm: Tokenizer) -> None:
    ids = spm.encode("<|user|>\nhi.</s>\n", parse_special=True)
    dot = spm.vocabulary.id_of["."]
    assert ids[ids.index(2) - 1] == dot
    assert ids.count(2) == 1
    assert spm.decode(ids, keep_special=True).startswith("<|user|>\nhi.</s>")
    plain = spm.encode("hi.</s>")
    assert 2 not in plain, "the pieces '</' and 's>' must not join to the control token"
    assert spm.decode(plain) == "hi.</s>"


def test_longest_control_token_wins(make_metadata: MakeMetadata) -> None:
    keys = tiny_tokenizer()
    extra = ["<|im_end|>x", "<|im", "[USER]", "[USER]\n"]
    n_tokens = len(keys["tokenizer.ggml.tokens"])
    keys["tokenizer.ggml.tokens"] = [*keys["tokenizer.ggml.tokens"], *extra]
    keys["tokenizer.ggml.token_type"] = [*keys["tokenizer.ggml.token_type"], 3, 3, 4, 4]
    tokenizer = Tokenizer.from_metadata(make_metadata(keys))
    long_end, short_end, user, user_line = range(n_tokens, n_tokens + 4)
    assert tokenizer.encode("<|im_end|>x", parse_special=True) == [long_end]
    assert tokenizer.encode("<|im_end|>", parse_special=True) == [2]
    assert tokenizer.encode("<|im<|im_end|>", parse_special=True) == [short_end, 2]
    assert tokenizer.encode("[USER]\n[USER]") == [user_line, user], "found in plain text too"
    assert tokenizer.decode([user_line, user]) == "[USER]\n[USER]"


def test_end_ids(make_metadata: MakeMetadata) -> None:
    keys = tiny_tokenizer()
    n_tokens = len(keys["tokenizer.ggml.tokens"])
    extra = ["<|eot_id|>", "</s>", "<|return|>", "<|call|>", "<|end|>", "<eos>"]
    keys["tokenizer.ggml.tokens"] = [*keys["tokenizer.ggml.tokens"], *extra]
    keys["tokenizer.ggml.token_type"] = [*keys["tokenizer.ggml.token_type"], 1, 1, 3, 3, 3, 3]
    keys["tokenizer.ggml.eot_token_id"] = 10
    keys["tokenizer.ggml.eom_token_id"] = 2**32 - 1
    tokenizer = Tokenizer.from_metadata(make_metadata(keys))
    # <|eot_id|> ends a turn whatever its type, </s> only if special; <|end|> not beside <|return|>.
    at = n_tokens
    assert tokenizer.end_ids >= {2, 10, at, at + 2, at + 3, at + 5}
    assert not tokenizer.end_ids & {at + 1, at + 4}
    assert tokenizer.encode("<|eot_id|>", parse_special=True) == [at]
    assert at not in tokenizer.encode("<|eot_id|>")


def test_turn_markers_are_control_tokens_whatever_their_type(
    make_metadata: MakeMetadata,
) -> None:
    keys = tiny_tokenizer()
    odd_types = [4, 4, 1, *keys.pop("tokenizer.ggml.token_type")[3:]]
    for some_keys in (keys, keys | {"tokenizer.ggml.token_type": odd_types}):
        tokenizer = Tokenizer.from_metadata(make_metadata(some_keys))
        text = "<|im_start|>user<|im_end|>"
        assert not {1, 2} & set(tokenizer.encode(text))
        assert {1, 2} <= set(tokenizer.encode(text, parse_special=True))


def test_padding_tokens_have_no_text(make_metadata: MakeMetadata) -> None:
    keys = tiny_tokenizer()
    keys["tokenizer.ggml.tokens"] = [*keys["tokenizer.ggml.tokens"], "[PAD1]"]
    keys["tokenizer.ggml.token_type"] = [*keys["tokenizer.ggml.token_type"], 5]
    tokenizer = Tokenizer.from_metadata(make_metadata(keys))
    assert tokenizer.n_vocab == len(keys["tokenizer.ggml.tokens"])
    assert tokenizer.decode([tokenizer.n_vocab - 1], keep_special=True) == ""


# SentencePiece style


def join_by_score(text: str, keys: dict[str, Any]) -> list[int]:
    """Merge as SentencePiece does, slowly: always the best-scored pair, the leftmost of equals."""
    tokens, scores = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.scores"]
    ids = {token: n for n, token in enumerate(tokens) if keys["tokenizer.ggml.token_type"][n] == 1}
    pieces = list((" " + text).replace(" ", "\u2581")) if text else []
    while True:
        pairs = [
            (-scores[ids[a + b]], n)
            for n, (a, b) in enumerate(zip(pieces, pieces[1:], strict=False))
            if a + b in ids
        ]
        if not pairs:
            break
        at = min(pairs)[1]
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
    result: list[int] = []
    for piece in pieces:
        result += [ids[piece]] if piece in ids else [3 + byte for byte in piece.encode()]
    return result


@given(text=st.text(st.sampled_from(list("helowrdinga thes  .é🙂")), max_size=60))
def test_scores_join_as_sentencepiece(
    spm: Tokenizer, make_spm_keys: Callable[..., dict[str, Any]], text: str
) -> None:
    assert spm.encode(text) == join_by_score(text, make_spm_keys())


def test_simple_known_cases(spm: Tokenizer) -> None:
    ids = spm.vocabulary.id_of
    assert spm.encode("hello world") == [ids["\u2581hello"], ids["\u2581world"]]
    assert spm.encode("hello", add_bos=True) == [1, ids["\u2581hello"]]
    assert spm.encode("\n") == [ids["\u2581"], 3 + 10]
    assert spm.encode("🙂")[1:] == [3 + byte for byte in "🙂".encode()]
    assert spm.encode("") == []
    assert spm.adds_bos
    assert spm.end_ids == {2}


def test_space_prefix_is_the_files_choice(
    make_metadata: MakeMetadata, make_spm_keys: Callable[..., dict[str, Any]]
) -> None:
    tokenizer = Tokenizer.from_metadata(make_metadata(make_spm_keys(add_space_prefix=False)))
    ids = tokenizer.vocabulary.id_of
    assert tokenizer.encode("he") == [ids["he"]]
    assert tokenizer.decode(tokenizer.encode(" he")) == " he"


# Speed and references


def test_large_vocabulary_loads_fast(make_metadata: MakeMetadata) -> None:
    letters = byte_letters()
    tokens, merges = list(letters), []
    for a in letters[:250]:
        for b in letters[:250]:
            merges.append(f"{a} {b}")
            tokens.append(a + b)
    for n in range(190_000):
        left, right = tokens[256 + n % 62_500], tokens[256 + (n * 7919 + n // 62_500) % 62_500]
        merges.append(f"{left} {right}")
        tokens.append(left + right)
    tokens = list(dict.fromkeys(tokens))
    metadata = make_metadata(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "qwen2",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [1] * len(tokens),
            "tokenizer.ggml.merges": merges,
        }
    )
    made: list[Tokenizer] = []
    n_calls = count_calls(lambda: made.append(Tokenizer.from_metadata(metadata)))
    assert n_calls < MAX_CALLS_A_TOKEN * len(tokens)
    tokenizer = made[0]
    assert tokenizer.n_vocab > 200_000
    assert tokenizer.decode(tokenizer.encode("größe 🙂")) == "größe 🙂"


@pytest.mark.shared
@pytest.mark.parametrize(
    ("pre", "file"),
    [
        ("qwen2", "qwen3moe/qwen3moe-t-f16.gguf"),
        ("qwen35", "qwen35moe/qwen35moe-t-f16.gguf"),
        ("llama-bpe", "llama/llama-t-f32.gguf"),
    ],
)
def test_ids_equal_the_reference(shared_dir: Path, pre: str, file: str) -> None:
    model = open_model(shared_dir / "golden" / file)
    tokenizer = Tokenizer.from_metadata(model.metadata)
    model.close()
    cases = json.loads((shared_dir / "golden" / f"tokens-{pre}.json").read_text())
    assert len(cases) > 50
    for case in cases:
        assert tokenizer.encode(case["text"], parse_special=True) == case["ids"], case["text"]
        assert tokenizer.decode(case["ids"], keep_special=True) == case["text"]


@pytest.mark.shared
@pytest.mark.model
def test_ids_of_the_demo_model(shared_dir: Path, smollm2_path: Path) -> None:
    model = open_model(smollm2_path)
    tokenizer = Tokenizer.from_metadata(model.metadata)
    model.close()
    cases = json.loads((shared_dir / "golden" / "smollm2" / "tokens.json").read_text())
    assert cases["tokenize"]
    for case in cases["tokenize"]:
        assert tokenizer.encode(case["text"]) == case["ids"], case["text"]
        special = tokenizer.encode(case["text"], parse_special=True)
        assert special == case["ids_special"], case["text"]
        assert tokenizer.decode(case["ids"]) == case["text"]
