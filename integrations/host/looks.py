"""
Goes on with what nobody waits for: terms without an end, doubts, looks that are due (DC-3, O1).

The host's own worker asks for every transition; this only takes up again what was left in the middle. It decides
nothing: `Journal.advance` does, under the task's lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from integrations.host.config import Scope
from journal.journal import Journal
from journal.results import Advanced, Result, RolledBack
from projections.base import ask
from projections.queue import due_tasks

logger = structlog.get_logger(__name__)

LOOK_S = 1.0
SCANNED = 200
AT_ONCE = 4
REST_S = (1.0, 60.0)
"""First and longest rest of a task that did not move; doubles."""


class Looks:
    """A duty of the bridge."""

    def __init__(self, journal: Journal, scope: Scope, moved: Callable[[str, str], None]) -> None:
        self._journal, self._scope, self._moved = journal, scope, moved
        self._rests: dict[str, tuple[int, float]] = {}  # task -> times in a row, monotonic second of the next try

    async def serve(self) -> None:
        """Look until cancelled; the journal ends the runs when it closes."""
        while True:
            await self.round()
            await self._journal.clock.sleep(LOOK_S)

    async def round(self, actor: str = "worker") -> None:
        """Take up everything that is due, a few at a time."""
        journal, now_s = self._journal, self._journal.clock.monotonic_s()
        due = await ask(journal.log, due_tasks(journal.clock.now_us(), SCANNED, stages=()))
        wanted = [d.task for d in due if self._scope.takes(d.repo) and self._rests.get(d.task, (0, 0.0))[1] <= now_s]
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(task: str) -> None:
            async with turns:
                self._take(task, await journal.advance(task, actor=actor))

        async with asyncio.TaskGroup() as runs:
            for task in wanted:
                runs.create_task(one(task), name=f"look {task}")

    def _take(self, task: str, result: Result) -> None:
        logger.info("looked_again", task=task, result=type(result).__name__)
        match result:
            case Advanced(to_stage=stage) | RolledBack(to_stage=stage):
                self._rests.pop(task, None)
                self._moved(task, stage)
            case _:
                times, _ = self._rests.get(task, (0, 0.0))
                first, longest = REST_S
                now_s = self._journal.clock.monotonic_s()
                self._rests = {t: r for t, r in self._rests.items() if r[1] > now_s - 2 * longest}
                self._rests[task] = (min(times + 1, 20), now_s + min(longest, first * 2**times))
