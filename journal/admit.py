"""
Whether a unit of events may be appended: one pure question, asked by the writer and by the explorer (DESIGN 4, L3).

The version was compared before; what is refused here is no race but a bug in whoever wrote the unit. Each refusal names
the invariant of PROTOCOL 10 (or the rule of PROTOCOL 3) that the event would break.
"""

from __future__ import annotations

from collections.abc import Callable

from journal.errors import InadmissibleError
from journal.events import Applied, Draft, Observed, Released, StageMoved
from journal.plan import EdgePlan
from journal.state import TaskState, evolve
from journal.words import OPERATOR_KINDS, OWNED_KINDS, Ending, Fact, Guard, Hold, Kind

# Python 3.11 takes twenty times longer to look a member up in its class than a name in its module.
_OPENED, _ACQUIRED, _AWAITED, _FREE, _PAUSED = Kind.OPENED, Kind.ACQUIRED, Guard.AWAITED, Hold.NONE, Hold.PAUSED
_NOTES = frozenset({Kind.OBSERVED, Kind.HAZARD_FOUND})
_ANY_GENERATION = _NOTES | {Kind.HEAD_CHANGED, Kind.REOPENED, Kind.OPENED}
_AFTER_THE_END = frozenset({Kind.REOPENED, Kind.RELEASED})
_WITH_AN_OPEN_INTENT = frozenset({Ending.PARKED, Ending.WAITING, Ending.LOST})


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
    states: list[TaskState] = []
    for draft in drafts:
        _check(state, draft, before)
        state, before = evolve(state, draft), draft
        states.append(state)
    return states


def _check(s: TaskState, d: Draft, before: Draft | None) -> None:
    """
    Refuse what breaks a rule.

    Every event comes through here, so whatever is in order costs a comparison a rule, and only a refusal is worded.
    """
    kind = d.body.kind
    if s.unread:
        raise InadmissibleError(
            rule="L4", detail=f"{kind} on a task whose stream holds an event of a newer version; install that"
        )
    if kind not in _CHECKS:
        raise InadmissibleError(rule="I3", detail=f"{kind} is not an event of a task")
    if not s.stage and kind is not _OPENED:
        raise InadmissibleError(rule="P0", detail=f"{kind} before opened")
    _check_writer(s, d, kind)
    if (check := _CHECKS[kind]) is not None:
        check(s, d, before)


def _check_writer(s: TaskState, d: Draft, kind: Kind) -> None:
    if kind is _ACQUIRED:
        if d.epoch != s.next_epoch:
            raise InadmissibleError(rule="I4", detail=f"acquired({d.epoch}) after epoch {s.epoch}, floor {s.floor}")
    elif d.epoch != s.epoch:
        raise InadmissibleError(rule="I5", detail=f"{kind} of epoch {d.epoch} under epoch {s.epoch}")
    if not s.owner and kind in OWNED_KINDS:
        raise InadmissibleError(rule="I21", detail=f"{kind} while nobody owns the task")
    if d.generation != s.generation and kind not in _ANY_GENERATION:
        raise InadmissibleError(rule="I16", detail=f"{kind} of generation {d.generation} under {s.generation}")
    if s.hold is not _FREE and kind not in _NOTES:
        if s.ended and kind not in _AFTER_THE_END:
            raise InadmissibleError(rule="I15", detail=f"{kind} after {s.hold}")
        if s.hold is _PAUSED and kind not in OPERATOR_KINDS:
            raise InadmissibleError(rule="I7", detail=f"{kind} on a paused task")


def _check_opened(s: TaskState, d: Draft, before: Draft | None) -> None:
    if s.stage or d.generation != 1:
        raise InadmissibleError(rule="P0", detail="opened twice, or not with generation 1")


def _check_free(s: TaskState, d: Draft, before: Draft | None) -> None:
    if s.hold is not _FREE:
        raise InadmissibleError(rule="I7", detail=f"{d.kind} while {s.hold}")


def _check_intended(s: TaskState, d: Draft, before: Draft | None) -> None:
    step = s.current
    if step is None or step.name != d.step:
        raise InadmissibleError(rule="I8", detail=f"intended {d.step}, which is not the next unclosed step")
    if s.hold is not _FREE:
        raise InadmissibleError(rule="I17", detail=f"intended while {s.hold}")
    if d.attempt != s.attempts + 1:
        raise InadmissibleError(rule="I11", detail=f"intended attempt {d.attempt} after {s.attempts}")
    if step.guard is _AWAITED:
        raise InadmissibleError(rule="I8", detail="an awaited step has no intent")
    if s.open and not _saw_absence(before, d.step):
        raise InadmissibleError(
            rule="I11", detail=f"a second open intent of {d.step} without an observed absence before it"
        )


def _saw_absence(before: Draft | None, step: str) -> bool:
    if before is None or before.step != step or not isinstance(before.body, Observed):
        return False
    return before.body.fact is Fact.ABSENT and before.body.guard is not Guard.BLIND


def _check_applied(s: TaskState, d: Draft, before: Draft | None) -> None:
    step, body = s.current, d.body
    if step is None or step.name != d.step:
        raise InadmissibleError(rule="I10", detail=f"applied {d.step}, which is not the next unclosed step")
    assert isinstance(body, Applied)
    needs_intent = body.via in ("apply", "probe") and step.guard is not _AWAITED
    if needs_intent and not 0 < s.attempts == d.attempt:
        raise InadmissibleError(rule="I9", detail=f"applied {d.step}#{d.attempt} without its intent")
    if body.via == "apply":
        if not s.open:
            raise InadmissibleError(rule="I9", detail=f"applied {d.step} by an attempt that is closed")
    elif before is None or before.step != d.step or not isinstance(before.body, Observed):
        raise InadmissibleError(
            rule="I18", detail=f"applied {d.step} via {body.via} without the observation it rests on"
        )


def _check_rejected(s: TaskState, d: Draft, before: Draft | None) -> None:
    step = s.current
    if not s.open or step is None or step.name != d.step or s.attempts != d.attempt:
        raise InadmissibleError(rule="I9", detail=f"rejected {d.step}#{d.attempt} without that open intent")


def _check_moved(s: TaskState, d: Draft, before: Draft | None) -> None:
    plan, body = s.plan, d.body
    assert isinstance(body, StageMoved)
    if body.from_stage != s.stage:
        raise InadmissibleError(rule="I12", detail=f"stage_moved from {body.from_stage} while in {s.stage}")
    if plan is None or plan.source != s.stage:
        raise InadmissibleError(rule="I12", detail="stage_moved along no acquired edge")
    if s.open:
        raise InadmissibleError(rule="I13", detail="stage_moved with an attempt in doubt")
    if body.to_stage != plan.target:
        _check_rollback(s, plan, body)
    elif s.current is not None:
        raise InadmissibleError(rule="I13", detail=f"stage_moved over an edge whose step {s.current.name} is open")
    elif body.final != plan.final:
        raise InadmissibleError(rule="I12", detail="stage_moved says otherwise about the end of the pipeline")


def _check_rollback(s: TaskState, plan: EdgePlan, body: StageMoved) -> None:
    if not plan.on_failure or body.to_stage != plan.on_failure:
        raise InadmissibleError(rule="I12", detail=f"stage_moved to {body.to_stage}, which the edge does not lead to")
    if s.landed:
        raise InadmissibleError(rule="E8", detail="rolled back after something irreversible landed")
    if s.loose:
        raise InadmissibleError(rule="E8", detail="rolled back while an earlier attempt may still land")


def _check_released(s: TaskState, d: Draft, before: Draft | None) -> None:
    assert isinstance(d.body, Released)
    ending = d.body.ending
    if s.open and ending not in _WITH_AN_OPEN_INTENT:
        raise InadmissibleError(rule="I14", detail=f"released({ending}) with an open intent")
    if ending is Ending.PARKED and s.hold is not Hold.PARKED:
        raise InadmissibleError(rule="I17", detail="released(parked) without parked")


def _check_head_changed(s: TaskState, d: Draft, before: Draft | None) -> None:
    if s.open or s.loose or s.landed:
        raise InadmissibleError(
            rule="I16", detail="head_changed while an attempt may still land, or after something landed"
        )
    _check_grown(s, d)


def _check_reopened(s: TaskState, d: Draft, before: Draft | None) -> None:
    if s.owner or s.open or s.loose:
        raise InadmissibleError(rule="I16", detail="reopened while owned or in doubt")
    _check_grown(s, d)


def _check_grown(s: TaskState, d: Draft) -> None:
    if d.generation != s.generation + 1:
        raise InadmissibleError(rule="I16", detail="a generation grows by one")


def _check_settled(s: TaskState, d: Draft, before: Draft | None) -> None:
    step = s.current
    if s.hold is not Hold.PARKED or step is None:
        raise InadmissibleError(rule="V6", detail="settled needs a parked task and its step")
    if d.step != step.name:
        raise InadmissibleError(rule="V6", detail="settled names the step at the cursor")


def _check_asked(s: TaskState, d: Draft, before: Draft | None) -> None:
    if s.ended:
        raise InadmissibleError(rule="I15", detail=f"{d.kind} after {s.hold}")


def _check_resumed(s: TaskState, d: Draft, before: Draft | None) -> None:
    if s.hold not in (Hold.PARKED, Hold.PAUSED):
        raise InadmissibleError(rule="I7", detail="resumed a task that is neither parked nor paused")


def _check_canceled(s: TaskState, d: Draft, before: Draft | None) -> None:
    if s.open or s.loose or s.ended:
        raise InadmissibleError(rule="I15", detail="canceled while an attempt may still land, or after the end")


_CHECKS: dict[Kind, Callable[[TaskState, Draft, Draft | None], None] | None] = {
    Kind.OPENED: _check_opened,
    Kind.ACQUIRED: _check_free,
    Kind.INTENDED: _check_intended,
    Kind.APPLIED: _check_applied,
    Kind.REJECTED: _check_rejected,
    Kind.OBSERVED: None,
    Kind.STAGE_MOVED: _check_moved,
    Kind.PARKED: _check_free,
    Kind.RELEASED: _check_released,
    Kind.HEAD_CHANGED: _check_head_changed,
    Kind.SETTLED: _check_settled,
    Kind.PAUSED: _check_asked,
    Kind.CANCEL_REQUESTED: _check_asked,
    Kind.RESUMED: _check_resumed,
    Kind.CANCELED: _check_canceled,
    Kind.REOPENED: _check_reopened,
    Kind.HAZARD_FOUND: None,  # an auditor's note changes nothing
}
"""What each event of a task has to keep to beyond what `_check_writer` asks of all; None = nothing."""
