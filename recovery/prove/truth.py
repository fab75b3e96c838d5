"""
Truth: the journal must not only be well-formed, each of its sentences must be so (I9 F, I22, I23; ENGINE 9).

Depth in defence hides faults: with only "nothing lands twice" asked for, a wrong outcome stays unseen as long as a
guard saves the day. So every unit is checked against the far sides, and every landing against what the journal said.
"""

from __future__ import annotations

from journal.admit import admit
from journal.errors import InadmissibleError
from journal.events import Applied, Draft, Intended, Rejected, StageMoved
from journal.plan import EdgePlan, StepPlan
from journal.state import TaskState
from journal.words import Guard, Hold
from recovery.prove.world import Config, Violation, World

TWICE_ALLOWED = frozenset({Guard.REPEATABLE, Guard.AWAITED})


def admitted(task: TaskState, drafts: tuple[Draft, ...]) -> TaskState:
    """
    Write a unit as the product's log would.

    Raises:
        Violation: The log would refuse it.
    """
    try:
        return admit(task, drafts)
    except InadmissibleError as e:
        raise Violation(sort="inadmissible", what=str(e)) from e


def done(cfg: Config, w: World, n: int) -> bool:
    """Whether the world holds the n-th step's effect, or another's that the step takes for its own."""
    return bool(w.sides[n].landed) or (w.sides[n].other and cfg.steps[n].adopts)


def check_unit(cfg: Config, w: World, drafts: tuple[Draft, ...], after: TaskState) -> None:
    """
    Hold what a unit says against the world.

    Raises:
        Violation: It is not so.
    """
    place = cfg.place
    for d in drafts:
        match d.body:
            case Applied() if not done(cfg, w, place[d.step]):
                raise Violation(sort="false", what=f"applied {d.step} without its effect")
            case Intended() if w.task.cancel:
                raise Violation(sort="false", what=f"{d.step}#{d.attempt} intended after a cancel was requested")
            case Rejected() if w.sides[place[d.step]].landed == d.attempt:
                raise Violation(sort="false", what=f"rejected {d.step}#{d.attempt}, which landed")
            case StageMoved(to_stage=to_stage) if w.task.plan is not None and to_stage == w.task.plan.on_failure:
                _check_rollback(w, w.task.plan, place)
            case _:
                pass
    if after.hold is Hold.DONE and not all(done(cfg, w, place[name]) for name in cfg.way):
        raise Violation(sort="false", what="done without every effect")


def _check_rollback(w: World, plan: EdgePlan, place: dict[str, int]) -> None:
    for step in plan.steps:
        if step.guard not in TWICE_ALLOWED and w.sides[place[step.name]].landed:
            raise Violation(sort="false", what=f"rolled back though {step.name} landed")


def check_landing(cfg: Config, w: World, step: StepPlan, attempt: int) -> None:
    """
    Hold a landing against what the journal said about this attempt.

    Raises:
        Violation: The journal said that it never would, or said nothing at all.
    """
    t = w.task
    if w.left.restore != cfg.bounds.restore:  # a restored journal counts attempts anew
        return
    if step.guard in TWICE_ALLOWED or step.name in t.closed:
        return
    if t.hold is Hold.CANCELED:
        raise Violation(sort="false", what=f"{step.name} landed after the task was canceled")
    if t.plan is not None and step in t.plan.steps and t.stage == t.plan.on_failure != t.plan.source:
        raise Violation(sort="false", what=f"{step.name} landed after the task was rolled back")
    if t.current != step:
        return
    if t.attempts < max(attempt, 1) and cfg.full_sync:
        raise Violation(sort="false", what=f"{step.name}#{attempt} landed without its intent")
    if t.attempts == attempt and not t.open:
        raise Violation(sort="false", what=f"{step.name}#{attempt} was recorded as not applied and landed")
