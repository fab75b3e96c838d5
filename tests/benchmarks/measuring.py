"""
How a figure is taken: rounds of both sides in turn, the median of the rounds' ratios, their spread, CPU beside time.

A machine that others use too is slow for seconds at a time; a ratio of two neighbouring rounds hardly notices, the
median of several notices less. CPU seconds are of all threads of the process and notice least.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

from tests.benchmarks.targets import TARGETS, Target, Verdict


@dataclass(slots=True)
class Timed:
    """One round: so many operations in so many seconds."""

    operations: int
    seconds: float = 0.0
    cpu_s: float = 0.0

    @property
    def rate(self) -> float:
        """Operations a second."""
        return self.operations / self.seconds


@contextmanager
def timed(operations: int) -> Iterator[Timed]:
    """Time a round of this process."""
    round_ = Timed(operations)
    begun, cpu = time.perf_counter(), time.process_time()
    yield round_
    round_.seconds, round_.cpu_s = time.perf_counter() - begun, time.process_time() - cpu


@dataclass(slots=True)
class Side:
    """One of two things that are compared: its rounds, and what was counted apart from them."""

    name: str
    rounds: list[Timed] = field(default_factory=list)
    flushes: float | None = None  # an operation; counted in a round of its own

    @property
    def rate(self) -> float:
        return median(r.rate for r in self.rounds)

    @property
    def cpu_us(self) -> float:
        """CPU microseconds an operation."""
        return median(r.cpu_s / r.operations for r in self.rounds) * 1e6

    @property
    def measured(self) -> bool:
        return bool(self.rounds)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    target: Target
    ratio: float
    spread: tuple[float, float]  # lowest and highest of the rounds
    ours: str
    base: str
    cpu_ratio: float | None = None  # by CPU instead of by the clock, the same way up
    note: str = ""
    points: tuple[tuple[int, float], ...] = ()  # (events in the log, microseconds an operation), for the plot

    @property
    def verdict(self) -> Verdict:
        return self.target.verdict(self.ratio)


def compared(name: str, ours: Side, base: Side, *, unit: str, note: str = "", size: int = 0) -> Row:
    """Ratio of rates, round by round; `size` is of the log, in events, if that matters."""
    ratios = [mine.rate / other.rate for mine, other in zip(ours.rounds, base.rounds, strict=True)]
    return Row(
        TARGETS[name],
        median(ratios),
        (min(ratios), max(ratios)),
        described(ours, unit),
        described(base, unit),
        base.cpu_us / ours.cpu_us if ours.cpu_us and base.cpu_us else None,
        note,
        ((size, 1e6 / ours.rate),) if size else (),
    )


def grown(
    name: str, small: Side, large: Side, *, unit: str, note: str = "", sizes: tuple[int, int] | None = None
) -> Row:
    """Ratio of times, large against small, smaller being better; `sizes` are events in the two logs, if it is those."""
    ratios = [big.seconds / little.seconds for big, little in zip(large.rounds, small.rounds, strict=True)]
    return Row(
        TARGETS[name],
        median(ratios),
        (min(ratios), max(ratios)),
        described(large, unit),
        described(small, unit),
        large.cpu_us / small.cpu_us if small.cpu_us and large.cpu_us else None,
        note,
        tuple(zip(sizes, (1e6 / small.rate, 1e6 / large.rate), strict=True)) if sizes else (),
    )


def described(side: Side, unit: str) -> str:
    """What a side did, in words for the table."""
    flushes = "" if side.flushes is None else f", {side.flushes:.2f} flushes"
    return f"{side.name}: {side.rate:,.4g} {unit}/s, {side.cpu_us:,.0f} us CPU{flushes} each"


async def in_turn(rounds: int, *sides: tuple[Side, Callable[[], Awaitable[Timed]]]) -> None:
    """Run the sides' rounds in turn: A B, B A, A B, ..."""
    for number in range(rounds):
        for side, run in sides if number % 2 == 0 else tuple(reversed(sides)):
            side.rounds.append(await run())
