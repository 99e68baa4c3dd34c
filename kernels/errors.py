"""Every failure the kernels report by class.

KernelError
├── KernelCompileError      a kernel or the C library could not be built
├── KernelLaunchError       a kernel was called with arguments it cannot take, or the driver refused
└── UnsupportedQuantError   a weight format this version does not know

It leaves failures of files, requests and memory to `engine.errors`.
"""

from __future__ import annotations


class KernelError(Exception):
    """Base of everything the kernels raise on purpose."""


class KernelCompileError(KernelError):
    """A kernel could not be built; the text holds the compiler's log."""


class KernelLaunchError(KernelError):
    """A kernel was called with arguments it cannot take, or the driver refused it."""


class UnsupportedQuantError(KernelError):
    """A weight format is not known or cannot be used for what was asked.

    Attributes:
        quant_id: ggml's number of the format.
    """

    def __init__(self, message: str, *, quant_id: int) -> None:
        self.quant_id = quant_id
        super().__init__(message)
