"""
One actor's try at one task, as a value: what is held, what was read, what is known of the world (DESIGN 1).

The engine names the next action from it (`journal.engine`), what came of that goes into the next one (`journal.learn`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from journal.actions import Probed
from journal.events import Body, Draft, Owner
from journal.plan import EdgePlan
from journal.ports import Answer
from journal.state import TaskState, fold
from journal.words import Cause, Ending, Evidence, Outcome, Standing

_GONE = Standing.GONE


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


def plan_of(edge: Callable[[str], EdgePlan | None], s: TaskState) -> EdgePlan | None:
    """A transition that has begun keeps the plan it was begun with; otherwise the pipeline says (DESIGN 7)."""
    return s.plan if s.begun else edge(s.stage)
