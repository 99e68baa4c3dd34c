"""The model's tokenizer as the scheduler sees it: end tokens and one assembler a request."""

from __future__ import annotations

from engine.tokenizer.assembler import TextAssembler
from engine.tokenizer.tokenizer import Tokenizer


class TokenizerText:
    """A `TextFactory` over a tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end an answer."""
        return self._tokenizer.end_ids

    def assembler(self, stop: tuple[str, ...]) -> TextAssembler:
        """A fresh assembler for one request that ends at any of the stop strings."""
        return TextAssembler(self._tokenizer, stop)
