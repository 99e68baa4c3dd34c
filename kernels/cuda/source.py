"""The text of a kernel with its headers pasted in, so that it needs no include path.

What is compiled is also what the cache is keyed by: a changed header is a changed text. Building it
is left to `kernels.cuda.compiler`.
"""

from __future__ import annotations

import re
from pathlib import Path

from kernels.errors import KernelCompileError

HERE = Path(__file__).resolve().parent
FOLDERS = (HERE, HERE.parent / "include")

PRELUDE = """\
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
typedef unsigned long long uintptr_t;
"""
"""What <stdint.h> would say; NVRTC has none."""

_INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)\s*$', re.MULTILINE)
_PROVIDED = frozenset({"stdint.h", "cstdint"})


def read_source(stem: str) -> str:
    """Return the text of `stem`.cu with our own headers in place of their includes.

    System headers stay includes; `needs_cuda_headers` says whether there are any.

    Raises:
        KernelCompileError: the file or a header of ours is missing.
    """
    seen: set[str] = set()
    return PRELUDE + _paste(f"{stem}.cu", seen)


def needs_cuda_headers(text: str) -> bool:
    """Whether a pasted text includes headers of the CUDA toolkit."""
    return _INCLUDE.search(text) is not None


def _paste(name: str, seen: set[str]) -> str:
    path = next((folder / name for folder in FOLDERS if (folder / name).is_file()), None)
    if path is None:
        raise KernelCompileError(
            f"the kernel source {name} is missing from {FOLDERS[0]}; the installation is damaged, "
            "so install Strata again."
        )
    seen.add(name)

    def replace(match: re.Match[str]) -> str:
        own, system = match.groups()
        if system is not None:
            return "" if system in _PROVIDED else match.group(0)
        return "" if own in seen else _paste(own, seen)

    text = path.read_text(encoding="utf-8").replace("#pragma once", "")
    return f'#line 1 "{name}"\n' + _INCLUDE.sub(replace, text) + "\n"
