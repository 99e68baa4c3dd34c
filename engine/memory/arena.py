"""Every byte of the card has an owner: extents given to, taken from and moved between owners.

Each owner has one range of addresses, as long as it may ever need, that never moves:

    weights    [ e | e | e ]                        e = an extent of memory, - = a hole
    kv         [ e | e | - | - | - ]
    workspace  [ e | b | - ]                        b = borrowed from the experts,
    experts    [ e | e | l | - | e | - ]            l = lent: this place waits for it

What owners hold plus what is free is always `usable_bytes`. Every change happens as a whole or not
at all. Which extents should move is decided elsewhere; here it is only carried out.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from engine.memory.budget import (
    DEFAULT_EXTENT_BYTES,
    DEFAULT_RESERVE_BYTES,
    VramLimits,
    VramOwner,
)
from engine.memory.loans import Loan, Loans
from engine.memory.stock import Stock
from engine.memory.virtual_range import Placement, VirtualRange, move
from engine.memory.vmm import Driver, DriverError, Event
from engine.stats import ArenaSnapshot, VramHolding

log = logging.getLogger(__name__)


class Arena:
    """The memory of one card, by owner.

    The engine thread alone calls it, with no step in flight that uses what is taken away; where an
    event is asked for (`after`), it is the one after which nobody does, and None says that nobody
    does now.

    Attributes:
        extent_bytes: size of an extent.
    """

    def __init__(
        self,
        driver: Driver,
        places: Mapping[VramOwner, int],
        *,
        limit_bytes: int | None = None,
        reserve_bytes: int = DEFAULT_RESERVE_BYTES,
        extent_bytes: int = DEFAULT_EXTENT_BYTES,
    ) -> None:
        """Reserve every owner's addresses; takes no memory yet.

        Args:
            driver: of the card.
            places: extents each owner may ever hold (`VramPlan.places`); left out = none.
            limit_bytes: treat the card as one of this size (`--vram-limit-mib`).
            reserve_bytes: leave this free (`--vram-reserve-mib`).
            extent_bytes: a multiple of the card's granularity.

        Raises:
            ValueError: extent_bytes is no such multiple.
            DriverError: the driver refused; nothing is left behind.
        """
        self._driver = driver
        self.extent_bytes = extent_bytes
        memory = driver.card_memory()
        self._limits = VramLimits(
            total_bytes=memory.total_bytes,
            free_bytes=memory.free_bytes,
            limit_bytes=limit_bytes,
            reserve_bytes=reserve_bytes,
            extent_bytes=extent_bytes,
        )
        self._usable_bytes = self._limits.usable_bytes()
        self._ranges: dict[VramOwner, VirtualRange] = {}
        self._stock = Stock(driver, extent_bytes=extent_bytes)
        self._loans = Loans()
        self._n_moved_extents = 0
        self._n_refusals = 0
        with ExitStack() as undo:
            for owner in VramOwner:
                reserved = VirtualRange(
                    driver, n_places=places.get(owner, 0), extent_bytes=extent_bytes
                )
                undo.callback(reserved.close)
                self._ranges[owner] = reserved
            undo.pop_all()

    @property
    def usable_bytes(self) -> int:
        """What owners may hold together."""
        return self._usable_bytes

    @property
    def held_bytes(self) -> int:
        """What owners hold together."""
        return sum(each.n_mapped for each in self._ranges.values()) * self.extent_bytes

    @property
    def free_bytes(self) -> int:
        """What an owner could still get."""
        return self._usable_bytes - self.held_bytes

    @property
    def loans(self) -> tuple[Loan, ...]:
        """Loans not given back yet, oldest first."""
        return self._loans.standing

    def range_of(self, owner: VramOwner) -> VirtualRange:
        """Return an owner's range, to read addresses and places from."""
        return self._ranges[owner]

    def bytes_of(self, owner: VramOwner) -> int:
        """Return what an owner holds."""
        return self._ranges[owner].n_mapped * self.extent_bytes

    def grow(self, owner: VramOwner, n_extents: int) -> tuple[int, ...] | None:
        """Give an owner fresh memory in its first holes. Its bytes are undefined.

        Returns:
            The places, or None if there is not that much now; then nothing changed.

        Raises:
            ValueError: its range has not so many holes.
            DriverError: the driver failed; nothing changed.
        """
        places = self._first_holes(owner, n_extents)
        return places if self.map_at(owner, places) else None

    def shrink(self, owner: VramOwner, n_extents: int, *, after: Event | None) -> tuple[int, ...]:
        """Take memory from an owner's last places. Borrowed extents are not its own.

        Returns:
            The places, in ascending order.

        Raises:
            ValueError: it has not so many extents of its own.
            DriverError: the driver failed; nothing changed.
        """
        borrowed = self._loans.borrowed_places(owner)
        own = [place for place in self._ranges[owner].mapped_places() if place not in borrowed]
        if not 0 <= n_extents <= len(own):
            raise ValueError(
                f"Cannot take {n_extents} extents from {owner}: it has {len(own)} of its own."
            )
        places = tuple(own[len(own) - n_extents :])
        self.unmap_at(owner, places, after=after)
        return places

    def map_at(self, owner: VramOwner, places: Sequence[int]) -> bool:
        """Give an owner fresh memory in these places. Its bytes are undefined.

        Args:
            owner: who gets it.
            places: holes of its range, in ascending order.

        Returns:
            False if there is not that much now, be it by the limit or because another program took
            it (then `remeasure` tells how much is left); nothing changed.

        Raises:
            ValueError: a place is no hole, or waits for a lent extent.
            DriverError: the driver failed; nothing changed.
        """
        self._refuse_taken(owner, places)
        if len(places) * self.extent_bytes > self.free_bytes:
            return False
        try:
            with ExitStack() as undo:
                extents = self._stock.take(len(places), undo)
                self._ranges[owner].map(places, extents, undo)
                undo.pop_all()
        except DriverError as fault:
            if not fault.is_out_of_memory:
                raise
            self._n_refusals += 1
            log.warning(
                "The card had no %d extents for %s although %d MiB should be free: %s",
                len(places),
                owner,
                self.free_bytes >> 20,
                fault,
            )
            return False
        return True

    def unmap_at(self, owner: VramOwner, places: Sequence[int], *, after: Event | None) -> None:
        """Take the memory of these places from an owner; it is free for anybody then.

        Args:
            owner: who loses it.
            places: mapped places of its own, in ascending order.
            after: the event after which nobody uses them.

        Raises:
            ValueError: a place is a hole, or its extent is borrowed.
            DriverError: the driver failed; nothing changed.
        """
        self._refuse_not_own(owner, places)
        with ExitStack() as undo:
            if after is not None and places:
                self._driver.wait(after)
            extents = self._ranges[owner].unmap(places, undo)
            undo.pop_all()
        for extent in extents:
            self._stock.release(extent)

    def move(
        self,
        source: VramOwner,
        target: VramOwner,
        *,
        from_places: Sequence[int],
        to_places: Sequence[int],
        after: Event | None,
    ) -> None:
        """Move extents with their bytes from one owner (or place) to another.

        Args:
            source: who loses them.
            target: who gets them; may be the source.
            from_places: mapped places of the source's own, in ascending order.
            to_places: holes of the target, as many, in ascending order.
            after: the event after which nobody uses the source's places.

        Raises:
            ValueError: the places do not fit together.
            DriverError: the driver failed; nothing changed.
        """
        self._refuse_not_own(source, from_places)
        self._refuse_taken(target, to_places)
        self._move((source, from_places), (target, to_places), after=after)

    def lend(
        self,
        lender: VramOwner,
        borrower: VramOwner,
        *,
        places: Sequence[int],
        after: Event | None,
    ) -> Loan:
        """Lend extents to another owner, into its first holes.

        The lender's places wait for them, and nothing else can be mapped there meanwhile.

        Args:
            lender: whose they are.
            borrower: who uses them.
            places: mapped places of the lender's own, in ascending order.
            after: the event after which nobody uses them there.

        Returns:
            What `give_back` takes.

        Raises:
            ValueError: a place is not the lender's, or the borrower has too few holes.
            DriverError: the driver failed; nothing changed.
        """
        self._refuse_not_own(lender, places)
        holes = self._first_holes(borrower, len(places))
        loan = Loan(
            lender=lender,
            lender_places=tuple(places),
            borrower=borrower,
            borrower_places=holes,
        )
        self._move((lender, loan.lender_places), (borrower, holes), after=after)
        self._loans.begin(loan)
        return loan

    def give_back(self, loan: Loan, *, after: Event | None) -> None:
        """Return lent extents to where they came from.

        Args:
            loan: of `lend`.
            after: the event after which the borrower does not use them.

        Raises:
            ValueError: it was given back already.
            DriverError: the driver failed; the loan still stands.
        """
        if loan not in self._loans.standing:
            raise ValueError(
                f"The loan of {loan.lender} to {loan.borrower}, places {loan.borrower_places}, "
                "does not stand: it was given back already."
            )
        self._move(
            (loan.borrower, loan.borrower_places), (loan.lender, loan.lender_places), after=after
        )
        self._loans.end(loan)

    def remeasure(self, *, reserve_bytes: int | None = None) -> int:
        """Ask the driver again what is free, and set `usable_bytes` by it.

        Other programs come and go, and the driver itself takes memory for modules and graphs.

        Args:
            reserve_bytes: leave this much free from now on; None = as before.

        Returns:
            Extents that owners hold too many and should give up; 0 if the reserve is free. Until
            they do, nothing is free and `usable_bytes` is what they hold.

        Raises:
            DriverError: the driver failed; nothing changed.
        """
        memory = self._driver.card_memory()
        self._limits = replace(
            self._limits,
            free_bytes=memory.free_bytes,
            reserve_bytes=self._limits.reserve_bytes if reserve_bytes is None else reserve_bytes,
        )
        held = self.held_bytes
        usable = self._limits.usable_bytes(self._stock.n_extents * self.extent_bytes)
        self._usable_bytes = max(usable, held)
        return (self._usable_bytes - usable) // self.extent_bytes

    def snapshot(self) -> ArenaSnapshot:
        """Return who holds what now, for the dashboard."""
        unit = self.extent_bytes
        return ArenaSnapshot(
            usable_bytes=self._usable_bytes,
            free_bytes=self.free_bytes,
            reserve_bytes=self._limits.reserve_bytes,
            extent_bytes=unit,
            owners=tuple(
                VramHolding(
                    owner=owner.value,
                    bytes=reserved.n_mapped * unit,
                    max_bytes=reserved.n_bytes,
                    lent_bytes=len(self._loans.lent_places(owner)) * unit,
                    borrowed_bytes=len(self._loans.borrowed_places(owner)) * unit,
                )
                for owner, reserved in self._ranges.items()
            ),
            n_moved_extents=self._n_moved_extents,
            n_refusals=self._n_refusals,
        )

    def check(self) -> None:
        """Verify every invariant.

        Raises:
            AssertionError: an extent is in two places, the sums differ, or a loan is broken.
        """
        mapped = [
            extent
            for reserved in self._ranges.values()
            for place in reserved.mapped_places()
            if (extent := reserved.extent(place)) is not None
        ]
        handles = {extent.handle for extent in mapped}
        assert len(handles) == len(mapped), "an extent is in two places"
        assert all(extent.n_maps == 1 for extent in mapped), "an extent is miscounted"
        assert self.free_bytes >= 0, f"{self.held_bytes} held of {self._usable_bytes}"
        n_extents, n_idle = self._stock.n_extents, len(self._stock.idle())
        assert len(mapped) + n_idle == n_extents, f"{len(mapped)} + {n_idle} is not {n_extents}"
        for loan in self._loans.standing:
            lender, borrower = self._ranges[loan.lender], self._ranges[loan.borrower]
            assert all(lender.extent(place) is None for place in loan.lender_places), loan
            assert all(borrower.extent(place) for place in loan.borrower_places), loan
        for owner in VramOwner:
            n_lent = sum(len(x.lender_places) for x in self.loans if x.lender == owner)
            assert n_lent == len(self._loans.lent_places(owner)), f"{owner} lent a place twice"

    def close(self) -> None:
        """Wait for the card, then give everything back. Loans end.

        Raises:
            DriverError: a step failed; all others were done, and a second call tries it again.
        """
        self._loans.clear()
        with ExitStack() as steps:  # carried out last to first, each one whatever others raise
            for reserved in self._ranges.values():
                steps.callback(reserved.close)
            steps.callback(self._stock.close)
            for reserved in self._ranges.values():
                for place in reserved.mapped_places():
                    steps.callback(self._strip, reserved, place)
            steps.callback(self._driver.synchronize)

    def _first_holes(self, owner: VramOwner, n_extents: int) -> tuple[int, ...]:
        lent = self._loans.lent_places(owner)
        holes = [place for place in self._ranges[owner].holes() if place not in lent]
        if not 0 <= n_extents <= len(holes):
            raise ValueError(
                f"Cannot give {owner} {n_extents} extents more: its addresses have room for "
                f"{self._ranges[owner].n_places}, {len(holes)} of them free."
            )
        return tuple(holes[:n_extents])

    def _refuse_not_own(self, owner: VramOwner, places: Sequence[int]) -> None:
        borrowed, reserved = self._loans.borrowed_places(owner), self._ranges[owner]
        wrong = [p for p in places if p in borrowed or not reserved.has_extent(p)]
        _refuse(places, wrong, f"extents of {owner}'s own")

    def _refuse_taken(self, owner: VramOwner, places: Sequence[int]) -> None:
        lent, reserved = self._loans.lent_places(owner), self._ranges[owner]
        wrong = [p for p in places if p in lent or not reserved.has_hole(p)]
        _refuse(places, wrong, f"free places of {owner}")

    def _move(
        self,
        source: tuple[VramOwner, Sequence[int]],
        target: tuple[VramOwner, Sequence[int]],
        *,
        after: Event | None,
    ) -> None:
        (giver, from_places), (taker, to_places) = source, target
        if len(from_places) != len(to_places):
            raise ValueError(
                f"Cannot move {len(from_places)} extents of {giver} to {len(to_places)} places of "
                f"{taker}."
            )
        with ExitStack() as undo:
            move(
                self._driver,
                Placement(range=self._ranges[giver], places=from_places),
                Placement(range=self._ranges[taker], places=to_places),
                after=after,
                undo=undo,
            )
            undo.pop_all()
        self._n_moved_extents += len(from_places)

    def _strip(self, reserved: VirtualRange, place: int) -> None:
        with ExitStack() as undo:
            reserved.unmap([place], undo)
            undo.pop_all()


def _refuse(places: Sequence[int], wrong: Sequence[int], what: str) -> None:
    """Raise ValueError if some places are wrong, or not in ascending order."""
    if wrong or list(places) != sorted(set(places)):
        raise ValueError(
            f"Places {list(places)} must be {what} in ascending order"
            + (f"; {list(wrong)} are not." if wrong else ".")
        )
