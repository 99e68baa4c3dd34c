"""Small tokenizers for these tests, and a way to make metadata from a dict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from engine.gguf.metadata import Metadata
from engine.gguf.reader import open_model
from engine.tokenizer.tokenizer import Tokenizer
from tests.builders import make_gguf, tiny_tokenizer

settings.register_profile("steady", deadline=None, derandomize=True, database=None)
settings.load_profile("steady")

MakeMetadata = Callable[[Mapping[str, Any]], Metadata]


@pytest.fixture(scope="session")
def make_metadata(tmp_path_factory: pytest.TempPathFactory) -> MakeMetadata:
    """Write keys to a GGUF file and read them back, as a model's would be."""
    folder = tmp_path_factory.mktemp("keys")
    numbers = count()

    def make(keys: Mapping[str, Any]) -> Metadata:
        keys = {"general.architecture": "llama", **keys}
        path = make_gguf(Path(folder) / f"keys{next(numbers)}.gguf", keys)
        model = open_model(path)
        metadata = model.metadata
        model.close()
        return metadata

    return make


@pytest.fixture(scope="session")
def chatml(make_metadata: MakeMetadata) -> Tokenizer:
    """A byte-level tokenizer with `<|im_start|>` and `<|im_end|>`."""
    return Tokenizer.from_metadata(make_metadata(tiny_tokenizer()))


SPM_WORDS = [
    "\u2581",
    *"abcdefghilnorstuwyHW.!,'<>/|",
    "\u2581\u2581",
    "he",
    "in",
    "ll",
    "\u2581w",
    "or",
    "\u2581a",
    "th",
    "\u2581the",
    "llo",
    "\u2581he",
    "\u2581h",
    "\u2581hello",
    "\u2581wor",
    "ld",
    "\u2581world",
    "lo",
    "el",
    "\u2581th",
    "ing",
    "s>",
    "</",
    "é",
]
"""Normal pieces of the small SentencePiece-style vocabulary, the best-scored longest ones last."""


def spm_keys(**changes: Any) -> dict[str, Any]:
    """Return keys of a small SentencePiece-style tokenizer; `changes` are added or replace."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *SPM_WORDS]
    scores = [0.0] * 259 + [float(len(word)) - n / 100 for n, word in enumerate(SPM_WORDS)]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": [2, 3, 3, *[6] * 256, *[1] * len(SPM_WORDS)],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        **{f"tokenizer.ggml.{name}": value for name, value in changes.items()},
    }


@pytest.fixture(scope="session")
def spm(make_metadata: MakeMetadata) -> Tokenizer:
    """A SentencePiece-style tokenizer."""
    return Tokenizer.from_metadata(make_metadata(spm_keys()))


@pytest.fixture(scope="session")
def make_spm_keys() -> Callable[..., dict[str, Any]]:
    """`spm_keys` for tests that change some of them."""
    return spm_keys
