"""What a run asks about hosts before it drives, and the answers where there is only one (M1, M2)."""

from __future__ import annotations

from collections.abc import Callable
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

    async def wanted(self, task: str, owner: Owner | None) -> bool:
        """
        Whether a task is ours to look after by ourselves, so that hosts do not race for each.

        Only economy: two may believe it, and whoever asks in person is served on any host.

        Args:
            task: Its id.
            owner: Whoever owns it or has left an attempt in doubt; None = nobody.
        """
        ...

    def minds(self, task: str) -> bool:
        """The same for what is no ownership: one living process minds each task, as long as all hear of each other."""
        ...

    def leads(self) -> bool:
        """Whether duties that only one process should do are ours now; nothing may be unsafe if two believe it."""
        ...

    def lives(self, instance: str) -> bool:
        """Whether a process on another ground was heard of lately: for showing."""
        ...

    async def marked(self, name: str) -> int:
        """
        How far any process has come with a single duty; 0 = none ever.

        Raises:
            StoreUnavailableError: Nobody can be asked.
        """
        ...

    async def mark(self, name: str, position: int) -> None:
        """
        Say how far we have come, for whoever leads next.

        Raises:
            StoreUnavailableError: It is not said; whoever leads next does some of it again.
        """
        ...


class Membership(Hosts, Protocol):
    """A process's place among hosts, taken and given back."""

    async def start(self) -> None: ...

    async def close(self, said: str) -> None: ...


Join = Callable[[Owner, str, Callable[[], None]], Membership]
"""(this process, its ground, whom to tell when we may no longer act): makes a place among hosts."""


class Alone:
    """One machine: the file lock is everything there is to know (DESIGN 5)."""

    def refusal(self) -> str:
        return ""

    async def standing(self, owner: Owner) -> Standing:
        """Who holds the lock knows that its last holder and the holder's children are gone."""
        return Standing.GONE

    async def wanted(self, task: str, owner: Owner | None) -> bool:
        return True

    def minds(self, task: str) -> bool:
        return True

    def leads(self) -> bool:
        return True

    def lives(self, instance: str) -> bool:
        """There is no other ground."""
        return False

    async def marked(self, name: str) -> int:
        """What was done here stands in our own cursors."""
        return 0

    async def mark(self, name: str, position: int) -> None:
        """Nobody else wants to know."""


ALONE = Alone()
