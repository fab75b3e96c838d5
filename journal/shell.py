"""
The shell of one run: performs what the engine names and hands back what was seen. Nothing here decides.

Budgets, timeouts and exceptions of adapters end here: the engine awaits nothing but these ports (DESIGN 1).
"""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

import structlog

from journal.actions import (
    Appended,
    Asked,
    Busy,
    Ended,
    Locked,
    Lost,
    Occupied,
    Probed,
    Quiet,
    Replied,
    Seen,
    Unlocked,
    Waited,
)
from journal.children import kill_group
from journal.deadline import Deadline
from journal.errors import StoreUnavailableError
from journal.events import Applied, Draft, Owner
from journal.locks import TaskLock
from journal.log.unit import Astray, Moved, Taken, Unit, Written
from journal.names import shown
from journal.ownership import held_for_s, same_ids
from journal.plan import EdgePlan, StepPlan
from journal.ports import Answer, Call, Finding, Reply, StepAdapter, Term
from journal.storable import storable
from journal.stream import Stream
from journal.tools import Running, Tools
from journal.words import Evidence, Fact, Guard, Kind, Opening, Outcome, Scalar, Standing, evidence

logger = structlog.get_logger(__name__)

PROBE_BUDGET_S = 60.0
"""Seconds one probe or gate may take; then it is unknown."""

PAUSE_LIMIT_S = 30.0
"""The longest pause inside a term; longer waits are released."""

END_GRACE_S = 5.0
"""Seconds at most between ending a holder and asking for its lock again."""

_END_POLL_S = 0.05


_THERE = frozenset({Fact.OURS, Fact.OTHERS})


class Ports(Protocol):
    """Everything a run does to the world; crash points and the simulator stand in its place."""

    async def take_lock(self) -> Locked | Busy: ...
    async def end_holder(self) -> Ended: ...
    async def read(self) -> Seen: ...
    async def ask(self, plan: EdgePlan, pending: tuple[Draft, ...]) -> Asked: ...
    async def append(self, drafts: tuple[Draft, ...]) -> Appended | Lost | Occupied: ...
    async def quiesce(self, step: StepPlan, fence: tuple[int, int], pending: tuple[Draft, ...]) -> Quiet: ...
    async def probe(self, step: StepPlan, pending: tuple[Draft, ...]) -> Probed: ...
    async def apply(self, step: StepPlan, fence: tuple[int, int]) -> Replied: ...
    async def wait(self, nth: int, step: StepPlan) -> Waited: ...
    async def unlock(self) -> Unlocked: ...


class TaskPorts:
    """`Ports` for one run of one task over the real log, locks and adapters."""

    def __init__(self, tools: Tools, task: str, actor: str, run: str, bystander: Term | None = None) -> None:
        self._tools, self._task, self._actor, self._run = tools, task, actor, run
        self._bystander = bystander
        self._deadline = Deadline()
        self._lock: TaskLock | None = None
        self.running: Running | None = None
        self.stream = Stream(task)
        self.astray = ""  # why a unit was refused although the stream had not moved

    # -- the lock -----------------------------------------------------------------------------------------------------

    async def take_lock(self) -> Locked | Busy:
        # Nothing is awaited between taking the lock and remembering it: a cancellation cannot leak it.
        self._lock = self._tools.locks.take_task(self._task, self._actor, self._run)
        if self._lock is not None:
            if current := asyncio.current_task():
                self.running = self._tools.running[self._task] = Running(current)
            return Locked()
        holder = self._tools.locks.holder_of(self._task)
        return Busy(overdue=self._actor == "reaper" and held_for_s(holder) > self._tools.max_running_s)

    async def end_holder(self) -> Ended:
        """Cancel the run if it is ours, kill the process groups that are told of it, give the lock a moment."""
        holder = self._tools.locks.holder_of(self._task)
        run = self._tools.running.get(self._task)
        if run is not None and run.work is not asyncio.current_task():
            run.end(f"ended by {self._actor}: it held the task too long")
        if same_ids(holder, self._tools.locks.me):
            for group in holder.groups:
                logger.warning("holder_ended", task=self._task, group=group, signal=int(signal.SIGKILL))
                kill_group(group)
        clock = self._tools.clock
        deadline_s = clock.monotonic_s() + END_GRACE_S
        while self._tools.locks.is_held(self._task) and clock.monotonic_s() < deadline_s:
            await clock.sleep(_END_POLL_S)
        return Ended()

    async def unlock(self) -> Unlocked:
        self.drop_lock()
        return Unlocked()

    def drop_lock(self) -> None:
        """Give the lock back at every ending; safe to call twice."""
        self._deadline.close()
        if self._lock is not None:
            lock, self._lock = self._lock, None
            if running := self._tools.running.pop(self._task, None):
                running.over.set()
            if lock.release():
                self._tools.outlived.add(self._task)

    # -- the log ------------------------------------------------------------------------------------------------------

    async def read(self) -> Seen:
        self.stream = await self._tools.log.read(self._task)
        return Seen(self.stream.state, await self._standing(self.stream.owner))

    async def _standing(self, owner: Owner | None) -> Standing:
        """Asked with the task's lock in hand; who is not named has nothing left."""
        return Standing.GONE if owner is None else await self._tools.hosts.standing(owner)

    def _must_act(self) -> None:
        """
        Stop right before an effect, or before promising one, if others may take us for dead by now (M2).

        Raises:
            StoreUnavailableError: The run is dropped as a crash would drop it: what is in doubt stays so.
        """
        if why := self._tools.hosts.refusal():
            raise StoreUnavailableError(path=f"task {self._task}", why=why, remedy="it goes on by itself")

    async def append(self, drafts: tuple[Draft, ...]) -> Appended | Lost | Occupied:
        if drafts[-1].kind is Kind.INTENDED:
            self._must_act()
        match await self._tools.log.append(Unit(self.stream, drafts)):
            case Written(stream=stream):
                self.stream = stream
                return Appended(stream.state)
            case Taken(holder=holder):
                return Occupied(holder)
            case Moved():
                self.stream = await self._tools.log.read(self._task)
                return Lost(self.stream.state)
            case Astray(why=why):
                # Whoever shares the file moved the task: the same lost race, told by another witness (FR-2).
                self.astray = why
                return Lost(self.stream.state)

    # -- the world ----------------------------------------------------------------------------------------------------

    async def ask(self, plan: EdgePlan, pending: tuple[Draft, ...]) -> Asked:
        """The first gate that is not open answers for all."""
        for name in plan.gates:
            answer = await self._ask(name, pending)
            if answer.opening is not Opening.OPEN:
                reason = answer.reason or f"gate {name} is {answer.opening}"
                return Asked(Answer(answer.opening, answer.seen, reason))
        return Asked(Answer(Opening.OPEN))

    async def _ask(self, name: str, pending: tuple[Draft, ...]) -> Answer:
        gate = self._tools.gates.get(name)
        if gate is None:
            return Answer(Opening.UNKNOWN, reason=f"gate {name} is not configured here")
        try:
            with self._deadline.within(PROBE_BUDGET_S):
                answer = await gate.ask(self._call(name, pending, 0, PROBE_BUDGET_S))
                return replace(answer, seen=storable(answer.seen))
        except Exception as error:
            logger.warning("gate_failed", task=self._task, gate=name, exc_info=True)
            return Answer(Opening.UNKNOWN, _error(error), f"gate {name} could not be asked: {shown(str(error))}")

    async def quiesce(self, step: StepPlan, fence: tuple[int, int], pending: tuple[Draft, ...]) -> Quiet:
        """Not bounded by the probe's budget: a drain bound may be long. A failure drops the run, as a crash would."""
        budget_s = max(PROBE_BUDGET_S, step.budget_ms / 1000)
        carrier = await self._standing(self.stream.carrier)  # first: what the dead had sent is what then drains
        with self._deadline.within(budget_s):
            await self._adapter(step).quiesce(self._call(step.name, pending, fence[1], budget_s))
        return Quiet(carrier)

    async def probe(self, step: StepPlan, pending: tuple[Draft, ...]) -> Probed:
        asked_us = self._tools.clock.now_us()
        finding = await self._probe(step, pending)
        if lacks := await self._lacks(finding):
            # The log is an older copy of the one that the effect knows (V8, X2). Fresh x ours halts by the table.
            seen = tuple(sorted({**dict(finding.seen), "reason": lacks}.items()))
            halts = finding.fact is Fact.OURS and self._fresh(step.name) and step.guard is not Guard.AWAITED
            finding = Finding(finding.fact if halts else Fact.CONFLICT, seen)
        since = self.stream.since_us if not pending else asked_us
        return Probed(finding, late=asked_us - since > step.deadline_ms * 1000)

    def _fresh(self, step: str) -> bool:
        state = self.stream.state
        return step not in state.closed and step not in dict(state.intents)

    async def _lacks(self, finding: Finding) -> str:
        """What the effect knows of this journal and the log does not hold; "" when it holds everything."""
        if finding.fact not in _THERE:
            return ""
        seen = dict(finding.seen)
        if finding.fact is Fact.OTHERS and seen.get("journal") != self._tools.log.journal_id:
            return ""
        cites, epoch = str(seen.get("cites") or ""), _epoch_of(seen.get("fence"))
        if cites and cites not in self.stream.intents and not await self._holds(cites):
            return f"the effect cites event {cites[:24]}, which this journal lacks: it is an older copy"
        ours = finding.fact is Fact.OURS  # another task's epochs are its own
        if ours and epoch > self.stream.state.epoch:
            return f"the effect was made in epoch {epoch}, this journal knows {self.stream.state.epoch}: an older copy"
        return ""

    async def _holds(self, cites: str) -> bool:
        """Another task of this log may have made it; by position, since that is the table's key."""
        position, _, digest = cites.partition(":")
        if not position.isascii() or not position.isdigit() or len(position) > 18:
            return False
        events = await self._tools.log.events(after=int(position) - 1, limit=1)
        return bool(events) and events[0].hash.hex() == digest

    async def _probe(self, step: StepPlan, pending: tuple[Draft, ...]) -> Finding:
        try:
            with self._deadline.within(PROBE_BUDGET_S):
                attempts = 0 if pending else self.stream.state.attempts
                finding = await self._adapter(step).probe(self._call(step.name, pending, attempts, PROBE_BUDGET_S))
                seen = storable(finding.seen)
                return finding if seen is finding.seen else Finding(finding.fact, seen)
        except Exception as error:
            logger.warning("probe_failed", task=self._task, step=step.name, exc_info=True)
            return Finding(Fact.UNKNOWN, _error(error))

    async def apply(self, step: StepPlan, fence: tuple[int, int]) -> Replied:
        budget_s = step.budget_ms / 1000
        self._must_act()
        try:
            with self._deadline.within(budget_s):
                call = self._call(step.name, (), fence[1], budget_s)
                reply = await self._adapter(step).apply(call)
                seen = storable(reply.seen)
                return Replied(reply if seen is reply.seen else Reply(reply.outcome, seen))
        except TimeoutError:
            return Replied(Reply(Outcome.UNKNOWN, evidence(reason=f"no end within {budget_s:.0f} s")))
        except Exception as error:
            logger.warning("apply_failed", task=self._task, step=step.name, exc_info=True)
            return Replied(Reply(Outcome.UNKNOWN, _error(error)))

    async def wait(self, nth: int, step: StepPlan) -> Waited:
        await self._tools.clock.sleep(min(PAUSE_LIMIT_S, step.retry_ms / 1000 * 2 ** (nth - 1)))
        return Waited()

    def _adapter(self, step: StepPlan) -> StepAdapter:
        adapter = self._tools.steps.get(step.name)
        if adapter is None:
            raise StoreUnavailableError(
                path=f"step {step.name}", why="is not configured here", remedy="add it under [steps] in journal.toml"
            )
        return adapter

    def _call(self, step: str, pending: tuple[Draft, ...], attempt: int, budget_s: float) -> Call:
        stream = self.stream
        outcomes = stream.outcomes
        if pending:
            applied = {d.step: d.body.seen for d in pending if isinstance(d.body, Applied)}
            outcomes = MappingProxyType({**outcomes, **applied})
        term = self._lock or self._bystander
        assert term is not None
        return Call(
            self._tools.log.journal_id,
            stream.subject,
            stream.state.generation,
            step,
            stream.state.epoch,
            attempt,
            budget_s,
            term,
            stream.intent if stream.state.open else None,
            stream.expected if stream.state.open else (),
            outcomes,
        )


def _epoch_of(fence: Scalar) -> int:
    """The epoch of a fence EPOCH.ATTEMPT as an effect carries it; 0 when it carries none that can be read."""
    epoch = str(fence or "").partition(".")[0]
    return int(epoch) if epoch.isascii() and epoch.isdigit() and len(epoch) <= 18 else 0


def _error(error: BaseException) -> Evidence:
    return evidence(error=f"{type(error).__name__}: {shown(str(error), 300)}")
