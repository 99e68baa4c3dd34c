"""From the tokenizer keys of a GGUF file to text -> ids -> text.

Merging is done by the `tokenizers` library; special tokens are found here, because where they may
be found depends on who wrote the text. Chat templates are left to `engine.tokenizer.template`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import tokenizers
from tokenizers import models

from engine.errors import GGUFFormatError, UnsupportedModelError
from engine.gguf.metadata import Metadata
from engine.tokenizer.markers import MarkerFinder, Segment
from engine.tokenizer.pretokenizers import PRE_TOKENIZERS
from engine.tokenizer.vocabulary import SPACE, TokenType, Vocabulary

log = logging.getLogger(__name__)

_KEY = "tokenizer.ggml."


@dataclass(frozen=True, kw_only=True, slots=True)
class _Merger:
    """How ordinary text becomes ids in one file.

    Attributes:
        library: merges one piece of text.
        adds_space_prefix: a space goes before the text and after each special token.
        adds_bos: whether such files begin with BOS when they do not say.
        warnings: what a person should know.
    """

    library: tokenizers.Tokenizer
    adds_space_prefix: bool
    adds_bos: bool
    warnings: tuple[str, ...] = ()


class Tokenizer:
    """The tokenizer of one model file.

    Attributes:
        vocabulary: the tokens.
        markers: finds special tokens.
        n_vocab: number of tokens.
        bos_id: the token a text begins with, None if there is none.
        eos_id: the token a text ends with, None if there is none.
        end_ids: every token that ends an answer.
        adds_bos: whether the model wants BOS at the start of each prompt.
        adds_space_prefix: whether text gets a space in front (SentencePiece style).
        warnings: what a person should know about this file's tokenizer.
    """

    def __init__(self, vocabulary: Vocabulary, merger: _Merger, meta: Metadata) -> None:
        self.vocabulary = vocabulary
        self.n_vocab = len(vocabulary)
        self.bos_id = self._read_id(meta, "bos_token_id")
        self.eos_id = self._read_id(meta, "eos_token_id")
        ends = [self.eos_id, *(self._read_id(meta, f"{x}_token_id") for x in ("eot", "eom"))]
        self.end_ids = vocabulary.end_ids([token_id for token_id in ends if token_id is not None])
        self.adds_bos = (
            meta.get_bool(_KEY + "add_bos_token", merger.adds_bos) and self.bos_id is not None
        )
        self.adds_space_prefix = merger.adds_space_prefix
        self.warnings = merger.warnings
        texts = vocabulary.texts
        self.markers = MarkerFinder(
            (texts[i] for i in vocabulary.of_type(TokenType.CONTROL, TokenType.UNKNOWN)),
            (texts[i] for i in vocabulary.of_type(TokenType.USER_DEFINED)),
        )
        self._library = merger.library
        self._escapes_spaces = not vocabulary.is_byte_level

    @classmethod
    def from_metadata(cls, meta: Metadata, *, pre: str | None = None) -> Tokenizer:
        """Build the tokenizer a file describes.

        Args:
            meta: the file's keys.
            pre: name of the splitter to use instead of the file's `tokenizer.ggml.pre`.

        Raises:
            UnsupportedModelError: a kind of tokenizer or splitter this version does not have, or
                parts of it are missing.
            GGUFFormatError: keys of a wrong type or length.
        """
        model = meta.get_str(_KEY + "model", "none")
        if model not in ("gpt2", "llama"):
            raise UnsupportedModelError(
                f"the tokenizer kind {model!r} (tokenizer.ggml.model) is not supported; this "
                "version has: gpt2 (byte-pair merges) and llama (SentencePiece scores).",
                path=meta.path,
            )
        vocabulary = Vocabulary.from_metadata(meta, is_byte_level=model == "gpt2")
        merger = (
            _byte_level_merger(vocabulary, meta, pre)
            if model == "gpt2"
            else _score_merger(vocabulary, meta)
        )
        for warning in merger.warnings:
            log.warning("%s", warning)
        return cls(vocabulary, merger, meta)

    def _read_id(self, meta: Metadata, name: str) -> int | None:
        token_id = meta.get_int(_KEY + name, None)
        if token_id is not None and not 0 <= token_id < self.n_vocab:
            return None  # some converters write -1 or 2**32 - 1 for "none"
        return token_id

    @property
    def bos_text(self) -> str:
        """Text of the BOS token, "" if there is none."""
        return "" if self.bos_id is None else self.vocabulary.texts[self.bos_id]

    @property
    def eos_text(self) -> str:
        """Text of the EOS token, "" if there is none."""
        return "" if self.eos_id is None else self.vocabulary.texts[self.eos_id]

    def encode(self, text: str, *, parse_special: bool = False, add_bos: bool = False) -> list[int]:
        """Return the ids of a text.

        Args:
            text: any text; a lone surrogate is read as U+FFFD.
            parse_special: whether markers such as `<|im_end|>` become control tokens. Tokens of
                type USER_DEFINED are found in either case.
            add_bos: put BOS first, if the model has one and the text does not begin with it.
        """
        return self.encode_segments([Segment(text, parse_special)], add_bos=add_bos)

    def encode_segments(self, segments: Iterable[Segment], *, add_bos: bool = False) -> list[int]:
        """Return the ids of a prompt whose pieces come from different hands.

        The pieces are read as one text, so words run across their borders; only markers that lie
        wholly in markup become control tokens.

        Args:
            segments: the pieces in order.
            add_bos: as for `encode`.
        """
        parts: list[str] = []
        markup: list[tuple[int, int]] = []
        n_chars = 0
        for segment in segments:
            part = clean(segment.text)
            if segment.is_markup and part:
                start = markup.pop()[0] if markup and markup[-1][1] == n_chars else n_chars
                markup.append((start, n_chars + len(part)))
            parts.append(part)
            n_chars += len(part)
        text = "".join(parts)
        ids: list[int] = []
        at = 0
        for marker in self.markers.find(text, markup):
            ids += self._merge(text[at : marker.start])
            ids.append(self.vocabulary.id_of[marker.text])
            at = marker.stop
        ids += self._merge(text[at:])
        if add_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids.insert(0, self.bos_id)
        return ids

    def _merge(self, text: str) -> list[int]:
        if not text:
            return []
        if self._escapes_spaces:
            text = (" " + text if self.adds_space_prefix else text).replace(" ", SPACE)
        # The batch call leaves out offsets into the text, which take half of the time.
        (encoding,) = self._library.encode_batch_fast([text], add_special_tokens=False)
        return list(encoding.ids)

    def token_bytes(self, token_id: int, *, keep_special: bool = False) -> bytes:
        """Return the bytes a token adds to the text.

        Args:
            token_id: any id; one the vocabulary does not have adds nothing.
            keep_special: whether control tokens add their marker instead of nothing.
        """
        if not 0 <= token_id < self.n_vocab:
            return b""
        if not keep_special and self.vocabulary.is_special(token_id):
            return b""
        return self.vocabulary.bytes_of(token_id)

    def decode(self, ids: Iterable[int], *, keep_special: bool = False) -> str:
        """Return the text of ids, the reverse of `encode`.

        Args:
            ids: a whole text; the space that `encode` puts in front is taken off.
            keep_special: whether control tokens show as their marker instead of not at all.
        """
        pieces = [self.token_bytes(int(i), keep_special=keep_special) for i in ids]
        text = b"".join(pieces).decode("utf-8", "replace")
        return text[1:] if self.adds_space_prefix and text.startswith(" ") else text


def clean(text: str) -> str:
    """Return the text without lone surrogates, which no UTF-8 can hold."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _byte_level_merger(vocabulary: Vocabulary, meta: Metadata, pre: str | None) -> _Merger:
    warnings: list[str] = []
    named = pre if pre is not None else meta.get_str(_KEY + "pre", None)
    if named is None or named == "default":
        warnings.append(
            "The file does not say how its tokenizer cuts words (tokenizer.ggml.pre); a general "
            "way is used, so answers may be a little worse than they could be."
        )
    splitter = PRE_TOKENIZERS.get(named or "default")
    if splitter is None:
        raise UnsupportedModelError(
            f"the word splitter {named!r} (tokenizer.ggml.pre) is not known to this version, and "
            "a wrong one would quietly spoil every answer. Get a newer version, or name the one "
            f"to use instead: {', '.join(PRE_TOKENIZERS)}.",
            path=meta.path,
        )
    lines = meta.get_array(_KEY + "merges", str, [])
    if not lines:
        raise UnsupportedModelError(
            "no tokenizer merges in the file; it was converted by a broken converter. "
            "Get another copy of the model.",
            path=meta.path,
        )
    ids = _mergeable(vocabulary)
    merges: list[tuple[str, str]] = []
    for line in lines:
        left, _, right = line.partition(" ") if line[:1] != " " else (" ", "", line[2:])
        if left in ids and right in ids and left + right in ids:
            merges.append((left, right))
    if len(merges) < len(lines):
        warnings.append(
            f"{len(lines) - len(merges)} of {len(lines)} tokenizer merges name tokens the "
            "vocabulary does not have; they are left out."
        )
    model = models.BPE(vocab=ids, merges=merges, ignore_merges=splitter.ignores_merges)
    library = tokenizers.Tokenizer(model)
    library.pre_tokenizer = splitter.build()
    return _Merger(
        library=library,
        adds_space_prefix=False,
        adds_bos=splitter.adds_bos,
        warnings=tuple(warnings),
    )


def _score_merger(vocabulary: Vocabulary, meta: Metadata) -> _Merger:
    scores = meta.get_array(_KEY + "scores", float, [])
    if len(scores) != len(vocabulary):
        raise GGUFFormatError(
            f"tokenizer.ggml.scores should have one entry for each of the {len(vocabulary)} "
            f"tokens, but has {len(scores)}.",
            path=meta.path,
        )
    ids = _mergeable(vocabulary)
    model = models.BPE(
        vocab=ids,
        merges=_merges_by_score(vocabulary, scores, ids),
        byte_fallback=True,
        fuse_unk=True,
        unk_token=next((vocabulary.texts[i] for i in vocabulary.of_type(TokenType.UNKNOWN)), None),
    )
    return _Merger(
        library=tokenizers.Tokenizer(model),
        adds_space_prefix=meta.get_bool(_KEY + "add_space_prefix", default=True),
        adds_bos=True,
    )


def _mergeable(vocabulary: Vocabulary) -> dict[str, int]:
    """Return the tokens ordinary text may become: all but control tokens."""
    ids = dict(vocabulary.id_of)
    for token_id in vocabulary.of_type(TokenType.CONTROL):
        ids.pop(vocabulary.texts[token_id], None)
    return ids


def _merges_by_score(
    vocabulary: Vocabulary, scores: Sequence[float], ids: Mapping[str, int]
) -> list[tuple[str, str]]:
    """Return every way to join two pieces to a third, the best-scored piece first.

    SentencePiece joins whichever two neighbours give the piece with the highest score; as a list
    of merges in that order, a byte-pair merger does the same.
    """
    wanted = (TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.UNUSED)
    order = sorted(vocabulary.of_type(*wanted), key=lambda token_id: -scores[token_id])
    merges: list[tuple[str, str]] = []
    for token_id in order:
        text = vocabulary.texts[token_id]
        for cut in range(1, len(text)):
            left, right = text[:cut], text[cut:]
            if left in ids and right in ids:
                merges.append((left, right))
    return merges
