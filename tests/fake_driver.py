"""A driver without a card: keeps the bytes of every extent and forbids what the real one forbids.

The real driver answers a wrong call with an error, or worse, takes it and lets a kernel fault
later. Here every wrong call raises `Misuse`, which no code under test may catch. Failures of the
driver itself are ordered by call number (`fail_at`) or come from a card that is full.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.memory.vmm import CardMemory, DriverError, Event, Handle

GUARD_BYTES = 4096
"""Unreserved addresses between reservations, so that running over an end is seen."""


class Misuse(AssertionError):
    """A call that is a bug of the caller."""


@dataclass
class Mapped:
    n_bytes: int
    handle: Handle
    has_access: bool = False


@dataclass(frozen=True)
class Work:
    address: int
    n_bytes: int


class FakeDriver:
    """Keeps reservations, memory, mappings and unfinished work.

    Attributes:
        calls: every call in order, as (name, arguments).
        fail_at: number of the call (0 = the first ever) that fails; None = none.
        fail_from: this call and all later ones fail; None = none.
        fail_code: what the failing call answers.
        foreign_bytes: what other programs hold of the card.
    """

    def __init__(self, *, total_bytes: int = 1 << 20, granularity_bytes: int = 16) -> None:
        self.granularity_bytes = granularity_bytes
        self.total_bytes = total_bytes
        self.foreign_bytes = 0
        self.calls: list[tuple[str, tuple[int, ...]]] = []
        self.fail_at: int | None = None
        self.fail_from: int | None = None
        self.fail_code = "CUDA_ERROR_UNKNOWN"
        self._reserved: dict[int, int] = {}
        self._memory: dict[Handle, bytearray] = {}
        self._mapped: dict[int, Mapped] = {}
        self._pending: dict[Event, Work] = {}
        self._n_events = 0
        self._n_handles = 0
        self._next_address = 1 << 32

    # What the engine calls.

    def reserve(self, n_bytes: int) -> int:
        self._aligned(n_bytes)
        self._begin("reserve", n_bytes)
        address = self._next_address
        self._next_address += n_bytes + GUARD_BYTES
        self._reserved[address] = n_bytes
        return address

    def free(self, address: int, n_bytes: int) -> None:
        if self._reserved.get(address) != n_bytes:
            raise Misuse(f"free({address:#x}, {n_bytes}) is not exactly a reservation")
        if any(address <= start < address + n_bytes for start in self._mapped):
            raise Misuse(f"free({address:#x}) with memory still mapped there")
        self._begin("free", address, n_bytes)
        del self._reserved[address]

    def create(self, n_bytes: int) -> Handle:
        self._aligned(n_bytes)
        self._begin("create", n_bytes)
        if n_bytes > self.card_memory().free_bytes:
            raise DriverError(
                call="cuMemCreate", code_name="CUDA_ERROR_OUT_OF_MEMORY", tried="faking"
            )
        self._n_handles += 1
        handle = Handle(self._n_handles)
        self._memory[handle] = bytearray(b"\xcd" * n_bytes)  # nobody may count on zeros
        return handle

    def release(self, handle: Handle) -> None:
        self._known(handle)
        if any(mapped.handle == handle for mapped in self._mapped.values()):
            raise Misuse(f"release({handle}) while it is mapped")
        self._begin("release", handle)
        del self._memory[handle]

    def map(self, address: int, n_bytes: int, handle: Handle) -> None:
        self._aligned(address, n_bytes)
        self._known(handle)
        if n_bytes != len(self._memory[handle]):
            raise Misuse(f"map of {n_bytes} bytes of {handle}, not the whole of it")
        if not any(
            start <= address and address + n_bytes <= start + length
            for start, length in self._reserved.items()
        ):
            raise Misuse(f"map({address:#x}, {n_bytes}) outside a reservation")
        if any(
            start < address + n_bytes and address < start + mapped.n_bytes
            for start, mapped in self._mapped.items()
        ):
            raise Misuse(f"map({address:#x}) where something is mapped already")
        self._begin("map", address, n_bytes, handle)
        self._mapped[address] = Mapped(n_bytes, handle)

    def unmap(self, address: int, n_bytes: int) -> None:
        mapped = self._mapped.get(address)
        if mapped is None or mapped.n_bytes != n_bytes:
            raise Misuse(f"unmap({address:#x}, {n_bytes}) is not exactly a mapping")
        for event, work in self._pending.items():
            if work.address < address + n_bytes and address < work.address + work.n_bytes:
                raise Misuse(f"unmap({address:#x}) while work before event {event} uses it")
        self._begin("unmap", address, n_bytes)
        del self._mapped[address]

    def set_access(self, address: int, n_bytes: int) -> None:
        covered = self._covering(address, n_bytes)
        self._begin("set_access", address, n_bytes)
        for mapped in covered:
            mapped.has_access = True

    def wait(self, event: Event) -> None:
        if not 0 < event <= self._n_events:
            raise Misuse(f"wait for event {event}, which was never recorded")
        self._begin("wait", event)
        self._pending = {e: work for e, work in self._pending.items() if e > event}

    def synchronize(self) -> None:
        self._begin("synchronize")
        self._pending.clear()

    def card_memory(self) -> CardMemory:
        held = sum(len(memory) for memory in self._memory.values())
        free = max(0, self.total_bytes - self.foreign_bytes - held)
        return CardMemory(free_bytes=free, total_bytes=self.total_bytes)

    # What tests call: the card's side.

    def write(self, address: int, content: bytes) -> None:
        memory, offset = self._reach(address, len(content))
        memory[offset : offset + len(content)] = content

    def read(self, address: int, n_bytes: int) -> bytes:
        memory, offset = self._reach(address, n_bytes)
        return bytes(memory[offset : offset + n_bytes])

    def launch(self, address: int, n_bytes: int) -> Event:
        """Begin work on these bytes; waiting for its event, or a later one, ends it."""
        for mapped in self._covering(address, n_bytes):
            if not mapped.has_access:
                raise Misuse(f"work on {address:#x} without access")
        self._n_events += 1
        event = Event(self._n_events)
        self._pending[event] = Work(address, n_bytes)
        return event

    def assert_settled(self) -> None:
        """Between two changes no memory has two addresses, and all that is mapped is usable."""
        handles = [mapped.handle for mapped in self._mapped.values()]
        assert len(set(handles)) == len(handles), "memory with two addresses"
        assert all(mapped.has_access for mapped in self._mapped.values()), "no access"

    def assert_clean(self) -> None:
        """Nothing is left behind."""
        assert not self._mapped, f"still mapped: {self._mapped}"
        assert not self._memory, f"never released: {sorted(self._memory)}"
        assert not self._reserved, f"addresses never given back: {self._reserved}"

    @property
    def n_extents(self) -> int:
        return len(self._memory)

    def names(self, since: int = 0) -> list[str]:
        """Names of the calls from a number on."""
        return [name for name, _ in self.calls[since:]]

    def _begin(self, name: str, *args: int) -> None:
        number = len(self.calls)
        self.calls.append((name, args))
        fails_on = self.fail_from is not None and number >= self.fail_from
        if number == self.fail_at or fails_on:
            raise DriverError(call=name, code_name=self.fail_code, tried="being told to fail")

    def _aligned(self, *numbers: int) -> None:
        for number in numbers:
            if number <= 0 or number % self.granularity_bytes:
                raise Misuse(f"{number} is no multiple of {self.granularity_bytes}")

    def _known(self, handle: Handle) -> None:
        if handle not in self._memory:
            raise Misuse(f"{handle} is no memory (any more)")

    def _covering(self, address: int, n_bytes: int) -> list[Mapped]:
        """Mappings that cover a run of bytes without a gap."""
        found, at = [], address
        for start, mapped in sorted(self._mapped.items()):
            if start <= at < start + mapped.n_bytes and at < address + n_bytes:
                found.append(mapped)
                at = start + mapped.n_bytes
        if at < address + n_bytes:
            raise Misuse(f"{n_bytes} bytes at {address:#x} are not all mapped")
        return found

    def _reach(self, address: int, n_bytes: int) -> tuple[bytearray, int]:
        for start, mapped in self._mapped.items():
            if start <= address and address + n_bytes <= start + mapped.n_bytes:
                if not mapped.has_access:
                    raise Misuse(f"{address:#x} touched without access")
                return self._memory[mapped.handle], address - start
        raise Misuse(f"{n_bytes} bytes at {address:#x} are not mapped in one piece")
