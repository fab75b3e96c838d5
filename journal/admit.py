"""
Whether a unit of events may be appended: one pure question, asked by the writer and by the explorer (DESIGN 4, L3).

The version was compared before; what is refused here is no race but a bug in whoever wrote the unit. Each refusal names
the invariant of PROTOCOL 10 (or the rule of PROTOCOL 3) that the event would break.
"""

from __future__ import annotations

from journal.errors import InadmissibleError
from journal.events import (
    Acquired,
    Applied,
    Canceled,
    CancelRequested,
    Draft,
    HeadChanged,
    Intended,
    Observed,
    Opened,
    Parked,
    Paused,
    Rejected,
    Released,
    Reopened,
    Resumed,
    Settled,
    StageMoved,
)
from journal.state import TaskState, evolve
from journal.words import LOG_KINDS, OPERATOR_KINDS, OWNED_KINDS, Ending, Fact, Guard, Hold, Kind

# Python 3.11 takes twenty times longer to look a member up in its class than a name in its module.
_NOTES = frozenset({Kind.OBSERVED, Kind.HAZARD_FOUND})
_ANY_GENERATION = _NOTES | {Kind.HEAD_CHANGED, Kind.REOPENED, Kind.OPENED}
_FREE, _PAUSED = Hold.NONE, Hold.PAUSED


def admit(state: TaskState, drafts: tuple[Draft, ...]) -> TaskState:
    """
    Check a unit against the fold it was decided from and return the fold after it.

    Args:
        state: The task as the log has it now, with the incarnation's floor: no epoch at or below it is handed out (F1).
        drafts: The unit, in order; it is appended whole or not at all.

    Raises:
        InadmissibleError: An event breaks a rule; nothing of the unit may be written.
    """
    states = admit_each(state, drafts)
    return states[-1] if states else state


def admit_each(state: TaskState, drafts: tuple[Draft, ...]) -> list[TaskState]:
    """Check a unit as `admit` does and return the fold after each of its events, so that nobody folds them again."""
    before: Draft | None = None
    states = list[TaskState]()
    for draft in drafts:
        _check(state, draft, before)
        state, before = evolve(state, draft), draft
        states.append(state)
    return states


def _require(holds: bool, rule: str, detail: str, *parts: object) -> None:
    if not holds:
        raise InadmissibleError(rule=rule, detail=detail.format(*parts))


def _check(s: TaskState, d: Draft, before: Draft | None) -> None:
    kind = d.kind
    _require(not s.unread, "L4", "{} on a task whose stream holds an event of a newer version; install that", kind)
    _require(kind not in LOG_KINDS, "I3", "{} belongs to the log's own stream", kind)
    _require(bool(s.stage) or isinstance(d.body, Opened), "P0", "{} before opened", kind)
    _check_writer(s, d)
    match d.body:
        case Opened():
            _require(not s.stage and d.generation == 1, "P0", "opened twice, or not with generation 1")
        case Acquired():
            _check_acquired(s)
        case Intended():
            _check_intended(s, d, before)
        case Applied():
            _check_applied(s, d, before)
        case Rejected():
            _require(_is_open(s, d), "I9", "rejected {}#{} without that open intent", d.step, d.attempt)
        case Observed():
            pass
        case StageMoved():
            _check_moved(s, d.body)
        case Parked():
            _require(s.hold is Hold.NONE, "I7", "parked while {}", s.hold)
        case Released(ending=ending):
            allowed = ending in (Ending.PARKED, Ending.WAITING, Ending.LOST) or not s.open
            _require(allowed, "I14", "released({}) with an open intent", ending)
            _require(ending is not Ending.PARKED or s.hold is Hold.PARKED, "I17", "released(parked) without parked")
        case HeadChanged():
            settled = not (s.open or s.loose or s.landed)
            _require(settled, "I16", "head_changed while an attempt may still land, or after something landed")
            _require(d.generation == s.generation + 1, "I16", "a generation grows by one")
        case Settled():
            _require(s.hold is Hold.PARKED and s.current is not None, "V6", "settled needs a parked task and its step")
            _require(s.current is not None and d.step == s.current.name, "V6", "settled names the step at the cursor")
        case Paused() | CancelRequested():
            _require(not s.ended, "I15", "{} after {}", kind, s.hold)
        case Resumed():
            _require(s.hold in (Hold.PARKED, Hold.PAUSED), "I7", "resumed a task that is neither parked nor paused")
        case Canceled():
            settled = not (s.open or s.loose)
            _require(settled and not s.ended, "I15", "canceled while an attempt may still land, or after the end")
        case Reopened():
            _require(not (s.owner or s.open or s.loose), "I16", "reopened while owned or in doubt")
            _require(d.generation == s.generation + 1, "I16", "a generation grows by one")
        case _:  # hazard_found: an auditor's note changes nothing
            _require(kind is Kind.HAZARD_FOUND, "I3", "{} is not an event of a task", kind)


def _check_writer(s: TaskState, d: Draft) -> None:
    kind = d.kind
    if isinstance(d.body, Acquired):
        _require(d.epoch == s.next_epoch, "I4", "acquired({}) after epoch {}, floor {}", d.epoch, s.epoch, s.floor)
    else:
        _require(d.epoch == s.epoch, "I5", "{} of epoch {} under epoch {}", kind, d.epoch, s.epoch)
    if kind in OWNED_KINDS:
        _require(bool(s.owner), "I21", "{} while nobody owns the task", kind)
    if kind in _NOTES:
        return
    if kind not in _ANY_GENERATION:
        _require(d.generation == s.generation, "I16", "{} of generation {} under {}", kind, d.generation, s.generation)
    if s.ended:
        _require(kind is Kind.REOPENED or kind is Kind.RELEASED, "I15", "{} after {}", kind, s.hold)
    elif s.hold is _PAUSED:
        _require(kind in OPERATOR_KINDS, "I7", "{} on a paused task", kind)


def _check_acquired(s: TaskState) -> None:
    _require(s.hold is Hold.NONE, "I7", "acquired while {}", s.hold)


def _is_open(s: TaskState, d: Draft) -> bool:
    step = s.current
    return s.open and step is not None and step.name == d.step and s.attempts == d.attempt


def _check_intended(s: TaskState, d: Draft, before: Draft | None) -> None:
    step = s.current
    _require(step is not None and step.name == d.step, "I8", "intended {}, which is not the next unclosed step", d.step)
    _require(s.hold is _FREE, "I17", "intended while {}", s.hold)
    _require(d.attempt == s.attempts + 1, "I11", "intended attempt {} after {}", d.attempt, s.attempts)
    _require(step is not None and step.guard is not Guard.AWAITED, "I8", "an awaited step has no intent")
    if s.open:
        _require(
            before is not None
            and isinstance(before.body, Observed)
            and before.body.fact is Fact.ABSENT
            and before.step == d.step
            and before.body.guard is not Guard.BLIND,
            "I11",
            "a second open intent of {} without an observed absence before it",
            d.step,
        )


def _check_applied(s: TaskState, d: Draft, before: Draft | None) -> None:
    step = s.current
    _require(step is not None and step.name == d.step, "I10", "applied {}, which is not the next unclosed step", d.step)
    body = d.body
    assert isinstance(body, Applied)
    if body.via in ("apply", "probe") and step is not None and step.guard is not Guard.AWAITED:
        _require(
            s.attempts > 0 and s.attempts == d.attempt, "I9", "applied {}#{} without its intent", d.step, d.attempt
        )
    if body.via == "apply":
        _require(s.open, "I9", "applied {} by an attempt that is closed", d.step)
        return
    seen = before is not None and isinstance(before.body, Observed) and before.step == d.step
    _require(seen, "I18", "applied {} via {} without the observation it rests on", d.step, body.via)


def _check_moved(s: TaskState, body: StageMoved) -> None:
    plan = s.plan
    _require(body.from_stage == s.stage, "I12", "stage_moved from {} while in {}", body.from_stage, s.stage)
    _require(plan is not None and plan.source == s.stage, "I12", "stage_moved along no acquired edge")
    assert plan is not None
    _require(not s.open, "I13", "stage_moved with an attempt in doubt")
    if body.to_stage == plan.target:
        _require(
            s.current is None, "I13", "stage_moved over an edge whose step {} is open", s.current and s.current.name
        )
        _require(body.final == plan.final, "I12", "stage_moved says otherwise about the end of the pipeline")
    else:
        back = bool(plan.on_failure) and body.to_stage == plan.on_failure
        _require(back, "I12", "stage_moved to {}, which the edge does not lead to", body.to_stage)
        _require(not s.landed, "E8", "rolled back after something irreversible landed")
        _require(not s.loose, "E8", "rolled back while an earlier attempt may still land")
