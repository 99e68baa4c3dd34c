"""The CUDA driver, opened on demand, with failed calls made exceptions.

Which calls to make is left to `module`, `device` and their users.
"""

from __future__ import annotations

from typing import Any

from kernels.errors import KernelLaunchError


def open_driver() -> Any:
    """Return the module of driver calls after initialising the driver.

    Raises:
        KernelLaunchError: there is no package, no driver, or no card.
    """
    try:
        from cuda.bindings import driver

        (status,) = driver.cuInit(0)
    except (ImportError, RuntimeError) as error:
        raise KernelLaunchError(f"no NVIDIA driver could be opened: {error}") from error
    if int(status) != 0:
        raise KernelLaunchError(f"the NVIDIA driver did not start: {status.name}.")
    return driver


def checked(result: tuple[Any, ...], what: str) -> Any:
    """Take the values out of a driver call's result.

    Args:
        result: status and values, as `cuda.bindings.driver` returns them.
        what: the call in words, for the error.

    Returns:
        None, the one value, or a tuple of several.

    Raises:
        KernelLaunchError: the status is not success.
    """
    status, *values = result
    if int(status) != 0:
        raise KernelLaunchError(f"the NVIDIA driver failed while {what}: {status.name}.")
    if not values:
        return None
    return values[0] if len(values) == 1 else tuple(values)
