"""
The engine: `next_action` names the one next thing to do. Pure (DESIGN 1).

Worker, reaper, reconciler, webhook, startup and operator differ only in the run they start with, and the explorer
behind `journal prove` interprets this function and `journal.learn` over a simulated world: the code is the model.
"""

from __future__ import annotations

from collections.abc import Callable

from journal.actions import (
    Action,
    Append,
    Apply,
    Ask,
    EndHolder,
    Finished,
    Probe,
    Quiesce,
    Read,
    TakeLock,
    Unlock,
    Wait,
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
    Parked,
    Rejected,
    Released,
    StageMoved,
    Via,
)
from journal.plan import EdgePlan, StepPlan
from journal.ports import Finding
from journal.run import Run, plan_of
from journal.state import TaskState, evolve
from journal.words import Cause, Ending, Fact, Guard, Opening, Outcome, Standing

MAX_FRUITLESS = 3
"""Terms in a row without a closed step; the next one parks (O2, R55)."""


MAX_ROLLBACKS = 3
"""In one generation; a step that is refused once more then parks, or an automatic route would go round for ever."""


# Python 3.11 takes twenty times longer to look a member up in its class than a name in its module.
_GONE, _APPLIED, _OPEN = Standing.GONE, Outcome.APPLIED, Opening.OPEN
_WAIT, _PARK = Verdict.WAIT, Verdict.PARK


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
