"""
What recovery would decide, without deciding it: a forecast per task, with facts and reasons (V9, NFR-7).

Only a forecast: nobody owns the task while it is made and absence is not made stable. Carrying it out means to acquire,
probe again, and let the engine decide.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass

from journal.doubt import Verdict, decide, row_of
from journal.journal import Journal
from journal.look import look
from journal.names import MAX_INTEGER
from journal.stream import Stream
from journal.words import Evidence, Hold
from projections.base import ask
from projections.queue import due_tasks
from recovery.cells import Cell, not_fired

PAGE = 500
"""Tasks read from the view at once; only open ones that somebody left in the middle are in it."""

PROBES_AT_ONCE = 16
"""How many tasks are asked about at the same time."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a run on this task would do first."""

    task: str
    stage: str
    version: int
    epoch: int
    step: str
    row: str
    fact: str
    verdict: str  # drive, converge, wait, park, halt; defer = its lock is held; rest = nothing is in doubt
    why: str
    seen: Evidence = ()  # asked while the plan was made
    guard: str = ""

    @property
    def others(self) -> tuple[Cell, ...]:
        """The cells of the table that did not fire; none where nothing was asked."""
        return not_fired(self.row, self.fact, self.guard) if self.guard else ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The forecasts of all open tasks that somebody left in the middle."""

    position: int
    forecasts: tuple[Forecast, ...]

    @property
    def token(self) -> str:
        """Names exactly this plan: `--apply` refuses if anything it rests on has changed."""
        data = [asdict(f) for f in self.forecasts]
        text = json.dumps([self.position, data], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


async def make_plan(journal: Journal) -> Plan:
    """Ask about every open task that is owned, in doubt or in the middle of an edge."""
    position, _ = await journal.log.head()
    inherited = [stream async for stream in inherited_streams(journal)]
    asked = asyncio.Semaphore(PROBES_AT_ONCE)

    async def one(stream: Stream) -> Forecast:
        async with asked:
            return await forecast(journal, stream)

    forecasts = await asyncio.gather(*(one(stream) for stream in inherited))
    return Plan(position, tuple(sorted(forecasts, key=lambda f: f.task)))


async def inherited_streams(journal: Journal) -> AsyncIterator[Stream]:
    """Streams of open tasks whose term has no end, or that stand in the middle of an edge."""
    after = 0
    while found := await ask(journal.log, due_tasks(MAX_INTEGER, PAGE, stages=(), after=after)):
        after = found[-1].stage_position
        for stream in await journal.log.read_all([due.task for due in found]):
            state = stream.state
            if state.hold is Hold.NONE and (state.owner or state.open or state.begun):
                yield stream


async def forecast(journal: Journal, stream: Stream) -> Forecast:
    """Ask the world about the cursor's step and look up what would follow."""
    state = stream.state
    step = state.current if state.plan and state.plan.source == state.stage else None

    def named(verdict: str, why: str, fact: str = "", seen: Evidence = (), guard: str = "") -> Forecast:
        name, row = (step.name, str(row_of(state))) if step else ("", "")
        at = (stream.task, state.stage, stream.version, state.epoch)
        return Forecast(*at, name, row, fact, verdict, why, seen, guard)

    if await journal.driven(stream):
        return named("defer", "its lock is held, or its owner lives on another host: a run, or a child that one left")
    if step is None:
        return named("rest", "the edge has no open step; the next run goes on")
    probed = await look(journal.tools, stream, step)
    decision = decide(
        state, step, probed.finding.fact, superseded=("superseded", True) in probed.finding.seen,
        carrier=await journal.standing(stream.carrier),
    )  # fmt: skip
    late = decision.verdict is Verdict.WAIT and probed.late
    verdict = Verdict.PARK if late else decision.verdict
    why = decision.why or f"{step.guard} step {step.name}: {decision.cell[0]} x {decision.cell[1]}"
    return named(str(verdict), why, str(probed.finding.fact), probed.finding.seen, str(step.guard))


def summary(forecasts: Sequence[Forecast]) -> dict[str, int]:
    """How many tasks per verdict."""
    counts: dict[str, int] = {}
    for f in forecasts:
        counts[f.verdict] = counts.get(f.verdict, 0) + 1
    return counts
