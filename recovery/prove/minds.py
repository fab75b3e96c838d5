"""
Runs, interned: equal runs are one object, and what the engine says about each is asked once (ENGINE 6).

That is allowed because `next_action` and `learn` are pure. It makes a world cheap to hash, and a move cheap to make.
"""

from __future__ import annotations

from collections.abc import Callable

from journal.actions import (
    Action,
    Result,
)
from journal.run import Run
from journal.state import TaskState
from journal.words import Cause


class Mind:
    """One run and its next action; compared by identity."""

    __slots__ = ("action", "after", "run", "unit")

    def __init__(self, run: Run, action: Action) -> None:
        self.run = run
        self.action = action
        self.after: dict[Result, Mind] = {}
        self.unit: tuple[TaskState, TaskState] | None = None  # last append: the fold before and after it


class Minds:
    """All runs met in one search."""

    def __init__(self, next_action: Callable[[Run], Action], learn: Callable[[Run, Action, Result], Run]) -> None:
        self._next_action = next_action
        self._learn = learn
        self._known: dict[Run, Mind] = {}

    def of(self, run: Run) -> Mind:
        """The one mind for everything this run may still do."""
        run = essence(run)
        mind = self._known.get(run)
        if mind is None:
            mind = self._known[run] = Mind(run, self._next_action(run))
        return mind

    def learn(self, mind: Mind, result: Result) -> Mind:
        """The mind after this result of its action."""
        after = mind.after.get(result)
        if after is None:
            after = mind.after[result] = self.of(self._learn(mind.run, mind.action, result))
        return after


def essence(run: Run) -> Run:
    """Leave out what only people read and what nothing asks for any more."""
    if run.ending is not None:
        return Run(run.actor, run.me, run.route, locked=run.locked, ending=run.ending)
    return run._replace(cause=Cause.GONE, reason="", reply=())
