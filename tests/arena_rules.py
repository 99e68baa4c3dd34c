"""The arena's rules as random play against a model of it; runs on the fake and the real driver.

Every extent carries a number in its first and last bytes. The model knows which number must be in
which place of which owner; after each turn all of them are read back through the card's addresses.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from engine.memory.arena import Arena
from engine.memory.budget import VramOwner
from engine.memory.loans import Loan
from engine.memory.vmm import Driver, DriverError, Event

OWNERS = tuple(VramOwner)
TAG_BYTES = 4
KINDS = ("grow", "shrink", "map", "unmap", "move", "lend", "give_back", "remeasure")


class CardDriver(Driver, Protocol):
    """A driver whose memory a test can touch."""

    def read(self, address: int, n_bytes: int) -> bytes: ...
    def write(self, address: int, content: bytes) -> None: ...
    def launch(self, address: int, n_bytes: int) -> Event: ...


@dataclass(frozen=True)
class Turn:
    """One random change; numbers are taken modulo what is possible.

    Attributes:
        kind: index into KINDS.
        owner, other: indices into OWNERS.
        amount: extents.
        pick: which of the possible places.
    """

    kind: int
    owner: int
    other: int
    amount: int
    pick: int


@dataclass
class Play:
    """An arena, its driver, and what must be in it.

    Attributes:
        tags: (owner, place) -> number in that extent.
    """

    arena: Arena
    driver: CardDriver
    tags: dict[tuple[VramOwner, int], int] = field(default_factory=dict)
    n_tags: int = 0
    n_done: int = 0
    n_failed: int = 0

    def __post_init__(self) -> None:
        self.addresses = {owner: self.arena.range_of(owner).address for owner in OWNERS}

    def run(self, turns: Iterable[Turn]) -> None:
        for turn in turns:
            self.take(turn)
            self.check()

    def take(self, turn: Turn) -> None:
        """Carry a turn out; if the driver fails, the model stays as it was."""
        owner, other = OWNERS[turn.owner % len(OWNERS)], OWNERS[turn.other % len(OWNERS)]
        try:
            getattr(self, f"_{KINDS[turn.kind % len(KINDS)]}")(turn, owner, other)
            self.n_done += 1
        except DriverError:
            self.n_failed += 1

    def check(self) -> None:
        """Compare the arena with the model, byte by byte where it has marks."""
        self.arena.check()
        unit = self.arena.extent_bytes
        for owner in OWNERS:
            reserved = self.arena.range_of(owner)
            assert reserved.address == self.addresses[owner]
            assert {(owner, place) for place in reserved.mapped_places()} == {
                key for key in self.tags if key[0] == owner
            }
        for (owner, place), tag in self.tags.items():
            address = self.arena.range_of(owner).place_address(place)
            want = tag.to_bytes(TAG_BYTES, "little")
            assert self.driver.read(address, TAG_BYTES) == want, (owner, place)
            assert self.driver.read(address + unit - TAG_BYTES, TAG_BYTES) == want, (owner, place)
        held = len(self.tags) * unit
        assert self.arena.held_bytes == held
        assert sum(self.arena.bytes_of(owner) for owner in OWNERS) == held
        assert held + self.arena.free_bytes == self.arena.usable_bytes
        snapshot = self.arena.snapshot()
        assert sum(part.bytes for part in snapshot.owners) + snapshot.free_bytes == (
            snapshot.usable_bytes
        )

    def _grow(self, turn: Turn, owner: VramOwner, _other: VramOwner) -> None:
        with suppress(ValueError):
            self._mark_new(owner, self.arena.grow(owner, turn.amount) or ())

    def _map(self, turn: Turn, owner: VramOwner, _other: VramOwner) -> None:
        places = self._choose(self._holes(owner), turn)
        if self.arena.map_at(owner, places):
            self._mark_new(owner, places)

    def _shrink(self, turn: Turn, owner: VramOwner, _other: VramOwner) -> None:
        own = self._own(owner)
        n_extents = min(turn.amount, len(own))
        self._work_on(owner, own)
        gone = self.arena.shrink(owner, n_extents, after=self._work_on(owner, own))
        assert list(gone) == own[len(own) - n_extents :]
        self._forget(owner, gone)

    def _unmap(self, turn: Turn, owner: VramOwner, _other: VramOwner) -> None:
        places = self._choose(self._own(owner), turn)
        self.arena.unmap_at(owner, places, after=self._work_on(owner, places))
        self._forget(owner, places)

    def _move(self, turn: Turn, owner: VramOwner, other: VramOwner) -> None:
        places = self._choose(self._own(owner), turn)
        holes = self._holes(other)[: len(places)]
        places = places[: len(holes)]
        event = self._work_on(owner, places)
        self.arena.move(owner, other, from_places=places, to_places=holes, after=event)
        self._carry((owner, places), (other, holes))

    def _lend(self, turn: Turn, owner: VramOwner, other: VramOwner) -> None:
        if owner == other:
            return
        places = self._choose(self._own(owner), turn)[: len(self._holes(other))]
        event = self._work_on(owner, places)
        loan = self.arena.lend(owner, other, places=places, after=event)
        self._carry((owner, loan.lender_places), (other, loan.borrower_places))

    def _give_back(self, turn: Turn, _owner: VramOwner, _other: VramOwner) -> None:
        if self.arena.loans:
            loan: Loan = self.arena.loans[turn.pick % len(self.arena.loans)]
            event = self._work_on(loan.borrower, loan.borrower_places)
            self.arena.give_back(loan, after=event)
            self._carry((loan.borrower, loan.borrower_places), (loan.lender, loan.lender_places))

    def _remeasure(self, _turn: Turn, _owner: VramOwner, _other: VramOwner) -> None:
        before = self.arena.held_bytes
        n_too_many = self.arena.remeasure()
        assert n_too_many >= 0
        assert self.arena.held_bytes == before
        if n_too_many:
            assert self.arena.free_bytes == 0

    def _own(self, owner: VramOwner) -> list[int]:
        borrowed = {p for x in self.arena.loans if x.borrower == owner for p in x.borrower_places}
        return sorted(p for o, p in self.tags if o == owner and p not in borrowed)

    def _holes(self, owner: VramOwner) -> list[int]:
        lent = {p for x in self.arena.loans if x.lender == owner for p in x.lender_places}
        n_places = self.arena.range_of(owner).n_places
        return [p for p in range(n_places) if (owner, p) not in self.tags and p not in lent]

    def _choose(self, places: list[int], turn: Turn) -> list[int]:
        """Some of the places, not always neighbours."""
        if not places:
            return []
        start = turn.pick % len(places)
        turned = places[start:] + places[:start]
        return sorted(turned[:: 1 + turn.pick % 2][: turn.amount])

    def _work_on(self, owner: VramOwner, places: Iterable[int]) -> Event | None:
        """Keep the card busy on the middle of these extents."""
        event = None
        unit = self.arena.extent_bytes
        for place in places:
            address = self.arena.range_of(owner).place_address(place)
            event = self.driver.launch(address + unit // 4, unit // 2)
        return event

    def _mark_new(self, owner: VramOwner, places: Iterable[int]) -> None:
        for place in places:
            self.n_tags += 1
            tag = self.n_tags.to_bytes(TAG_BYTES, "little")
            address = self.arena.range_of(owner).place_address(place)
            self.driver.write(address, tag)
            self.driver.write(address + self.arena.extent_bytes - TAG_BYTES, tag)
            self.tags[owner, place] = self.n_tags

    def _forget(self, owner: VramOwner, places: Iterable[int]) -> None:
        for place in places:
            del self.tags[owner, place]

    def _carry(
        self,
        source: tuple[VramOwner, Iterable[int]],
        target: tuple[VramOwner, Iterable[int]],
    ) -> None:
        (giver, from_places), (taker, to_places) = source, target
        tags = [self.tags.pop((giver, place)) for place in from_places]
        self.tags.update({(taker, p): tag for p, tag in zip(to_places, tags, strict=True)})
