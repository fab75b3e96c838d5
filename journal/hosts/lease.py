"""
Whether this process may still begin an effect, by its own clock alone (M2, TR-1).

A lease is counted from before the beat was sent, on the clock that goes on while a machine sleeps. Whoever was stopped
or cut off finds it over before others may suspect it; what it had begun by then is what the guards are for.
"""

from __future__ import annotations

import time
from collections.abc import Callable


def boot_clock_s() -> float:
    """Seconds since the machine started, sleep included: CLOCK_MONOTONIC stands still while it is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """Renewed by the thread that beats, read by every other; a float is written and read whole."""

    def __init__(self, holds_s: float, now_s: Callable[[], float] = boot_clock_s) -> None:
        self._holds_s, self.now_s = holds_s, now_s
        self._until_s = float("-inf")

    def renew(self, sent_s: float) -> None:
        """A beat that was sent at this moment has reached the database."""
        self._until_s = max(self._until_s, sent_s + self._holds_s)

    def give_up(self) -> None:
        """No effect begins any more, whatever the clock says."""
        self._until_s = float("-inf")

    @property
    def held(self) -> bool:
        return self.now_s() < self._until_s

    def refusal(self) -> str:
        """Why no effect may begin; "" = it may."""
        if self.held:
            return ""
        if self._until_s == float("-inf"):
            return "this process has no lease on its work: the database has not heard from it yet, or it is ending"
        late_s = self.now_s() - self._until_s + self._holds_s
        return f"the database has not heard from this process for {late_s:.0f} s: others may take its work over"
