"""
Works off the inbox: finds the tasks a notice may concern, and looks at each of them once (DESIGN 8).

A notice about a task that somebody drives stays in the inbox until the task is released; it is counted once as a
deferral and consumed then. A notice that cannot be acted upon is given up after some tries: polling reaches the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import structlog

from journal.errors import JournalError
from journal.events import Event
from journal.journal import Journal
from journal.words import Kind
from projections.base import ask
from projections.lookup import about
from recovery.attention import Attention, Looked
from recovery.inbox import Inbox, Letter

logger = structlog.get_logger(__name__)

SCAN_S = 2.0
"""The periodic look; the bell rings earlier."""

TAKEN = 200
"""Notices taken from the pile at once."""

REST_S = (0.5, 60.0)
"""First and longest rest of a notice that could not be acted upon; doubles."""

UNLOCKED_S = 0.2
"""After a release, until the lock that is given back behind it is free for sure."""

MAX_TRIES = 8
"""Then it is left to polling."""

TIDY_S = 3600.0


class HintHandler:
    """A duty of the service."""

    def __init__(self, journal: Journal, inbox: Inbox, attention: Attention) -> None:
        self._journal, self._inbox, self._attention = journal, inbox, attention
        self._waiting: dict[str, list[Letter]] = {}  # task that somebody drives -> notices that wait for its release
        self._released: set[str] = set()
        self._met: set[str] = set()  # tasks of this round whose deferral was counted before
        self._loop = asyncio.get_running_loop()
        self._tidied_s = 0.0

    def on_events(self, events: Sequence[Event]) -> None:
        """Called in the writer's thread after each commit."""
        tasks = {e.task for e in events if e.kind in _ENDS}
        if tasks:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._free, tasks)

    def _free(self, tasks: set[str]) -> None:
        for task in tasks & self._waiting.keys():
            self._loop.call_later(UNLOCKED_S, self._look_again, task)

    def _look_again(self, task: str) -> None:
        self._released.add(task)
        self._inbox.bell.set()

    async def serve(self) -> None:
        """Work until cancelled."""
        while True:
            self._inbox.bell.clear()
            await self.round()
            with suppress(TimeoutError):
                async with asyncio.timeout(SCAN_S):
                    await self._inbox.bell.wait()

    async def round(self) -> None:
        """Handle what is due, each task once however many notices name it."""
        by_task: dict[str, list[Letter]] = {}
        waiting = {letter.id for letters in self._waiting.values() for letter in letters}
        for letter in await self._inbox.due(TAKEN):
            if letter.id in waiting:
                continue
            tasks = await self._concerned(letter)
            if not tasks:
                await self._inbox.handled([letter.id], "concerns no open task")
            for task in tasks:
                by_task.setdefault(task, []).append(letter)
        released, self._released = self._released, set()
        for task in released & self._waiting.keys():
            by_task.setdefault(task, []).extend(self._waiting.pop(task))
            self._met.add(task)
        for task, letters in by_task.items():
            await self._handle(task, letters)
        self._met.clear()
        await self._tidy()

    async def _concerned(self, letter: Letter) -> tuple[str, ...]:
        hint = letter.hint
        if hint.task:
            known = (await self._journal.log.read(hint.task)).version
            return (hint.task,) if known else ()
        if not hint.repo:
            return ()
        return await ask(self._journal.log, about(hint.repo, hint.branch, hint.pr, hint.head))

    async def _handle(self, task: str, letters: Sequence[Letter]) -> None:
        ids = [letter.id for letter in letters]
        try:
            looked = await self._attention.look(task, letters[0].source, counted=task in self._met)
        except (JournalError, OSError):
            logger.warning("hint_failed", task=task, exc_info=True)
            looked = Looked.UNKNOWN
        logger.info("hint_handled", task=task, source=letters[0].source, notices=len(ids), looked=str(looked))
        if looked is Looked.DEFERRED:
            # Again at the release, or after a while: the release may be a death that nobody announces.
            self._waiting[task] = [*self._waiting.get(task, []), *letters]
            await self._inbox.later(ids, after_s=REST_S[1], tried=0, note=looked)
            self._loop.call_later(REST_S[1], self._look_again, task)
        elif looked is Looked.UNKNOWN:
            await self._again(letters)
        else:
            await self._inbox.handled(ids, looked)

    async def _again(self, letters: Sequence[Letter]) -> None:
        for letter in letters:
            if letter.tries + 1 >= MAX_TRIES:
                await self._inbox.handled([letter.id], f"given up after {MAX_TRIES} tries; left to polling")
            else:
                first, longest = REST_S
                rest_s = min(longest, first * 2**letter.tries)
                await self._inbox.later([letter.id], after_s=rest_s, tried=1, note=Looked.UNKNOWN)

    async def _tidy(self) -> None:
        now_s = self._journal.clock.monotonic_s()
        if not self._tidied_s or now_s - self._tidied_s > TIDY_S:
            self._tidied_s = now_s
            await self._inbox.forget_old()


_ENDS = frozenset({Kind.RELEASED, Kind.PAUSED, Kind.CANCELED, Kind.RESUMED, Kind.SETTLED})
