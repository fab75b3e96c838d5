"""A bound on each thing that one task awaits in turn, with one timer for all of them."""

from __future__ import annotations

import asyncio
from types import TracebackType


class Deadline:
    """
    Cuts off what its task awaits past a budget, as `asyncio.timeout` does.

    What ends in time leaves the timer where it is; when that rings it looks what is awaited by then. So the eighteen
    questions and orders of six steps take one timer, which whoever made the deadline closes at last.
    """

    __slots__ = ("_cancelling", "_cut", "_due_s", "_loop", "_once", "_task", "_timer", "_watching")

    _loop: asyncio.AbstractEventLoop

    def __init__(self, *, once: bool = False) -> None:
        self._task: asyncio.Task[object] | None = None  # whose first question came through here
        self._once = once
        self._timer: asyncio.TimerHandle | None = None
        self._watching = False  # something is to be cut off
        self._due_s = 0.0  # of the loop's clock
        self._cancelling = 0
        self._cut = False

    def within(self, budget_s: float) -> Deadline:
        """
        Bound what follows in a `with`. Another task, or what is awaited beside, gets a deadline of its own.

        Raises:
            TimeoutError: At its end: the budget was used up and nobody else cancelled the task.
        """
        task = asyncio.current_task()
        assert task is not None
        if self._task is None:
            self._task, self._loop = task, task.get_loop()
        elif self._watching or task is not self._task:
            return Deadline(once=True).within(budget_s)
        self._due_s = self._loop.time() + budget_s
        return self

    def __enter__(self) -> None:
        assert self._task is not None
        self._watching, self._cut, self._cancelling = True, False, self._task.cancelling()
        if self._timer is None or self._timer.when() > self._due_s:
            self._arm()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._watching = False
        if self._once:
            self.close()
        if self._cut and self._task and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def close(self) -> None:
        """Take the timer back; safe to call twice."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self.close()
        self._timer = self._loop.call_at(self._due_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if not self._watching:
            return  # whatever is awaited next arms it again
        if self._loop.time() < self._due_s:
            self._arm()
        else:
            self._cut = True
            if self._task is not None:
                self._task.cancel()
