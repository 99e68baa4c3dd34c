"""Which extents are lent to another owner, and which places wait for their return.

Only owners and places live here; `engine.memory.arena` moves the memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.memory.budget import VramOwner


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Loan:
    """Extents of one owner that another one uses for a while.

    Attributes:
        lender: whose they are.
        lender_places: where they came from and go back to, in ascending order.
        borrower: who uses them.
        borrower_places: where they are meanwhile, in the same order.
    """

    lender: VramOwner
    lender_places: tuple[int, ...]
    borrower: VramOwner
    borrower_places: tuple[int, ...]


class Loans:
    """The loans that stand."""

    def __init__(self) -> None:
        self._standing: list[Loan] = []

    @property
    def standing(self) -> tuple[Loan, ...]:
        """Loans not given back, oldest first."""
        return tuple(self._standing)

    def begin(self, loan: Loan) -> None:
        """Note a loan."""
        self._standing.append(loan)

    def end(self, loan: Loan) -> None:
        """Strike a loan out."""
        self._standing.remove(loan)

    def clear(self) -> None:
        """Strike all loans out."""
        self._standing.clear()

    def lent_places(self, owner: VramOwner) -> set[int]:
        """Return the owner's places that wait for a lent extent."""
        return {p for loan in self._standing if loan.lender == owner for p in loan.lender_places}

    def borrowed_places(self, owner: VramOwner) -> set[int]:
        """Return the owner's places whose extent is borrowed."""
        return {
            p for loan in self._standing if loan.borrower == owner for p in loan.borrower_places
        }
