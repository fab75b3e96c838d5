"""The figures that are looked for, each with the floor below which it is a defect and the goal (P1-P15)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How a figure stands to its target."""

    GOAL = "goal reached"
    FLOOR = "above the floor"
    MISSED = "below the floor"
    UNSET = "no target was set"


@dataclass(frozen=True, slots=True)
class Target:
    """One ratio. `ceiling`: smaller is better, so floor and goal bound it from above. Nobody set any for some."""

    name: str
    what: str
    floor: float | None = None
    goal: float | None = None
    ceiling: bool = False

    def verdict(self, ratio: float) -> Verdict:
        """Compare a measured ratio; the floor is exact, noise is for the spread to tell."""
        if self.floor is None or self.goal is None:
            return Verdict.UNSET
        if self.ceiling:
            return Verdict.GOAL if ratio <= self.goal else Verdict.FLOOR if ratio <= self.floor else Verdict.MISSED
        return Verdict.GOAL if ratio >= self.goal else Verdict.FLOOR if ratio >= self.floor else Verdict.MISSED


_ALL = (
    Target("P1", "durable appends, 1 producer, of raw one-event transactions", 0.33, 0.55),
    Target("P1e", "durable appends, 1 producer, of `eventsourcing` on SQLite, one event a save"),
    Target("P2", "durable appends, 100 producers, of raw 100-event transactions", 0.40, 0.60),
    Target("P3", "durable appends, 1,000 producers, of raw 1,000-event transactions", 0.45, 0.70),
    Target("G1", "durable appends on PostgreSQL, 1 caller, of raw one-event transactions", 0.3, 0.5),
    Target("G10", "durable appends on PostgreSQL, 10 callers, of raw 10-event transactions", 0.3, 0.5),
    Target("G100", "durable appends on PostgreSQL, 100 callers, of raw 100-event transactions", 0.3, 0.5),
    Target("G2p", "durable appends on PostgreSQL, 2 hosts of 50 callers, of one host of 100", 0.8, 1.2),
    Target("G4p", "durable appends on PostgreSQL, 4 hosts of 25 callers, of one host of 100", 0.6, 1.2),
    Target("P4", "six steps, one task after the other, against DBOS on SQLite-WAL", 2, 4),
    Target("P4s", "six steps, one task after the other, against DBOS on SQLite as shipped"),
    Target("P5", "six steps, 100 tasks at once, against DBOS on SQLite-WAL", 15, 40),
    Target("P5r", "six steps, 100 tasks at once, against Restate", 5, 12),
    Target("P5s", "six steps, 100 tasks at once, against DBOS on SQLite as shipped"),
    Target("P6", "recovery of in-doubt tasks, against DBOS on SQLite-WAL", 25, 75),
    Target("P6r", "recovery of in-doubt tasks, against Restate", 3, 8),
    Target("P7", "the same recovery on a long history against a short one", 1.5, 1.1, ceiling=True),
    Target("P8", "GET /queue p99 with many tasks against few, while events are written", 1.5, 1.2, ceiling=True),
    Target("P8t", "GET /tasks/ID p99 with many tasks against few, while events are written", ceiling=True),
    Target("P9", "GET /queue requests/s, of the same answer through a response model", 3, 4.5),
    Target("P10", "projection rebuild, of reading the rows undecoded", 0.25, 0.5),
    Target("P10v", "chain verification, of a plain SHA-256 loop over the rows", 0.7, 0.9),
    Target("P11", "inspect of one task in a long history against a short one", 1.3, 1.1, ceiling=True),
    Target("P11t", "the queue as of an earlier point of a long history against a short one", ceiling=True),
    Target("P12", "`journal inspect`, start to answer, of importing fastapi", 0.6, 0.4, ceiling=True),
    Target("P13", "serve, start to ready, of importing what it needs", 2, 1.2, ceiling=True),
    Target("P14c1", "six steps, one task after the other, on PostgreSQL, against DBOS on the same server"),
    Target("P14c10", "six steps, 10 tasks at once, on PostgreSQL, against DBOS on the same server"),
    Target("P14", "six steps, 100 tasks at once, on PostgreSQL, against DBOS on the same server", 8, 20),
    Target("P14p2", "six steps, 100 tasks at once in 2 processes, on PostgreSQL, against 2 of DBOS on the same server"),
    Target("P14p4", "six steps, 100 tasks at once in 4 processes, on PostgreSQL, against 4 of DBOS on the same server"),
    Target("P15", "memory of serve with many tasks against few", 1.5, 1.1, ceiling=True),
    Target("P15v", "peak memory of `journal verify` over a long log against a short one", ceiling=True),
    Target("P15r", "peak memory of `journal projections rebuild` over a long log against a short one", ceiling=True),
    Target("P15d", "bytes of disk an event with a body of 318 bytes", 650, 520, ceiling=True),
)

TARGETS = {target.name: target for target in _ALL}
