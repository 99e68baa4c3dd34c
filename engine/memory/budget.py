"""What of the card each owner gets, planned before anything is allocated.

Pure functions over whole numbers: the same plan is printed, served, checked and carried out.
How memory is then taken and moved is `engine.memory.arena`'s; RAM is not planned here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.errors import MemoryBudgetError
from engine.memory.slots import SlotClass, divide_slots

MIB = 2**20

DEFAULT_RESERVE_BYTES = 700 * MIB
"""Left for the desktop (`--vram-reserve-mib`)."""

DEFAULT_EXTENT_BYTES = 32 * MIB
"""The driver charges by the call and not by the byte, from 2 to 64 MiB alike, so an extent is
large; much larger ones would make owners round up by too much."""


class VramOwner(StrEnum):
    """Who holds memory of the card."""

    WEIGHTS = "weights"
    KV = "kv"
    STATE = "state"
    WORKSPACE = "workspace"
    EXPERTS = "experts"


class VramBound(StrEnum):
    """Which limit the plan runs into."""

    NOTHING = "nothing"
    CARD = "card"
    LIMIT = "vram-limit"


@dataclass(frozen=True, kw_only=True, slots=True)
class VramModel:
    """What a model needs of the card.

    Attributes:
        weights_bytes: every tensor that stays on the card, experts not counted.
        kv_cell_bytes: K and V of all layers of one position, index keys included.
        state_lane_bytes: recurrent state of one lane; 0 = none.
        expert_blob_bytes: size of one expert, for each layer; 0 = a layer without experts.
        n_experts: experts of a layer; 0 = a dense model.
    """

    weights_bytes: int
    kv_cell_bytes: int
    state_lane_bytes: int = 0
    expert_blob_bytes: tuple[int, ...] = ()
    n_experts: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class VramDemand:
    """How the model is to be run.

    Attributes:
        n_lanes: rows of the batch.
        kv_cells: cells with memory from the start: whole chunks, the trash chunk included.
        kv_max_cells: cells that may ever have memory; None = kv_cells.
        workspace_bytes: scratch memory of a step.
        workspace_max_bytes: with what a prompt may borrow; None = workspace_bytes.
        needs_all_experts: refuse if a single expert has no slot.
    """

    n_lanes: int
    kv_cells: int
    kv_max_cells: int | None = None
    workspace_bytes: int
    workspace_max_bytes: int | None = None
    needs_all_experts: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class VramLimits:
    """What the card gives.

    Attributes:
        total_bytes: of the card.
        free_bytes: nobody holds it now.
        limit_bytes: the card is treated as one of this size (`--vram-limit-mib`); None = as is.
        reserve_bytes: stays free, for the desktop (`--vram-reserve-mib`).
        extent_bytes: unit in which owners get memory.
    """

    total_bytes: int
    free_bytes: int
    limit_bytes: int | None = None
    reserve_bytes: int = DEFAULT_RESERVE_BYTES
    extent_bytes: int = DEFAULT_EXTENT_BYTES

    @property
    def card_bytes(self) -> int:
        """Size the card is treated as."""
        if self.limit_bytes is None:
            return self.total_bytes
        return min(self.total_bytes, self.limit_bytes)

    def usable_bytes(self, held_bytes: int = 0) -> int:
        """Return what owners may hold together, in whole extents.

        What others hold (the desktop, the driver's own context) counts against a smaller card too.

        Args:
            held_bytes: what owners hold already.
        """
        others_bytes = self.total_bytes - self.free_bytes - held_bytes
        usable = max(0, self.card_bytes - others_bytes - self.reserve_bytes)
        return usable // self.extent_bytes * self.extent_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnerPlan:
    """One owner's part.

    Attributes:
        owner: who.
        wanted_bytes: what is put there, before rounding.
        n_extents: extents at start.
        n_places: extents it may ever hold: the size of its range.
    """

    owner: VramOwner
    wanted_bytes: int
    n_extents: int
    n_places: int


@dataclass(frozen=True, kw_only=True, slots=True)
class VramPlan:
    """The card, divided. `held_bytes` + `free_bytes` = `usable_bytes`.

    Attributes:
        limits: what it was planned for.
        usable_bytes: what owners may hold together.
        owners: their parts, in the order of `VramOwner`.
        slot_classes: slots for experts, by size.
        bound: what keeps the expert cache (or the model) from being larger.
    """

    limits: VramLimits
    usable_bytes: int
    owners: tuple[OwnerPlan, ...]
    slot_classes: tuple[SlotClass, ...]
    bound: VramBound

    def of(self, owner: VramOwner) -> OwnerPlan:
        """Return an owner's part."""
        return next(part for part in self.owners if part.owner == owner)

    def bytes_of(self, owner: VramOwner) -> int:
        """Return the bytes an owner holds at start, in whole extents."""
        return self.of(owner).n_extents * self.limits.extent_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes of all owners."""
        return sum(part.n_extents for part in self.owners) * self.limits.extent_bytes

    @property
    def free_bytes(self) -> int:
        """Usable bytes that no owner needs."""
        return self.usable_bytes - self.held_bytes

    @property
    def n_slots(self) -> int:
        """Experts that fit."""
        return sum(part.n_slots for part in self.slot_classes)

    @property
    def n_experts(self) -> int:
        """Experts of all layers."""
        return sum(part.n_experts for part in self.slot_classes)

    @property
    def lost_bytes(self) -> int:
        """Bytes of the expert cache that hold no expert: less than a slot a class, and padding."""
        return sum(part.lost_bytes for part in self.slot_classes)

    @property
    def places(self) -> dict[VramOwner, int]:
        """Size of each owner's range, for the arena."""
        return {part.owner: part.n_places for part in self.owners}

    @property
    def expert_places(self) -> tuple[int, ...]:
        """Places of the experts' range that have memory at start."""
        return tuple(
            place
            for part in self.slot_classes
            for place in range(part.first_place, part.first_place + part.n_extents)
        )


def plan_vram(model: VramModel, demand: VramDemand, *, limits: VramLimits) -> VramPlan:
    """Divide the card: weights, state, workspace and K/V first, experts get what is left.

    Args:
        model: what it needs.
        demand: how it is to be run.
        limits: what the card gives.

    Raises:
        MemoryBudgetError: it does not fit, even with no expert on the card (or, if all are needed,
            with all of them); says what is needed, what is there and what would fit.
    """
    usable = limits.usable_bytes()
    kv_max_cells = max(demand.kv_cells, demand.kv_max_cells or 0)
    wanted = {
        VramOwner.WEIGHTS: model.weights_bytes,
        VramOwner.KV: demand.kv_cells * model.kv_cell_bytes,
        VramOwner.STATE: demand.n_lanes * model.state_lane_bytes,
        VramOwner.WORKSPACE: demand.workspace_bytes,
    }
    extents = {owner: -(-n_bytes // limits.extent_bytes) for owner, n_bytes in wanted.items()}
    kv_places = -(-kv_max_cells * model.kv_cell_bytes // limits.extent_bytes)
    n_left = usable // limits.extent_bytes - sum(extents.values())
    n_left_at_most_kv = n_left - (kv_places - extents[VramOwner.KV])
    classes = divide_slots(
        model.expert_blob_bytes,
        n_experts=model.n_experts,
        n_extents=max(0, n_left),
        extent_bytes=limits.extent_bytes,
    )
    expert_places = sum(part.n_places for part in classes)
    n_expert_extents = sum(part.n_extents for part in classes)
    n_lacking = (expert_places if demand.needs_all_experts else 0) - n_left_at_most_kv
    if n_lacking > 0:
        experts_bytes = expert_places * limits.extent_bytes if demand.needs_all_experts else 0
        wanted[VramOwner.KV] = kv_max_cells * model.kv_cell_bytes
        raise _refusal(
            wanted | {VramOwner.EXPERTS: experts_bytes},
            n_lacking=n_lacking,
            kv=(kv_max_cells, model.kv_cell_bytes),
            limits=limits,
        )
    workspace_places = -(-(demand.workspace_max_bytes or 0) // limits.extent_bytes)
    places = extents | {
        VramOwner.KV: kv_places,
        VramOwner.WORKSPACE: max(extents[VramOwner.WORKSPACE], workspace_places),
    }
    parts = [
        OwnerPlan(
            owner=owner,
            wanted_bytes=wanted[owner],
            n_extents=extents[owner],
            n_places=places[owner],
        )
        for owner in wanted
    ]
    parts.append(
        OwnerPlan(
            owner=VramOwner.EXPERTS,
            wanted_bytes=sum(part.n_slots * part.blob_bytes for part in classes),
            n_extents=n_expert_extents,
            n_places=expert_places,
        )
    )
    return VramPlan(
        limits=limits,
        usable_bytes=usable,
        owners=tuple(parts),
        slot_classes=classes,
        bound=VramBound.NOTHING if n_expert_extents == expert_places else _bound(limits),
    )


def _bound(limits: VramLimits) -> VramBound:
    return VramBound.LIMIT if limits.card_bytes < limits.total_bytes else VramBound.CARD


def _refusal(
    wanted: dict[VramOwner, int], *, n_lacking: int, kv: tuple[int, int], limits: VramLimits
) -> MemoryBudgetError:
    """Say what is needed, what is there, and what to do."""
    kv_cells, kv_cell_bytes = kv
    names = {VramOwner.KV: f"K/V of {kv_cells} cells"}
    needs = ", ".join(
        f"{names.get(owner, owner.value)} {_mib(n_bytes)}"
        for owner, n_bytes in wanted.items()
        if n_bytes
    )
    n_extents = limits.usable_bytes() // limits.extent_bytes + n_lacking
    card = f"the card has {_mib(limits.total_bytes)}, {_mib(limits.free_bytes)} of it free"
    if _bound(limits) == VramBound.LIMIT:
        card += f", and --vram-limit-mib treats it as one of {_mib(limits.card_bytes)}"
    message = (
        f"The model does not fit: it needs {_mib(n_extents * limits.extent_bytes)} of VRAM "
        f"({needs}; in pieces of {_mib(limits.extent_bytes)}), and "
        f"{_mib(limits.usable_bytes())} can be used: {card}, and {_mib(limits.reserve_bytes)} stay "
        f"free for the desktop. {_mib(n_lacking * limits.extent_bytes)} are lacking. "
    )
    lacking_bytes = n_lacking * limits.extent_bytes
    cells_too_many = -(-lacking_bytes // kv_cell_bytes) if kv_cell_bytes else kv_cells
    if cells_too_many < kv_cells:
        advice = (
            f"It fits with {kv_cells - cells_too_many} K/V cells or fewer: use a smaller "
            "--max-context, --kv-pool-tokens or --batch, or close programs that use the card."
        )
    else:
        advice = (
            "A shorter context alone would not do: close programs that use the card, or choose a "
            "smaller model or quantization."
        )
    return MemoryBudgetError(message + advice, limit="vram")


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / MIB:,.0f} MiB" if n_bytes >= MIB else f"{n_bytes:,} bytes"
