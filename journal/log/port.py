"""The log as everybody above it sees it: one port, one contract suite, whichever store is behind (DESIGN 2, 10)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from journal.errors import JournalError
from journal.events import Event
from journal.log.unit import Answer, Changed, Side, Unit
from journal.stream import Stream


class EventLog(Protocol):
    """An append-only log of task streams."""

    @property
    def journal_id(self) -> str:
        """Random id of the journal, survives a restore."""
        ...

    @property
    def broken(self) -> JournalError | None:
        """Why nothing can be written any more; None while it can."""
        ...

    async def head(self) -> tuple[int, str]:
        """Position and hash (64 hex digits) of the last event."""
        ...

    async def read(self, task: str) -> Stream:
        """A task's stream as it is now; version 0 if no event names the task."""
        ...

    async def read_all(self, tasks: Sequence[str]) -> Sequence[Stream]:
        """`read` for many tasks, in their order, by few questions."""
        ...

    async def append(self, unit: Unit) -> Answer:
        """Append a unit by compare-and-swap on its stream's version (L3)."""
        ...

    async def events(self, *, task: str | None = None, after: int = 0, limit: int = 1000) -> Sequence[Event]:
        """Events in order: of one task after a version, or of the whole log after a position."""
        ...

    async def query(self, sql: str, parameters: Sequence[Any] = ()) -> Sequence[Any]:
        """Read rows of a projection's tables; never writes."""
        ...

    async def side(self, side: Side) -> Changed:
        """Write to a mutable side table, in the writer's own transactions."""
        ...

    def count(self, name: str, actor: str, task: str = "") -> None:
        """Count something that is no event."""
        ...

    async def close(self) -> None: ...
