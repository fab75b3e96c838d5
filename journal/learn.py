"""
`learn` takes in what an action came to: a pure step from one `Run` to the next (DESIGN 1, ENGINE 2).

Nothing is decided here but whom to turn away at the door; what follows from a fact is `journal.doubt`'s to say.
"""

from __future__ import annotations

from journal.actions import (
    Action,
    Append,
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
    Result,
    Seen,
    Unlocked,
    Waited,
)
from journal.events import Applied, Draft, Rejected, Released
from journal.ports import Answer, Finding, Reply
from journal.run import Run, plan_of
from journal.state import TaskState
from journal.words import Cause, Ending, Fact, Guard, Hold, Kind, Opening, Outcome, Standing

# Python 3.11 takes twenty times longer to look a member up in its class than a name in its module.
_GONE, _BLIND, _FREE = Standing.GONE, Guard.BLIND, Hold.NONE
_OURS, _APPLIED, _UNKNOWN, _OPEN = Fact.OURS, Outcome.APPLIED, Outcome.UNKNOWN, Opening.OPEN
_INTENDED, _REJECTED = Kind.INTENDED, Kind.REJECTED


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
