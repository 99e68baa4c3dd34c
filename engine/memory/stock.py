"""The extents taken from the card: made when needed, given back when nobody has them mapped.

Every extent is known here from its making to its release, so none can be lost however a change
fails. Where it is mapped is kept by `engine.memory.virtual_range`.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack

from engine.memory.virtual_range import Extent
from engine.memory.vmm import Driver, DriverError, Handle

log = logging.getLogger(__name__)


class Stock:
    """All extents of one card.

    Attributes:
        extent_bytes: size of each.
    """

    def __init__(self, driver: Driver, *, extent_bytes: int) -> None:
        self._driver = driver
        self._extents: dict[Handle, Extent] = {}
        self.extent_bytes = extent_bytes

    @property
    def n_extents(self) -> int:
        """Extents taken from the card."""
        return len(self._extents)

    def idle(self) -> list[Extent]:
        """Return extents mapped nowhere: those the driver would not take back."""
        return [extent for extent in self._extents.values() if not extent.n_maps]

    def take(self, n_extents: int, undo: ExitStack) -> list[Extent]:
        """Take extents, idle ones first. Their bytes are undefined.

        Args:
            n_extents: how many.
            undo: takes what gives them back.

        Raises:
            DriverError: the card has no more, or failed; unwind `undo`.
        """
        taken = self.idle()[:n_extents]
        for extent in taken:
            undo.callback(self.release, extent)
        while len(taken) < n_extents:
            extent = Extent(self._driver.create(self.extent_bytes), self.extent_bytes)
            self._extents[extent.handle] = extent
            undo.callback(self.release, extent)
            taken.append(extent)
        return taken

    def release(self, extent: Extent) -> None:
        """Give an extent back to the driver; if that fails, it stays here, idle."""
        if extent.n_maps:  # its unmapping failed; `close` comes back to it
            return
        try:
            self._release(extent)
        except DriverError:
            log.exception("An extent could not be given back; it will be used again.")

    def close(self) -> None:
        """Give every extent back that is mapped nowhere.

        Raises:
            DriverError: the driver refused one; all others were given back.
        """
        with ExitStack() as steps:
            for extent in self.idle():
                steps.callback(self._release, extent)

    def _release(self, extent: Extent) -> None:
        self._driver.release(extent.handle)
        del self._extents[extent.handle]
