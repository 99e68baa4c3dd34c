"""The token list of a model: texts, types, the bytes each stands for, and which ones end a turn.

Turning text into ids is left to `engine.tokenizer.tokenizer`.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence

from engine.errors import GGUFFormatError, UnsupportedModelError
from engine.gguf.metadata import Metadata

SPACE = "\u2581"
"""What SentencePiece-style vocabularies write for a space."""

END_OF_TURN_MARKERS = frozenset(
    {
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end|>",
        "<|return|>",
        "<|call|>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|end_of_turn|>",
        "<end_of_turn>",
        "<end_of_utterance>",
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
    }
)
"""Texts no vocabulary has but as an end: they count whatever type the file gives them."""
TURN_MARKERS = frozenset(
    {
        "<|im_start|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<start_of_turn>",
        "<|start|>",
        "<|channel|>",
        "<|message|>",
        "<|system|>",
        "<|user|>",
        "<|assistant|>",
    }
)
"""Texts that say who speaks. Older converters call some of them USER_DEFINED, and a message that
has one would then change who speaks: they are control tokens whatever type the file gives them."""
END_OF_TURN_WORDS = frozenset({"</s>", "<eos>", "<EOT>", "_<EOT>", "[EOT]"})
"""Texts that end a turn if the file says they are special; else they may be plain text."""

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_LIKELY_MARKER = re.compile(r"<\|[^|<>\s]+\|>|<(?:start|end)_of_turn>|</?s>")


class TokenType(enum.IntEnum):
    """Type of a token.

    Source:
        GGUF format, `tokenizer.ggml.token_type`.
    """

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class Vocabulary:
    """The tokens of a model.

    Attributes:
        texts: text of each token as the file has it.
        types: `TokenType` of each token.
        is_byte_level: whether texts show bytes as letters (GPT-2 style).
        id_of: text -> id.
    """

    def __init__(self, texts: Sequence[str], types: Sequence[int], *, is_byte_level: bool) -> None:
        self.texts = texts
        self.types = types
        self.is_byte_level = is_byte_level
        self.id_of = {text: token_id for token_id, text in enumerate(texts)}
        self._letter_bytes = letter_bytes() if is_byte_level else {}
        # Filled on demand: most tokens of a vocabulary are never seen. Two threads may fill the
        # same place with the same value, which does no harm.
        self._known: list[bytes | None] = [None] * len(texts)

    @classmethod
    def from_metadata(cls, meta: Metadata, *, is_byte_level: bool) -> Vocabulary:
        """Read the token list of a file.

        Raises:
            UnsupportedModelError: there is none.
            GGUFFormatError: the types do not match the tokens in number.
        """
        if "tokenizer.ggml.tokens" not in meta:
            raise UnsupportedModelError(
                "there are no tokens in the file (tokenizer.ggml.tokens); "
                "it holds weights without a tokenizer and cannot be used alone.",
                path=meta.path,
            )
        texts = meta.get_array("tokenizer.ggml.tokens", str)
        types = meta.get_array("tokenizer.ggml.token_type", int, None)
        if types is None:
            types = [
                TokenType.CONTROL if _LIKELY_MARKER.fullmatch(text) else TokenType.NORMAL
                for text in texts
            ]
        if len(types) != len(texts):
            raise GGUFFormatError(
                f"tokenizer.ggml.token_type should have one entry for each of the {len(texts)} "
                f"tokens, but has {len(types)}.",
                path=meta.path,
            )
        vocabulary = cls(texts, types, is_byte_level=is_byte_level)
        for text in END_OF_TURN_MARKERS | TURN_MARKERS:
            token_id = vocabulary.id_of.get(text)
            if token_id is not None:
                types[token_id] = TokenType.CONTROL
        return vocabulary

    def __len__(self) -> int:
        return len(self.texts)

    def of_type(self, *wanted: TokenType) -> list[int]:
        """Return the ids of all tokens of these types."""
        values = {int(kind) for kind in wanted}
        return [token_id for token_id, kind in enumerate(self.types) if kind in values]

    def is_special(self, token_id: int) -> bool:
        """Whether the token is a sign for the model, not text."""
        return self.types[token_id] in (TokenType.CONTROL, TokenType.UNKNOWN)

    def bytes_of(self, token_id: int) -> bytes:
        """Return the bytes a token stands for; of a special one, its marker's."""
        known = self._known[token_id]
        if known is None:
            known = self._known[token_id] = self._find_bytes(token_id)
        return known

    def _find_bytes(self, token_id: int) -> bytes:
        text, kind = self.texts[token_id], self.types[token_id]
        if kind == TokenType.UNUSED:
            return b""
        if kind in (TokenType.CONTROL, TokenType.UNKNOWN):
            return text.encode()
        if kind == TokenType.USER_DEFINED:
            return (text if self.is_byte_level else text.replace(SPACE, " ")).encode()
        if not self.is_byte_level:
            if kind == TokenType.BYTE and (match := _BYTE_TOKEN.fullmatch(text)):
                return bytes.fromhex(match[1])
            return text.replace(SPACE, " ").encode()
        letters = self._letter_bytes
        return b"".join(letters.get(char) or char.encode() for char in text)

    def end_ids(self, named: Sequence[int]) -> frozenset[int]:
        """Return the ids that end an answer.

        Args:
            named: ids that the file's keys name (eos, eot, eom).
        """
        ids = set(named)
        ids.update(self.id_of[text] for text in END_OF_TURN_MARKERS if text in self.id_of)
        for text in END_OF_TURN_WORDS & self.id_of.keys():
            if self.types[self.id_of[text]] in (TokenType.CONTROL, TokenType.USER_DEFINED):
                ids.add(self.id_of[text])
        # Where <|return|> and <|call|> end a turn, <|end|> only ends one of its messages.
        if {"<|return|>", "<|call|>", "<|end|>"} <= self.id_of.keys():
            ids.discard(self.id_of["<|end|>"])
        return frozenset(ids)


def letter_bytes() -> Mapping[str, bytes]:
    """Return which byte each letter of a byte-level vocabulary stands for.

    Printable bytes stand for themselves, the other 68 are counted up from U+0100.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {chr(byte): bytes([byte]) for byte in printable}
    hidden = sorted(set(range(256)) - set(printable))
    letters.update({chr(0x100 + n): bytes([byte]) for n, byte in enumerate(hidden)})
    return letters
