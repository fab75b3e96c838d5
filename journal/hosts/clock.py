"""
One wall clock for all hosts: the database's. A host's own may be hours off, and times in the log are read by others.

Times never decide safety (L5), but a look that is due at somebody's wrong hour is not made for hours.
"""

from __future__ import annotations

from journal.ports import Clock

STEADY_US = 100_000
"""Smaller differences are the way's, not the clock's."""


class SharedClock:
    """`Clock` that tells the database's time as of the last beat, by our own ticking since."""

    def __init__(self, own: Clock) -> None:
        self._own, self._ahead_us = own, 0

    def now_us(self) -> int:
        return self._own.now_us() + self._ahead_us

    def monotonic_s(self) -> float:
        return self._own.monotonic_s()

    async def sleep(self, seconds: float) -> None:
        await self._own.sleep(seconds)

    def heard(self, theirs_us: int) -> None:
        """The database said this time a moment ago; called in another thread, one assignment."""
        ahead_us = theirs_us - self._own.now_us()
        if abs(ahead_us - self._ahead_us) > STEADY_US:
            self._ahead_us = ahead_us
