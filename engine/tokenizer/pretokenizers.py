"""How text is cut into words before byte-pair merging, by the name a GGUF file gives.

The wrong cut gives ids the model was not trained on, so a name that is not in this table is
refused. Merging itself is left to `engine.tokenizer.tokenizer`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Regex, pre_tokenizers

_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _SPACES
_QWEN2 = _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _SPACES
_QWEN35 = (
    _ENDINGS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + _SPACES
)
_O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_ENDINGS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_ENDINGS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACES
)
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACES
)
_DEEPSEEK3_WORDS = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|" + _SPACES
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PreTokenizer:
    """One way to cut text.

    Attributes:
        patterns: applied one after the other, each to the pieces the one before left; what a
            pattern does not match stays a piece of its own.
        ignores_merges: a piece that is a token as a whole is taken at once.
        adds_bos: whether models of this kind begin with BOS when the file does not say.
    """

    patterns: tuple[str, ...]
    ignores_merges: bool = False
    adds_bos: bool = False

    def build(self) -> pre_tokenizers.PreTokenizer:
        """Return it for the `tokenizers` library, with bytes shown as letters at the end."""
        splits = [pre_tokenizers.Split(Regex(p), behavior="isolated") for p in self.patterns]
        return pre_tokenizers.Sequence(
            [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )


_FALLBACK = PreTokenizer(patterns=(r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"))
_OF_GPT2 = PreTokenizer(patterns=(_GPT2,))
_OF_DIGITS = PreTokenizer(patterns=(r"\p{N}", _GPT2))
_OF_LLAMA3 = PreTokenizer(patterns=(_LLAMA3,), ignores_merges=True, adds_bos=True)
_OF_GLM4 = PreTokenizer(patterns=(_LLAMA3,))
_OF_QWEN2 = PreTokenizer(patterns=(_QWEN2,))
_OF_O200K = PreTokenizer(patterns=(_O200K,))

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "default": _FALLBACK,
    "gpt-2": _OF_GPT2,
    "gpt2": _OF_GPT2,
    "phi-2": _OF_GPT2,
    "mpt": _OF_GPT2,
    "olmo": _OF_GPT2,
    "jais": _OF_GPT2,
    "exaone4": _OF_GPT2,
    "mellum": _OF_GPT2,
    "smollm": _OF_DIGITS,
    "starcoder": _OF_DIGITS,
    "refact": _OF_DIGITS,
    "command-r": _OF_DIGITS,
    "codeshell": _OF_DIGITS,
    "exaone": _OF_DIGITS,
    "minerva-7b": _OF_DIGITS,
    "llama3": _OF_LLAMA3,
    "llama-v3": _OF_LLAMA3,
    "llama-bpe": _OF_LLAMA3,
    "falcon3": _OF_LLAMA3,
    "pixtral": _OF_LLAMA3,
    "lfm2": _OF_LLAMA3,
    "glm4": _OF_GLM4,
    "chatglm-bpe": _OF_GLM4,
    "dbrx": _OF_GLM4,
    "smaug-bpe": _OF_GLM4,
    "qwen2": _OF_QWEN2,
    "deepseek-r1-qwen": _OF_QWEN2,
    "stablelm2": _OF_QWEN2,
    "megrez": _OF_QWEN2,
    "hunyuan": _OF_QWEN2,
    "grok-2": _OF_QWEN2,
    "qwen35": PreTokenizer(patterns=(_QWEN35,)),
    "gpt-4o": _OF_O200K,
    "llama4": _OF_O200K,
    "minimax-m2": _OF_O200K,
    "tekken": PreTokenizer(patterns=(_TEKKEN,), ignores_merges=True, adds_bos=True),
    "deepseek-v3": PreTokenizer(
        patterns=(
            r"\p{N}{1,3}",
            "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            _DEEPSEEK3_WORDS,
        )
    ),
    "falcon": PreTokenizer(patterns=(r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")),
}
"""Name in `tokenizer.ggml.pre` -> how it cuts."""
