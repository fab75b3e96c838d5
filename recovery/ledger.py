"""
The books that the invariants are checked against: one task's history, kept small, and apart from `journal.state`.

`journal.state` keeps what decisions need, this keeps what checking needs. That both are written separately is the
point: a wrong fold cannot excuse itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from journal.events import (
    Acquired,
    Applied,
    Canceled,
    CancelRequested,
    Draft,
    Event,
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
from journal.plan import EdgePlan, StepPlan
from journal.words import Ending, Fact, Guard, Hold, Kind

# Python 3.11 takes twenty times longer to look a member up in its class than a name in its module.
ENDED = frozenset({Hold.DONE, Hold.CANCELED})


class OpenIntent(NamedTuple):
    """The attempt without an outcome."""

    step: str
    attempt: int
    epoch: int


class Rest(NamedTuple):
    """What is kept of a task that ended and that nobody owns: enough to check whatever may follow."""

    version: int
    position: int
    stage: str
    generation: int
    epoch: int
    hold: Hold
    basis: int
    moved_in: int


@dataclass(slots=True)
class Ledger:
    """What one task's events so far amount to."""

    version: int = 0
    position: int = 0
    stage: str = ""
    generation: int = 0
    epoch: int = 0
    owner: str = ""
    plan: EdgePlan | None = None
    hold: Hold = Hold.NONE
    lane: str = ""
    basis: int = 0  # position of the last outcome, settlement or acquisition
    moved_in: int = 0  # epoch of the last stage move
    fruitless: int = 0  # terms in a row without a closed step, looks not counted
    landed: bool = False
    cancel: bool = False
    loose: bool = False  # an attempt was superseded in doubt and may still land
    open: OpenIntent | None = None
    closed: set[str] = field(default_factory=set)
    begun: dict[str, int] = field(default_factory=dict)  # step -> attempts of this generation
    tries: dict[str, int] = field(
        default_factory=dict
    )  # step -> attempts since a person or a rollback allowed new ones
    fences: dict[str, tuple[int, int]] = field(default_factory=dict)
    before: Draft | None = None
    owed: frozenset[Kind] = frozenset()  # kinds of which one must come next

    @property
    def cursor(self) -> StepPlan | None:
        """The first step of the plan that is not closed; a loop, since every event asks three times."""
        if self.plan is not None:
            for step in self.plan.steps:
                if step.name not in self.closed:
                    return step
        return None

    @property
    def cursor_name(self) -> str:
        step = self.cursor
        return step.name if step is not None else ""

    @property
    def attempts(self) -> int:
        return self.begun.get(self.cursor_name, 0)

    @property
    def over(self) -> bool:
        """It ended, its term too: nothing can follow but a note, or `reopened`, which begins anew."""
        return self.hold in ENDED and not self.owner and not self.owed

    def rest(self) -> Rest:
        """What is kept once it is over: a tenth, which counts with a million tasks."""
        return Rest(
            self.version, self.position, self.stage, self.generation, self.epoch, self.hold, self.basis, self.moved_in
        )

    @classmethod
    def of(cls, rest: Rest) -> Ledger:
        """Books that go on from a rest."""
        return cls(**rest._asdict())

    def is_open(self, d: Draft) -> bool:
        """The event is about the attempt that has no outcome."""
        return self.open is not None and (self.open.step, self.open.attempt) == (d.step, d.attempt)

    def take(self, event: Event) -> None:
        """Book an event, whether or not it should be there."""
        d = event.draft
        self.version, self.position, self.before = event.version, event.position, d
        match d.body:
            case Opened(stage=stage):
                self.stage, self.generation = stage, d.generation
            case Acquired(owner=owner, plan=plan):
                if self.owner and self.open is not None:
                    # Its term died with the attempt open: our own restart uses none up (R43, R126).
                    self.tries[self.open.step] = self.tries.get(self.open.step, 0) - 1
                self.epoch, self.owner, self.plan = d.epoch, owner.run, plan
                self.basis, self.fruitless = event.position, self.fruitless + 1
            case Intended(lane=lane):
                self._begin(d, lane)
            case Applied():
                self._close(d.step, event.position)
            case Rejected():
                self.open = None
            case Observed(fact=fact):
                if self.hold is Hold.PARKED and not self.owner and fact is Fact.OURS:
                    self.hold = Hold.NONE
            case StageMoved(to_stage=to_stage, final=final):
                self._move(to_stage, d.epoch, final=final)
            case Parked():
                self.hold, self.lane = Hold.PARKED, ""
            case Released(ending=ending):
                self.owner = ""
                self.fruitless = max(0, self.fruitless - (ending is Ending.WAITING))
            case HeadChanged(stage=stage):
                self._begin_generation(d, stage)
            case _:
                self._take_verb(d, event.position)

    def _take_verb(self, d: Draft, position: int) -> None:
        """An operator's verb ends the running term."""
        match d.body:
            case Settled(applied=applied):
                self.owner, self.hold, self.open, self.basis, self.fruitless = "", Hold.NONE, None, position, 0
                self.loose = False
                self.tries.clear()
                if applied:
                    self._close(d.step, position)
            case Paused():
                self.owner, self.hold = "", Hold.PAUSED
            case Resumed():
                self.owner, self.hold, self.fruitless = "", Hold.NONE, 0
                self.tries.clear()
            case CancelRequested():
                self.owner, self.cancel = "", True
            case Canceled():
                self.owner, self.hold, self.lane = "", Hold.CANCELED, ""
            case Reopened(stage=stage):
                self._begin_generation(d, stage)
                self.owner, self.hold, self.plan, self.fruitless = "", Hold.NONE, None, 0
            case _:
                pass

    def _begin(self, d: Draft, lane: str) -> None:
        step = self.cursor
        # Fenced and probed re-drives come after the old attempt is made harmless; these two may both be under way.
        loosens = step is not None and step.guard in (Guard.EXCLUSIVE, Guard.REPEATABLE)
        self.loose = self.loose or (self.open is not None and loosens)
        self.open, self.lane = OpenIntent(d.step, d.attempt, d.epoch), lane
        self.begun[d.step] = d.attempt
        self.tries[d.step] = self.tries.get(d.step, 0) + 1
        self.fences[d.step] = max(self.fences.get(d.step, (0, 0)), (d.epoch, d.attempt))

    def _close(self, step: str, position: int) -> None:
        planned = next((s for s in self.plan.steps if s.name == step), None) if self.plan else None
        self.landed = self.landed or bool(planned and planned.irreversible)
        self.closed.add(step)
        self.tries.pop(step, None)
        self.open, self.loose, self.basis, self.fruitless = None, False, position, 0

    def _move(self, stage: str, epoch: int, *, final: bool) -> None:
        self.stage, self.moved_in, self.open, self.lane, self.fruitless = stage, epoch, None, "", 0
        self.tries.clear()
        if final:
            self.hold = Hold.DONE

    def _begin_generation(self, d: Draft, stage: str) -> None:
        self.stage, self.generation, self.landed, self.open, self.lane = stage, d.generation, False, None, ""
        self.cancel = self.loose = False
        for book in (self.closed, self.begun, self.tries, self.fences):
            book.clear()
