"""How much is measured: counts, never time, so that a run can be repeated. Quick takes a few minutes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    """Counts of one run."""

    rounds: int
    lone_appends: int  # of one producer, a round
    appends: int  # of many producers, a round
    lone_tasks: int  # six steps, one after the other
    tasks: int  # six steps, 100 at once
    peer_lone: int
    peer_tasks: int
    doubts: int  # tasks to be recovered
    peer_doubts: int
    short_log: int  # events
    long_logs: tuple[int, ...]
    requests: int


QUICK = Sizes(3, 600, 8_000, 60, 300, 15, 60, 300, 60, 10_000, (100_000,), 600)
FULL = Sizes(5, 3_000, 40_000, 300, 2_000, 60, 300, 1_000, 1_000, 10_000, (100_000, 1_000_000, 10_000_000), 10_000)
