"""
What a task is: the fold of its events. Pure and total; no clock, no I/O (DESIGN 1, ENGINE 1).

`TaskState` holds everything a decision may depend on and no history, so two journals with equal folds behave alike from
here on; the explorer relies on that. What only adapters and people need lies in `journal.stream`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from journal.events import (
    Acquired,
    Applied,
    Body,
    Canceled,
    CancelRequested,
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
    Unread,
)
from journal.plan import EdgePlan, StepPlan
from journal.words import Ending, Fact, Guard, Hold

# Python 3.11 takes twenty times longer to look a member up in its class than a name in its module.
_FREE, _PARKED, _PAUSED, _DONE, _CANCELED = Hold.NONE, Hold.PARKED, Hold.PAUSED, Hold.DONE, Hold.CANCELED
_MAY_LAND_LATE = (Guard.EXCLUSIVE, Guard.REPEATABLE)
_AWAITED, _OURS, _WAITING = Guard.AWAITED, Fact.OURS, Ending.WAITING


class TaskState(NamedTuple):
    """The fold. `stage == ""` means that the task was never opened."""

    stage: str = ""
    generation: int = 0
    epoch: int = 0
    owner: str = ""  # the run that owns it; "" = free
    plan: EdgePlan | None = None  # of the latest term
    closed: tuple[str, ...] = ()  # steps closed in this generation, in order; none runs again (PROTOCOL 4.2)
    intents: tuple[tuple[str, int], ...] = ()  # step -> attempts begun, for steps begun and not closed
    forgiven: tuple[tuple[str, int], ...] = ()  # step -> attempts before a person or a rollback allowed new ones
    open: bool = False  # the last attempt of the cursor's step has no outcome
    hold: Hold = _FREE
    cancel: bool = False
    landed: bool = False  # something irreversible was applied in this generation
    fruitless: int = 0  # terms in a row without a closed step; a look at a waiting task is none (O2)
    looks: int = 0  # terms in a row that ended waiting
    lane: str = ""
    rollbacks: int = 0  # in this generation
    loose: bool = False  # an attempt before the last was superseded in doubt and may still land (exclusive, repeatable)
    unread: bool = False  # an event of a newer version stands in its stream: nothing that follows is understood here
    floor: int = 0  # of the log's incarnation, not of this task's events: the log puts it in when it reads

    @property
    def next_epoch(self) -> int:
        """One above all that was ever handed out for the task, also before a restore (F1)."""
        return max(self.epoch, self.floor) + 1

    @property
    def current(self) -> StepPlan | None:
        """The cursor: the first step of the plan not closed in this generation."""
        if self.plan is not None:
            for step in self.plan.steps:
                if step.name not in self.closed:
                    return step
        return None

    @property
    def attempts(self) -> int:
        """Attempts begun for the cursor's step."""
        step = self.current if self.intents else None
        return _count(self.intents, step.name) if step else 0

    @property
    def tries(self) -> int:
        """Attempts of the cursor's step that count against its limit."""
        step = self.current if self.intents else None
        return _count(self.intents, step.name) - _count(self.forgiven, step.name) if step else 0

    @property
    def begun(self) -> bool:
        """The plan's edge has an intent or a closed effect: from here on only this plan counts."""
        if self.plan is None or self.plan.source != self.stage:
            return False
        for step in self.plan.steps:
            if step.guard is not _AWAITED and (step.name in self.closed or _count(self.intents, step.name)):
                return True
        return False

    @property
    def ended(self) -> bool:
        return self.hold is _DONE or self.hold is _CANCELED


class Told(Protocol):
    """What the fold asks of an event: a draft's, or what is recalled of a stored one (`journal.projection`)."""

    @property
    def body(self) -> Body: ...
    @property
    def epoch(self) -> int: ...
    @property
    def generation(self) -> int: ...
    @property
    def step(self) -> str: ...
    @property
    def attempt(self) -> int: ...


_PLACES = {name: place for place, name in enumerate(TaskState._fields)}


def _but(s: TaskState, **changes: Any) -> TaskState:
    """`s._replace` in a third of the time: it asks for each of the fields, this for those that change."""
    values: list[Any] = [*s]
    for name, value in changes.items():
        values[_PLACES[name]] = value
    return tuple.__new__(TaskState, values)


def _count(attempts: tuple[tuple[str, int], ...], step: str) -> int:
    """Attempts of a step; a loop, since there are at most a handful and this is asked before every action."""
    for name, number in attempts:
        if name == step:
            return number
    return 0


def _without(attempts: tuple[tuple[str, int], ...], step: str) -> tuple[tuple[str, int], ...]:
    return tuple([pair for pair in attempts if pair[0] != step]) if attempts else ()


def _forgive_last(s: TaskState) -> tuple[tuple[str, int], ...]:
    """Its term died with the attempt open: our own restart uses none up (R43, R126); `fruitless` bounds such terms."""
    step = s.current
    if step is None:
        return s.forgiven
    return (*_without(s.forgiven, step.name), (step.name, _count(s.forgiven, step.name) + 1))


def evolve(s: TaskState, e: Told) -> TaskState:
    """Take in one event. Total: a stored fact is never refused."""
    if s.unread:
        return s
    match e.body:
        case Intended(guard=guard, lane=lane):
            return _begun(s, e, guard, lane)
        case Applied():
            return _closed(s, e)
        case Rejected():
            return _but(s, open=False)
        case Observed(fact=fact):
            freed = s.hold is _PARKED and not s.owner and fact is _OURS
            return _but(s, hold=_FREE, fruitless=0, looks=0) if freed else s
        case Acquired(owner=owner, plan=plan):
            term = _but(s, epoch=e.epoch, owner=owner.run, plan=plan, fruitless=s.fruitless + 1)
            return _but(term, forgiven=_forgive_last(s)) if s.owner and s.open else term
        case Released(ending=ending):
            waiting = ending is _WAITING
            looks, fruitless = (s.looks + 1, s.fruitless - 1) if waiting else (0, s.fruitless)
            return _but(s, owner="", looks=looks, fruitless=max(0, fruitless))
        case StageMoved(to_stage=to_stage, final=final):
            hold = _DONE if final else s.hold
            back = s.plan is not None and to_stage != s.plan.target
            return _but(
                s, stage=to_stage, hold=hold, open=False, lane="", looks=0, fruitless=0, forgiven=s.intents,
                rollbacks=s.rollbacks + back,
            )  # fmt: skip
        case Parked():
            return _but(s, hold=_PARKED, lane="")
        case Settled(applied=applied):
            free = _but(s, hold=_FREE, open=False, owner="", fruitless=0, looks=0)
            return _closed(free, e) if applied else _but(free, forgiven=s.intents, loose=False)
        case Paused():
            return _but(s, hold=_PAUSED, owner="")
        case Resumed():
            return _but(s, hold=_FREE, owner="", fruitless=0, looks=0, forgiven=s.intents)
        case CancelRequested():
            return _but(s, cancel=True, owner="")
        case Canceled():
            return _but(s, hold=_CANCELED, owner="", lane="")
        case Opened(stage=stage):
            return _but(s, stage=stage, generation=e.generation)
        case HeadChanged(stage=stage):
            return TaskState(stage, e.generation, s.epoch, s.owner, s.plan, fruitless=s.fruitless, floor=s.floor)
        case Unread():
            return _but(s, hold=_PARKED, unread=True, owner="", lane="")
        case Reopened(stage=stage):
            return TaskState(stage, e.generation, s.epoch, floor=s.floor)
        case _:
            return s


# The two that most events are take the state apart and put it together, which is the quickest way there is.


def _begun(s: TaskState, e: Told, guard: Guard, lane: str) -> TaskState:
    (
        stage, generation, epoch, owner, plan, closed, intents, forgiven, in_doubt, hold, cancel, landed,
        fruitless, looks, _, rollbacks, loose, unread, floor,
    ) = s  # fmt: skip
    intents = (*_without(intents, e.step), (e.step, e.attempt))
    # What fenced and probed re-drive is dead by then: quiesced. An exclusive one may land instead of the new.
    loose = loose or (in_doubt and guard in _MAY_LAND_LATE)
    return TaskState(
        stage, generation, epoch, owner, plan, closed, intents, forgiven, True, hold, cancel, landed,
        fruitless, looks, lane, rollbacks, loose, unread, floor,
    )  # fmt: skip


def _closed(s: TaskState, e: Told) -> TaskState:
    (
        stage, generation, epoch, owner, plan, closed, intents, forgiven, _, hold, cancel, landed,
        _, _, lane, rollbacks, _, unread, floor,
    ) = s  # fmt: skip
    step = e.step
    return TaskState(
        stage, generation, epoch, owner, plan, (*closed, step), _without(intents, step), _without(forgiven, step),
        False, hold, cancel, landed or _irreversible(plan, step), 0, 0, lane, rollbacks, False, unread, floor,
    )  # fmt: skip


def _irreversible(plan: EdgePlan | None, step: str) -> bool:
    if plan is not None:
        for planned in plan.steps:
            if planned.name == step and planned.irreversible:
                return True
    return False


def fold(events: Iterable[Told], start: TaskState = TaskState()) -> TaskState:
    """Take in many events."""
    for e in events:
        start = evolve(start, e)
    return start
