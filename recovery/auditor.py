"""
The auditor: asks the world again about what the journal holds for settled (PROTOCOL 5, rows P4 to P6, P9, P10; V5, V7).

A fact that contradicts the journal is written down as `hazard_found`, once, and drives nothing. The one thing that
follows from a look is P6: a parked task whose effect shows up is free again, by an `observed` of ours, and whoever
comes next probes anew and converges. Everything is written under the task's lock, and only while nobody owns it (I21).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import structlog

from journal.doubt import row_of
from journal.engine import MAX_FRUITLESS
from journal.errors import JournalError
from journal.events import Body, Draft, HazardFound, Observed
from journal.journal import Journal
from journal.log.unit import Unit, Written
from journal.look import look
from journal.plan import StepPlan
from journal.ports import Finding
from journal.stream import Stream
from journal.words import Fact, Guard, Hold
from projections.base import ask
from projections.lookup import open_places, recently_ended

logger = structlog.get_logger(__name__)

ACTOR = "reconciler"

ROUND_S = 60.0
"""Between two rounds over parked tasks."""

AUDIT_EVERY = 10
"""Every how many rounds settled steps are asked about too."""

PAGE = 500

ENDED_US = 86400 * 1_000_000
"""Tasks that ended within this time are looked at once more."""

ENDED_LIMIT = 2000
"""Of the newest openings, at most."""


class Doubt(NamedTuple):
    """A step the journal holds for settled, and what of it would be a hazard."""

    row: str
    step: StepPlan
    hazards: frozenset[Fact]


class Auditor:
    """A duty of the service."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._rounds = 0

    async def serve(self) -> None:
        """Look until cancelled."""
        while True:
            await self.round(audit=self._rounds % AUDIT_EVERY == 1)  # not in the rush of a start
            self._rounds += 1
            await self._journal.clock.sleep(ROUND_S)

    async def round(self, *, audit: bool) -> None:
        """Free parked tasks whose effect shows up; with `audit`, look at settled steps too."""
        after = 0
        while places := await ask(self._journal.log, open_places(after, PAGE)):
            after = places[-1].entered
            for place in places:
                if place.hold == Hold.PARKED:
                    await self._guarded(place.task, free=True)
                elif audit and not place.owned:
                    await self._guarded(place.task, free=False)
        if audit:
            since_us = self._journal.clock.now_us() - ENDED_US
            for task in await ask(self._journal.log, recently_ended(since_us, ENDED_LIMIT)):
                await self._guarded(task, free=False)

    async def _guarded(self, task: str, *, free: bool) -> None:
        """One task's trouble is not the others'."""
        try:
            await (self.free(task) if free else self.audit(task))
        except (JournalError, OSError):
            logger.warning("audit_failed", task=task, exc_info=True)

    # -- P6 -----------------------------------------------------------------------------------------------------------

    async def free(self, task: str) -> bool:
        """Free a parked task whose effect is there and ours; says whether it did."""
        stream = await self._journal.log.read(task)
        state, step = stream.state, stream.state.current
        # What was parked for its fruitless terms would be parked again before it looks: only a person forgives those.
        if state.hold is not Hold.PARKED or state.unread or state.owner or state.fruitless >= MAX_FRUITLESS:
            return False
        if step is None or not state.attempts or step.guard in (Guard.AWAITED, Guard.BLIND):
            return False
        finding = (await look(self._journal.tools, stream, step)).finding
        if finding.fact is not Fact.OURS:
            return False
        body = Observed(row_of(state), finding.fact, step.guard, "converge", finding.seen)
        freed = await self._write(stream, body, step.name, state.attempts)
        if freed:
            logger.info("parked_task_freed", task=task, step=step.name)
        return freed

    # -- P4, P5, P9, P10 ----------------------------------------------------------------------------------------------

    async def audit(self, task: str) -> Sequence[str]:
        """Ask about every settled irreversible step; returns the hazards that were written."""
        stream = await self._journal.log.read(task)
        found = []
        for doubt in self._doubts(stream):
            finding = (await look(self._journal.tools, stream, doubt.step)).finding
            if finding.fact in doubt.hazards and (reason := await self._hazard(stream, doubt, finding)):
                found.append(reason)
                stream = await self._journal.log.read(task)
        return found

    def _doubts(self, stream: Stream) -> Iterator[Doubt]:
        state = stream.state
        if state.hold is Hold.CANCELED:
            for name, _ in state.intents:
                if step := self._step(name):
                    yield Doubt("canceled", step, frozenset({Fact.OURS}))
            return
        row = "done" if state.hold is Hold.DONE else "applied" if state.begun else "passed"
        for name in state.closed:
            step = self._step(name)
            if step is None:
                continue
            hazards = {Fact.ABSENT, Fact.CONFLICT}
            if row == "passed" and not step.adopts:
                hazards.add(Fact.OTHERS)
            yield Doubt(row, step, frozenset(hazards))

    def _step(self, name: str) -> StepPlan | None:
        """Its plan, if it is one whose effect stays in the world and can be asked for."""
        definition = self._journal.pipeline.steps.get(name)
        if definition is None or not definition.plan.irreversible:
            return None
        return None if definition.plan.guard in (Guard.AWAITED, Guard.BLIND) else definition.plan

    async def _hazard(self, stream: Stream, doubt: Doubt, finding: Finding) -> str:
        said = "landed after the task was canceled" if doubt.row == "canceled" else "the journal says applied"
        reason = f"{doubt.step.name}: {finding.fact} in the world; {said}"
        if await self._known(stream, reason):
            return ""
        if not await self._write(stream, HazardFound(reason, finding.seen), doubt.step.name, 0):
            return ""
        logger.warning("hazard_found", task=stream.task, reason=reason)
        return reason

    async def _known(self, stream: Stream, reason: str) -> bool:
        """Said once in this generation, not once per round (R50)."""
        after = 0
        while events := await self._journal.events(stream.task, after=after):
            after = events[-1].version
            for e in events:
                body = e.draft.body
                same = isinstance(body, HazardFound) and body.reason == reason
                if same and e.draft.generation == stream.state.generation:
                    return True
        return False

    async def _write(self, stream: Stream, body: Body, step: str, attempt: int) -> bool:
        """Append under the task's lock what was decided from `stream`; if it moved or is owned, nothing."""
        state = stream.state
        lock = self._journal.locks.take_task(stream.task, ACTOR, f"{self._journal.me.instance[:12]}.audit")
        if lock is None:
            return False
        try:
            draft = Draft(body, state.epoch, state.generation, ACTOR, step, attempt)
            return not state.owner and isinstance(await self._journal.log.append(Unit(stream, (draft,))), Written)
        finally:
            lock.release()
