"""
The engine: `next_action` names the one next thing to do, `learn` takes in what happened. Both pure (DESIGN 1).

Worker, reaper, reconciler, webhook, startup and operator differ only in the run they start with, and the explorer
behind `journal prove` interprets these same two functions over a simulated world: the code is the model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from journal.actions import (
    Action,
    Append,
    Appended,
    Apply,
    Ask,
    Asked,
    Busy,
    Ended,
    EndHolder,
    Finished,
    Locked,
    Lost,
    Occupied,
    Probe,
    Probed,
    Quiesce,
    Quiet,
    Read,
    Replied,
    Result,
    Seen,
    TakeLock,
    Unlock,
    Unlocked,
    Wait,
    Waited,
)
from journal.doubt import NEEDS_QUIET, TABLE, Decision, Table, Verdict, cell_in_words, decide
from journal.events import (
    Acquired,
    Applied,
    Body,
    Canceled,
    Draft,
    Intended,
    Observed,
    Owner,
    Parked,
    Rejected,
    Released,
    StageMoved,
    Via,
)
from journal.plan import EdgePlan, StepPlan
from journal.ports import Answer, Finding, Reply
from journal.state import TaskState, evolve, fold
from journal.words import Cause, Ending, Evidence, Fact, Guard, Hold, Kind, Opening, Outcome, Standing

MAX_FRUITLESS = 3
"""Terms in a row without a closed step; the next one parks (O2, R55)."""


MAX_ROLLBACKS = 3
"""In one generation; a step that is refused once more then parks, or an automatic route would go round for ever."""


# Python 3.11 takes twenty times longer to look a member up in its class than a name in its module.
_GONE, _BLIND, _FREE = Standing.GONE, Guard.BLIND, Hold.NONE
_OURS, _APPLIED, _UNKNOWN, _OPEN = Fact.OURS, Outcome.APPLIED, Outcome.UNKNOWN, Opening.OPEN
_INTENDED, _REJECTED = Kind.INTENDED, Kind.REJECTED
_WAIT, _PARK = Verdict.WAIT, Verdict.PARK


class Route(Protocol):
    """Where a task goes from a stage: the pipeline, as far as the engine needs it."""

    def edge(self, stage: str) -> EdgePlan | None: ...


class Run(NamedTuple):
    """One actor's try at one task. Everything the next action depends on is here."""

    actor: str
    me: Owner
    route: Route
    task: str = ""
    expect: str = ""  # stage the caller believes in; "" = whatever it is
    cause: Cause = Cause.GONE  # why a term found without an end is over
    # What is held.
    locked: bool = False
    epoch: int = 0  # 0 = none
    # What was read.
    state: TaskState | None = None  # the journal, as last read or written
    busy: bool | None = None  # the lock was not free; True = overdue
    ended: bool = False  # the overdue holder was told to go
    gates: Answer | None = None  # asked since the last append
    # What is known about the cursor's step in this term; all of it is forgotten when the step or attempt changes.
    armed: bool = False  # our intent is durable and nothing was sent for it yet
    quiet: bool = False
    carrier: Standing = _GONE  # of who began the last attempt, once it is quiet
    probed: Probed | None = None
    waits: int = 0
    claim: Outcome | None = None  # what our own attempt claimed
    reply: Evidence = ()
    # What is known and not yet written; rides in the next append, so an outcome costs no commit of its own.
    pending: tuple[Draft, ...] = ()
    occupied: str = ""  # who holds the lane
    ending: Ending | None = None
    reason: str = ""

    def but(self, **changes: Any) -> Run:
        """`_replace` in a third of the time: that one asks for each of the fields, this for those that change."""
        values: list[Any] = [*self]
        for name, value in changes.items():
            values[_PLACES[name]] = value
        return tuple.__new__(Run, values)

    @property
    def view(self) -> TaskState:
        """The task as it will be once `pending` is written."""
        assert self.state is not None
        return fold(self.pending, self.state) if self.pending else self.state

    def draft(self, body: Body, step: str = "", attempt: int = 0) -> Draft:
        assert self.state is not None
        return Draft(body, self.epoch, self.state.generation, self.actor, step, attempt)


_PLACES = {name: place for place, name in enumerate(Run._fields)}


def next_action(run: Run, table: Table = TABLE) -> Action:
    """Name the one next thing to do; pure, total, and the same for live work, recovery and the explorer."""
    if run.ending is not None:
        return Unlock() if run.locked else Finished(run.ending, run.reason)
    return _drive(run, table) if run.epoch else _enter(run)


# -- enter: the lock, then the journal, then the epoch. Who holds the lock knows that no local carrier is left. -------


def _enter(run: Run) -> Action:
    if not run.locked:
        if run.busy is None:
            return TakeLock()
        if not run.busy:
            return Finished(Ending.DEFERRED, "another run holds the task")
        if not run.ended:
            return EndHolder()  # and try the lock once more
    if run.state is None:
        return Read()
    s = run.state
    plan = plan_of(run.route.edge, s)
    assert plan is not None  # `learn` refuses a task that has nowhere to go
    if s.cancel and not (s.open or s.loose):
        return Append(s, (_foreign(run, s, Canceled("requested earlier")),))
    acquired = Draft(
        Acquired(run.me, plan, s.owner, run.cause if s.owner else Cause.NONE), s.next_epoch, s.generation, run.actor
    )
    if not run.locked:
        # It hangs with the lock in its hand: take the epoch, so that it loses every write, and drive nothing.
        return Append(s, (acquired, *_parked(run, s, "the task's lock is held past its budget and did not come free")))
    if s.fruitless >= MAX_FRUITLESS:
        return Append(s, (acquired, *_parked(run, s, f"{s.fruitless} terms in a row ended without a closed step")))
    if plan.gates and not s.begun and run.gates is None:
        return Ask(plan)
    if not plan.steps:
        moved = _moved(plan)
        released = Released(Ending.ADVANCED)
        return Append(s, (acquired, *(Draft(b, s.next_epoch, s.generation, run.actor) for b in (moved, released))))
    return Append(s, (acquired,))


def plan_of(edge: Callable[[str], EdgePlan | None], s: TaskState) -> EdgePlan | None:
    """A transition that has begun keeps the plan it was begun with; otherwise the pipeline says (DESIGN 7)."""
    return s.plan if s.begun else edge(s.stage)


def _foreign(run: Run, s: TaskState, body: Body) -> Draft:
    return Draft(body, s.epoch, s.generation, run.actor)


def _parked(run: Run, s: TaskState, reason: str) -> tuple[Draft, ...]:
    """Take the epoch only to park."""
    epoch = s.next_epoch
    step = s.current
    alert = f"{run.task}/{s.generation}/{epoch}"
    name, attempt = (step.name, s.attempts) if step and s.plan and s.plan.source == s.stage else ("", 0)
    return (
        Draft(Parked(reason, alert), epoch, s.generation, run.actor, name, attempt),
        Draft(Released(Ending.PARKED, reason), epoch, s.generation, run.actor),
    )


def _moved(plan: EdgePlan) -> StageMoved:
    return StageMoved(plan.source, plan.target, plan.final)


# -- drive: decide on the task as it will be once `pending` is written. -----------------------------------------------


def _drive(run: Run, table: Table) -> Action:
    s, view = run.state, run.view
    assert s is not None and view.plan is not None
    step = view.current
    if step is None:
        return Append(s, (*run.pending, run.draft(_moved(view.plan)), run.draft(Released(Ending.ADVANCED))))
    if view.cancel and not (view.open or view.loose):  # the doubt that kept it alive is settled
        return Append(s, (*run.pending, run.draft(Canceled("requested earlier"))))
    attempts = view.attempts
    if run.armed:
        return Apply(step, (view.generation, step.name), (run.epoch, attempts))
    if attempts and not run.quiet and step.guard in NEEDS_QUIET and run.claim is not _APPLIED:
        return Quiesce(step, (run.epoch, attempts + 1))
    if run.probed is None:
        return Probe(step)
    decision = _decision(run, view, step, table)
    return _THEN[decision.verdict](run, s, view, step, decision)


def _decision(run: Run, view: TaskState, step: StepPlan, table: Table) -> Decision:
    assert run.probed is not None
    finding = run.probed.finding
    superseded = ("superseded", True) in finding.seen
    decision = decide(
        view, step, finding.fact, claim=run.claim, superseded=superseded, carrier=run.carrier, table=table
    )
    if decision.verdict is _WAIT and (run.probed.late or view.looks >= step.looks):
        why = f"{finding.fact} past the deadline" if run.carrier is _GONE else decision.why
        return decision._replace(verdict=_PARK, why=why or f"{finding.fact} past the deadline")
    return decision


def _reject(run: Run, s: TaskState, view: TaskState, step: StepPlan, decision: Decision) -> Action:
    del decision  # the refusal and the probe that bears it out say it all
    assert run.probed is not None
    seen = tuple(sorted({**dict(run.probed.finding.seen), **dict(run.reply)}.items()))
    return Append(s, (*run.pending, run.draft(Rejected(seen), step.name, view.attempts)))


def _begin(run: Run, s: TaskState, view: TaskState, step: StepPlan, decision: Decision) -> Action:
    assert view.plan is not None and run.probed is not None
    attempts = view.attempts
    if attempts and not run.waits:  # a pause before every attempt but the first
        return Append(s, run.pending) if run.pending else Wait(attempts, step)
    if run.occupied:
        return _release(run, s, f"lane {view.plan.lane} is held by {run.occupied}", step.retry_ms)
    if view.plan.gates and not view.begun:
        if run.gates is None:
            return Ask(view.plan)
        if run.gates.opening is not _OPEN:
            return _release(run, s, run.gates.reason or f"gate {run.gates.opening}", step.retry_ms)
    intended = Intended(
        step.guard,
        step.irreversible,
        view.plan.lane,
        step.budget_ms,
        expected=run.probed.finding.seen,
    )
    draft = run.draft(intended, step.name, attempts + 1)
    if not attempts:
        return Append(s, (*run.pending, draft))
    return Append(s, (*run.pending, _observed(run, view, step, decision), draft))


def _converge(run: Run, s: TaskState, view: TaskState, step: StepPlan, decision: Decision) -> Action:
    assert run.probed is not None
    finding = run.probed.finding
    applied = run.draft(Applied(_via(step, finding), finding.seen), step.name, view.attempts)
    unit = (*run.pending, _observed(run, view, step, decision), applied)
    if evolve(view, applied).current is None:
        assert view.plan is not None
        return Append(s, (*unit, run.draft(_moved(view.plan)), run.draft(Released(Ending.ADVANCED))))
    return Append(s, unit)


def _via(step: StepPlan, finding: Finding) -> Via:
    if step.guard is Guard.AWAITED:
        return "awaited"
    return "other" if finding.fact is Fact.OTHERS else "probe"


def _wait(run: Run, s: TaskState, view: TaskState, step: StepPlan, decision: Decision) -> Action:
    if run.waits < step.waits:
        return Append(s, run.pending) if run.pending else Wait(run.waits + 1, step)  # never sleep on unwritten news
    look_ms = min(step.retry_ms * 2 ** min(view.looks + step.waits, 16), 300_000)
    assert run.probed is not None
    unproven = decision.why if run.carrier is not _GONE else ""
    reason = f"{step.name}: {unproven or run.probed.finding.fact}"
    released = run.draft(Released(Ending.WAITING, reason, look_ms))
    return Append(s, (*run.pending, _observed(run, view, step, decision), released))


def _release(run: Run, s: TaskState, reason: str, look_ms: int) -> Action:
    return Append(s, (*run.pending, run.draft(Released(Ending.WAITING, reason, look_ms))))


def _park(run: Run, s: TaskState, view: TaskState, step: StepPlan, decision: Decision) -> Action:
    assert view.plan is not None and run.probed is not None
    why = _observed(run, view, step, decision)
    row, fact, _ = decision.cell
    refused = row == "retry" and fact is Fact.ABSENT and not (view.landed or view.loose)
    allowed = view.plan.on_failure and view.rollbacks < MAX_ROLLBACKS
    if refused and allowed and decision.verdict is _PARK:
        back = StageMoved(view.plan.source, view.plan.on_failure)
        reason = f"{step.name}: {decision.why}"
        return Append(s, (*run.pending, why, run.draft(back), run.draft(Released(Ending.ROLLED_BACK, reason))))
    reason = f"{step.name}: {decision.why or cell_in_words(decision.cell)}"
    alert = f"{run.task}/{view.generation}/{run.epoch}"
    parked = run.draft(Parked(reason, alert), step.name, view.attempts)
    return Append(s, (*run.pending, why, parked, run.draft(Released(Ending.PARKED, reason))))


def _observed(run: Run, view: TaskState, step: StepPlan, decision: Decision) -> Draft:
    assert run.probed is not None
    row, fact, guard = decision.cell
    seen = run.probed.finding.seen
    if run.carrier is not _GONE:
        seen = tuple(sorted({**dict(seen), "carrier": str(run.carrier)}.items()))
    body = Observed(row, fact, guard, decision.verdict, seen, run.reply)
    return run.draft(body, step.name, view.attempts)


_THEN: dict[Verdict, Callable[[Run, TaskState, TaskState, StepPlan, Decision], Action]] = {
    Verdict.DRIVE: _begin,
    Verdict.CONVERGE: _converge,
    Verdict.REJECT: _reject,
    Verdict.WAIT: _wait,
    Verdict.PARK: _park,
    Verdict.HALT: _park,
    Verdict.ADOPT: _park,
}


# -- learn ------------------------------------------------------------------------------------------------------------


def learn(run: Run, did: Action, got: Result) -> Run:
    """Take in what happened; the most frequent first."""
    match got:
        case Probed(finding=finding):
            return _confirmed(run, finding) or run.but(probed=got)
        case Appended(state=state):
            return _appended(run, did, state)
        case Replied(reply=reply):
            return _replied(run, reply)
        case Quiet(carrier=carrier):
            return run.but(quiet=True, carrier=carrier)
        case Locked():
            return run.but(locked=True, busy=None)
        case Busy(overdue=overdue):
            return run.but(busy=overdue)
        case Ended():
            return run.but(ended=True, busy=None, cause=Cause.BUDGET)
        case Seen(state=state, owner=owner):
            return _seen(run, state, owner)
        case Asked(answer=answer):
            return _asked(run, answer)
        case Lost(state=state):
            return _leave(run, state, Ending.LOST, "the task moved on meanwhile")
        case Occupied(holder=holder):
            return run.but(occupied=holder)
        case Waited():
            proven = run.carrier is _GONE  # else it is asked about again: it may have come to its end meanwhile
            return run.but(probed=None, gates=None, quiet=run.quiet and proven, waits=run.waits + 1)
        case Unlocked():
            return run.but(locked=False)


def _seen(run: Run, s: TaskState, owner: Standing) -> Run:
    """Turn away at the door whoever has nothing to do here; writes nothing."""
    if s.owner and owner is Standing.ALIVE:
        return _leave(run, s, Ending.DEFERRED, "its owner lives on another host")
    if run.expect and s.stage != run.expect:
        return _leave(run, s, Ending.LOST, f"the stage is {s.stage}, not {run.expect}")
    if s.hold is not _FREE:
        return _leave(run, s, Ending.REFUSED, f"the task is {s.hold}")
    if plan_of(run.route.edge, s) is None:
        return _leave(run, s, Ending.REFUSED, f"the pipeline has no edge from stage {s.stage}")
    return run.but(state=s)


def _confirmed(run: Run, finding: Finding) -> Run | None:
    """Claimed and confirmed, cell open x ours: no doubt to record, so the outcome rides in the next append."""
    if run.claim is not _APPLIED or finding.fact is not _OURS:
        return None
    view = run.view
    step = view.current
    assert step is not None
    applied = run.draft(Applied("apply", finding.seen), step.name, view.attempts)
    pending = (*run.pending, applied)
    return run.but(pending=pending, claim=None, reply=(), quiet=False, carrier=_GONE, probed=None, waits=0, gates=None)


def _asked(run: Run, answer: Answer) -> Run:
    if run.epoch or answer.opening is _OPEN:
        return run.but(gates=answer)
    assert run.state is not None
    ending = Ending.REFUSED if answer.opening is Opening.CLOSED else Ending.WAITING
    return _leave(run, run.state, ending, answer.reason or f"gate {answer.opening}")


def _appended(run: Run, did: Action, state: TaskState) -> Run:
    assert isinstance(did, Append)
    if state.owner != run.me.run:
        return _leave(run, state, *_ending_of(did.drafts[-1]))
    if did.drafts == run.pending:  # only a pending outcome was written: what is known of the next step stands
        return run.but(state=state, pending=())
    last = did.drafts[-1].kind
    if last is _REJECTED:
        # The fact it rests on still stands: nothing can land any more, so the next attempt needs only its pause.
        return run.but(state=state, pending=(), claim=None, reply=(), waits=0)
    # A new term, a new attempt or a step converged: what was known about the world is about something else now.
    return Run(
        run.actor, run.me, run.route, run.task, run.expect, run.cause,
        locked=run.locked, epoch=state.epoch, state=state, armed=last is _INTENDED,
    )  # fmt: skip


def _ending_of(last: Draft) -> tuple[Ending, str]:
    match last.body:
        case Released(ending=ending, reason=reason):
            return ending, reason
        case _:
            return Ending.REFUSED, "canceled"


def _leave(run: Run, state: TaskState, ending: Ending, reason: str) -> Run:
    return Run(
        run.actor, run.me, run.route, run.task, run.expect, run.cause,
        locked=run.locked, state=state, ending=ending, reason=reason,
    )  # fmt: skip


def _replied(run: Run, reply: Reply) -> Run:
    """A reply is a claim: only the probe settles it. A blind step cannot be probed, so there the claim counts (E4)."""
    view = run.view
    step = view.current
    assert step is not None
    fresh = run.but(
        armed=False, quiet=False, carrier=_GONE, probed=None, waits=0, claim=reply.outcome, reply=reply.seen
    )
    if step.guard is not _BLIND or reply.outcome is _UNKNOWN:
        return fresh
    body = Applied("apply", reply.seen) if reply.outcome is _APPLIED else Rejected(reply.seen)
    return fresh.but(pending=(run.draft(body, step.name, view.attempts),), claim=None, reply=())
