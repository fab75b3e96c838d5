"""
The small loop that advances what is due: free tasks whose edge is `auto`, and whatever somebody left in the middle.

Hints wake it (an event was written, a lane fell free, a wait is over); a periodic scan makes sure that no lost hint
costs more than its period. It decides nothing: `advance_stage` does, under the task's lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import structlog

from journal import Journal
from journal.events import Event
from journal.pipeline import Pipeline
from journal.results import Advanced, Deferred, LostRace, Refused, Result, RolledBack, Unavailable
from journal.stream import Stream
from journal.words import Hold, Kind
from projections.base import ask
from projections.queue import due_tasks

logger = structlog.get_logger(__name__)

SCAN_S = 1.0
"""The periodic scan."""

SCANNED = 200
"""Due tasks looked at in one round, oldest stage entry first."""

REST_S = (0.2, 30.0)
"""First and longest rest of a task that was deferred or refused; doubles."""


class Dispatcher:
    """Runs `advance_stage` for due tasks, at most `parallel` at once, one per lane, oldest first."""

    def __init__(self, journal: Journal, *, parallel: int = 8) -> None:
        self._journal, self._parallel = journal, parallel
        self._runs: dict[str, asyncio.Task[Result]] = {}
        self._rests: dict[str, tuple[int, float]] = {}  # task -> times in a row, monotonic second of the next try
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._closing = False
        self._auto = tuple(e.source for e in journal.pipeline.edges if e.advance == "auto")
        self.startup: set[str] = set()  # tasks to be taken up under the name `startup`

    # -- hints --------------------------------------------------------------------------------------------------------

    def on_events(self, events: Sequence[Event]) -> None:
        """Called in the writer's thread after each commit."""
        if any(e.kind in _HINTS for e in events):
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake.set)

    def hint(self, task: str) -> None:
        """Look at a task soon, whatever rest it was given."""
        self._rests.pop(task, None)
        self._wake.set()

    # -- runs ---------------------------------------------------------------------------------------------------------

    def submit(self, task: str, *, actor: str, expect: str = "") -> asyncio.Task[Result]:
        """Start a run for somebody who waits for its answer; it does not count against `parallel`."""
        run = asyncio.create_task(self._journal.advance(task, expect=expect, actor=actor), name=f"advance {task}")
        run.add_done_callback(lambda _: self._wake.set())
        return run

    @property
    def running(self) -> frozenset[str]:
        """Tasks that a run of this loop is busy with."""
        return frozenset(self._runs)

    async def serve(self) -> None:
        """Drive until cancelled; then nothing new starts, and what runs is cancelled and leaves its intent open."""
        try:
            while True:
                self._wake.clear()
                await self._start_due()
                with suppress(TimeoutError):
                    async with asyncio.timeout(SCAN_S):
                        await self._wake.wait()
        finally:
            self._closing = True
            await self._end_runs()

    async def _end_runs(self) -> None:
        runs = list(self._runs.values())
        for run in runs:
            run.cancel()
        await asyncio.gather(*runs, return_exceptions=True)

    async def _start_due(self) -> None:
        free = self._parallel - len(self._runs)
        if free <= 0 or self._journal.log.broken is not None:
            return
        clock, lanes = self._journal.clock, set[str]()
        held = dict(await self._journal.log.query("SELECT lane, task FROM journal_lanes"))
        now_s = clock.monotonic_s()
        for due in await ask(self._journal.log, due_tasks(clock.now_us(), SCANNED, stages=self._auto)):
            if free <= 0:
                return
            task = due.task
            stream = await self._journal.log.read(task)
            if stream.state.unread:
                continue  # a newer version's business; it holds nobody up here
            lane = _lane(self._journal.pipeline, stream)
            # Who holds a lane goes on, however old the others are: only it can give the lane back. Of a free lane the
            # oldest goes first, also while it rests or runs: nobody overtakes it into the lane.
            blocked = bool(lane) and (held[lane] != task if lane in held else lane in lanes)
            if lane:
                lanes.add(lane)
            if blocked or task in self._runs or self._rests.get(task, (0, 0.0))[1] > now_s:
                continue
            if self._wanted(stream) and await self._mine(stream):
                self._start(task)
                free -= 1

    def _wanted(self, stream: Stream) -> bool:
        state = stream.state
        if state.hold is not Hold.NONE:
            return False
        edge = self._journal.pipeline.edge(state.stage)
        inherited = bool(state.owner or state.open or state.begun or state.cancel)
        return inherited or (edge is not None and edge.advance == "auto")

    async def _mine(self, stream: Stream) -> bool:
        mine = await self._journal.mine(stream)
        if not mine:
            self.startup.discard(stream.task)  # another host's, from now on to be looked at like any other
        return mine

    def _start(self, task: str) -> None:
        actor = "startup" if task in self.startup else "worker"
        self.startup.discard(task)
        run = asyncio.create_task(self._journal.advance(task, actor=actor), name=f"advance {task}")
        self._runs[task] = run
        run.add_done_callback(lambda done: self._ended(task, done))

    def _ended(self, task: str, run: asyncio.Task[Result]) -> None:
        self._runs.pop(task, None)
        if not self._closing:
            self._wake.set()
        if run.cancelled():
            return
        match result := run.result():
            case Advanced() | RolledBack() | LostRace():
                self._rests.pop(task, None)
            case Deferred() | Refused() | Unavailable():
                self._rest(task)
            case _:
                pass  # waiting and parked tasks are due when the journal says so
        logger.info("dispatched", task=task, result=type(result).__name__)

    def _rest(self, task: str) -> None:
        times, _ = self._rests.get(task, (0, 0.0))
        first, longest = REST_S
        pause = min(longest, first * 2**times)
        self._rests[task] = (min(times + 1, 20), self._journal.clock.monotonic_s() + pause)


_HINTS = frozenset(
    {Kind.OPENED, Kind.RELEASED, Kind.STAGE_MOVED, Kind.RESUMED, Kind.SETTLED, Kind.REOPENED, Kind.CANCEL_REQUESTED}
)


def _lane(pipeline: Pipeline, stream: Stream) -> str:
    """The lane that the task's next effects take."""
    state = stream.state
    if state.begun and state.plan is not None:
        return state.plan.lane
    edge = pipeline.edge(state.stage)
    return pipeline.lane_of(edge, stream.subject) if edge else ""
