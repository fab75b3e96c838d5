"""
The reconciler: what should have been driven and was not, and what the outside knows that no webhook told (DESIGN 8).

It looks slowly and at everything open; each look is the same as any notice would cause. It defers to owners and to
people, and drives nothing itself: it asks for a run under its own name (FR-1 "F-1", FR-5).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from journal.errors import JournalError
from journal.journal import Journal
from journal.pipeline import Edge
from projections.base import ask
from projections.lookup import Place, open_places
from recovery.attention import POLLING, Attention, Looked
from recovery.jobs import Jobs, JobState
from recovery.runs import Runs, Submit

logger = structlog.get_logger(__name__)

SCAN_S = 5.0
"""Between two looks for edges that nobody took."""

MISSED_US = 60_000_000
"""How long an `auto` edge may stand untaken before it counts as missed; the dispatcher looks every second."""

REST_S = (5.0, 300.0)
"""First and longest rest of an edge that was tried and not taken; doubles."""

PAGE = 500
"""Open tasks read at once."""

POLLED_AT_ONCE = 4
"""Tasks about which the outside is asked at the same time."""

AT_ONCE = 2
"""Runs of the reconciler's own at the same time; the rest waits for the next look."""


class Reconciler:
    """A duty of the service."""

    def __init__(self, journal: Journal, jobs: Jobs, attention: Attention, *, submit: Submit, poll_s: float) -> None:
        """
        Prepare to look.

        Args:
            journal: An open journal that drives.
            jobs: The worker's queue.
            attention: Looks at one task because of the outside.
            submit: Asks for a run.
            poll_s: Seconds between two polls of forge and tracker: what a lost webhook costs.
        """
        self._journal, self._jobs, self._attention = journal, jobs, attention
        self.runs, self._poll_s = Runs("reconciler", submit, at_once=AT_ONCE), poll_s
        self._polled_s: float | None = None
        self._rests: dict[str, tuple[int, float]] = {}  # task -> times in a row, monotonic second of the next try

    def hint(self, task: str) -> None:
        """Look at a task soon, whatever rest it was given."""
        self._rests.pop(task, None)

    async def serve(self) -> None:
        """Look until cancelled."""
        try:
            while True:
                await self.round()
                await self._journal.clock.sleep(min(SCAN_S, self._poll_s))
        finally:
            await self.runs.end()

    async def round(self) -> None:
        """One look at every open task, and now and then at the outside."""
        now_s = self._journal.clock.monotonic_s()
        polls = self._polled_s is None or now_s - self._polled_s >= self._poll_s
        if polls:
            self._polled_s = now_s
        after = 0
        while places := await ask(self._journal.log, open_places(after, PAGE)):
            after = places[-1].entered
            await self._take_missed(places)
            if polls:
                minds = self._journal.tools.hosts.minds
                await self.poll([place.task for place in places if not place.hold and minds(place.task)])

    # -- F-1: the gate passed, and nobody advanced --------------------------------------------------------------------

    async def _take_missed(self, places: Sequence[Place]) -> None:
        missed = await self._missed(places)
        if not missed:
            return
        lanes = dict(await self._journal.log.query("SELECT lane, task FROM journal_lanes"))
        for place, edge in missed:
            stream = await self._journal.log.read(place.task)
            if not await self._journal.mine(stream):
                continue
            lane = self._journal.pipeline.lane_of(edge, stream.subject)
            if lanes.get(lane, place.task) != place.task:
                continue  # it waits its turn
            if self._journal.locks.is_held(place.task):
                self._journal.log.count("deferred", "reconciler", place.task)
                continue
            if self.runs.start(place.task, "missed edge", expect=place.stage):
                self._rest(place.task)
                self._journal.log.count("missed_edge", "reconciler", place.task)

    async def _missed(self, places: Sequence[Place]) -> Sequence[tuple[Place, Edge]]:
        now_us = self._journal.clock.now_us()
        free = [p for p in places if not (p.hold or p.owned or p.begun) and p.look_us <= now_us]
        edges = [(p, edge) for p in free if (edge := self._journal.pipeline.edge(p.stage))]
        jobs = await self._jobs.by_entry(p.entered for p, edge in edges if edge.advance == "job")
        now_s = self._journal.clock.monotonic_s()
        return [
            (p, edge)
            for p, edge in edges
            if self._rests.get(p.task, (0, 0.0))[1] <= now_s
            and (
                (edge.advance == "auto" and now_us - max(p.entered_us, p.look_us) > MISSED_US)
                or (edge.advance == "job" and p.entered in jobs and jobs[p.entered].state is JobState.DONE)
            )
        ]

    def _rest(self, task: str) -> None:
        """A gate that stays closed is asked less and less often."""
        times, _ = self._rests.get(task, (0, 0.0))
        first, longest = REST_S
        now_s = self._journal.clock.monotonic_s()
        self._rests = {t: r for t, r in self._rests.items() if r[1] > now_s - 2 * longest}
        self._rests[task] = (min(times + 1, 20), now_s + min(longest, first * 2**times))

    # -- the outside --------------------------------------------------------------------------------------------------

    async def poll(self, tasks: Sequence[str]) -> None:
        """Ask the outside about tasks; what cannot be asked now is asked the next time."""
        asked = asyncio.Semaphore(POLLED_AT_ONCE)

        async def one(task: str) -> None:
            async with asked:
                try:
                    looked = await self._attention.look(task, POLLING)
                except (JournalError, OSError):
                    logger.warning("poll_failed", task=task, exc_info=True)
                    return
            if looked in (Looked.NEW_HEAD, Looked.ADVANCED):
                # No webhook had told of it: a stream that fell silent shows in this count (R73).
                self._journal.log.count("found_by_polling", "reconciler", task)

        await asyncio.gather(*(one(task) for task in tasks))
