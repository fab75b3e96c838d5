"""The elastic axis: a pause is drawn by its logarithm, so order and simultaneity are true and lengths are not; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from journal.events import Event

GUTTER, RIGHT = 128.0, 28.0
LEAST, MOST = 5.0, 90.0
"""Pixels of the shortest and the longest pause."""

WIDEST = 1140.0
"""A short history is stretched to this many pixels, so that it fills its frame."""


class Scale:
    """From an event to its place on the elastic axis; the order of versions wins over a clock that was set back."""

    def __init__(self, events: Sequence[Event], now_us: int) -> None:
        self.at: list[float] = []
        x, before = 0.0, events[0].at
        for event in events:
            x += _pause(event.at - before)
            before = max(before, event.at)
            self.at.append(x)
        self.now = x + max(30.0, _pause(now_us - before))
        stretch = max(1.0, (WIDEST - GUTTER - RIGHT) / self.now)
        self.at = [GUTTER + place * stretch for place in self.at]
        self.now = GUTTER + self.now * stretch
        self._first = events[0].version

    def of(self, event: Event) -> float:
        return self.at[event.version - self._first]


def _pause(us: int) -> float:
    return 0.0 if us <= 0 else min(MOST, LEAST + 9.0 * math.log10(1 + us / 1000))
