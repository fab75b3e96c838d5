"""
Shows every task's status outside, read from the journal: as it changes, and again now and then (DESIGN 8).

A cursor beside the log says how far the outside was told: it stays before the first event that is still to be told, so
that what a crash or an outage kept back is told again, and the adapter makes that harmless. The slow round over open
tasks mends what somebody changed out there by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress

import structlog

from journal.errors import JournalError
from journal.events import Event
from journal.journal import Journal
from journal.log.unit import Side
from journal.words import Kind
from projections.base import ask
from projections.lookup import open_places
from recovery.outside import Outside, Status

logger = structlog.get_logger(__name__)

SCAN_S = 5.0
"""The periodic look; an event rings earlier."""

CHUNK = 1000
"""Events read at once."""

PAGE = 500

REST_S = (2.0, 300.0)
"""First and longest rest of a task whose status could not be shown; doubles."""

KEPT_US = 7 * 24 * 3600 * 1_000_000
"""How long the cursor waits for a task nobody can show, since every start begins there; open tasks are shown anyway."""

SHOWN = frozenset({
    Kind.OPENED, Kind.HEAD_CHANGED, Kind.STAGE_MOVED, Kind.PARKED, Kind.PAUSED, Kind.RESUMED, Kind.SETTLED,
    Kind.CANCELED, Kind.REOPENED, Kind.OBSERVED,
})  # fmt: skip
"""Kinds after which the outside may have to show something else."""


class Publisher:
    """A duty of the service: one place where statuses are shown."""

    def __init__(self, journal: Journal, name: str, outside: Outside, *, again_s: float) -> None:
        """
        Prepare to show.

        Args:
            journal: An open journal that drives.
            name: Of the cursor: `plane`, `gitea`.
            outside: Where to show.
            again_s: Seconds between two rounds over everything open.
        """
        self._journal, self._name, self._outside, self._again_s = journal, name, outside, again_s
        self._shown: dict[str, int] = {}  # task -> version that was shown last
        self._rests: dict[str, tuple[int, float]] = {}  # task -> times in a row, monotonic second of the next try
        self._untold: dict[str, tuple[int, int]] = {}  # task that rests -> position and time of the first event untold
        self._read: int | None = None  # how far the log was read; the cursor may stay behind
        self._marked = -1
        self._round_s: float | None = None
        self._bell = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def on_events(self, events: Sequence[Event]) -> None:
        """Called in the writer's thread after each commit."""
        if any(e.kind in SHOWN for e in events):
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._bell.set)

    async def serve(self) -> None:
        """Show until cancelled; from where the last process that did this has come to."""
        marked = await self._journal.tools.hosts.marked(f"publish.{self._name}")
        if marked:
            await self._move(marked)
        self._read, self._marked = None, -1
        while True:
            self._bell.clear()
            await self.round()
            with suppress(TimeoutError):
                async with asyncio.timeout(SCAN_S):
                    await self._bell.wait()

    async def round(self) -> None:
        """Show what changed, what failed before, and now and then everything open."""
        await self._follow()
        now_s = self._journal.clock.monotonic_s()
        await self._show(task for task, (_, due_s) in list(self._rests.items()) if due_s <= now_s)
        if self._round_s is None or now_s - self._round_s >= self._again_s:
            self._round_s = now_s
            await self._everything()
        if self._read is not None:
            await self._mark(self._read)

    async def _follow(self) -> None:
        if self._read is None:
            self._read = await self._cursor()
        while events := await self._journal.log.events(after=self._read, limit=CHUNK):
            self._read = events[-1].position
            changed: dict[str, Event] = {}
            for event in events:
                if event.task and event.kind in SHOWN:
                    changed.setdefault(event.task, event)
            await self._show(task for task in changed if task not in self._rests)
            for task in changed.keys() & self._rests.keys():
                self._untold.setdefault(task, (changed[task].position, changed[task].at))
            await self._mark(self._read)

    async def _mark(self, read: int) -> None:
        """Move the cursor, but not past what is still to be told: an ended task is in no round over open ones."""
        oldest_us = self._journal.clock.now_us() - KEPT_US
        position = min([read, *(at - 1 for at, us in self._untold.values() if us > oldest_us)])
        if position > self._marked:
            await self._move(position)
            self._marked = position

    async def _cursor(self) -> int:
        """How far the outside was told; whoever begins begins with what is open now, not with all history."""
        sql = "SELECT position FROM journal_cursors WHERE name = ?"
        rows = await self._journal.log.query(sql, (f"publish.{self._name}",))
        if rows:
            return int(rows[0][0])
        position, _ = await self._journal.log.head()
        await self._move(position)
        return position

    async def _move(self, position: int) -> None:
        await self._journal.log.side(
            Side(
                "INSERT INTO journal_cursors (name, position, changed_us) VALUES (?, ?, ?) ON CONFLICT (name) "
                "DO UPDATE SET position = max(position, excluded.position), changed_us = excluded.changed_us",
                (f"publish.{self._name}", position, self._journal.clock.now_us()),
            )
        )
        await self._journal.tools.hosts.mark(f"publish.{self._name}", position)

    async def _everything(self) -> None:
        after = 0
        while places := await ask(self._journal.log, open_places(after, PAGE)):
            after = places[-1].entered
            for place in places:
                self._shown.pop(place.task, None)  # what was shown may have been changed out there
            await self._show(place.task for place in places)

    async def _show(self, tasks: Iterable[str]) -> None:
        for task in tasks:
            try:
                shown = await self._show_one(task)
            except (JournalError, OSError):
                logger.warning("status_not_shown", task=task, where=self._name, exc_info=True)
                shown = False
            if shown:
                self._rests.pop(task, None)
                self._untold.pop(task, None)
            else:
                self._rest(task)

    async def _show_one(self, task: str) -> bool:
        stream = await self._journal.log.read(task)
        state = stream.state
        if self._shown.get(task, 0) >= stream.version:
            return True
        status = Status(stream.subject, state.stage, state.hold, stream.reason, state.epoch, stream.version)
        if not await self._outside.publish(status):
            return False
        self._shown[task] = stream.version
        if state.ended:
            self._shown.pop(task)  # nothing follows but `reopened`
        return True

    def _rest(self, task: str) -> None:
        times, _ = self._rests.get(task, (0, 0.0))
        first, longest = REST_S
        self._rests[task] = (min(times + 1, 20), self._journal.clock.monotonic_s() + min(longest, first * 2**times))
