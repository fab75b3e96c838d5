"""What a run asks about hosts before it drives, and the answers where there is only one (M1, M2)."""

from __future__ import annotations

from typing import Protocol

from journal.events import Owner
from journal.words import Standing


class Hosts(Protocol):
    """The processes that share a journal, as one of them sees the others."""

    def refusal(self) -> str:
        """Why no effect may begin here now; "" = it may. Asked right before each effect; reads our own clock only."""
        ...

    async def standing(self, owner: Owner) -> Standing:
        """
        How sure it is that nothing of an owner is left.

        Asked by whoever holds the task's file lock here, so an owner that shares our locks is gone for certain, its
        children included.
        """
        ...

    def leads(self) -> bool:
        """Whether duties that only one process should do are ours now; nothing may be unsafe if two believe it."""
        ...


class Alone:
    """One machine: the file lock is everything there is to know (DESIGN 5)."""

    def refusal(self) -> str:
        return ""

    async def standing(self, owner: Owner) -> Standing:
        """Who holds the lock knows that its last holder and the holder's children are gone."""
        return Standing.GONE

    def leads(self) -> bool:
        return True
