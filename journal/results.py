"""
What `advance_stage` and the ownership functions answer: frozen, exhaustively matchable, no exceptions (FR-7, NFR-1).

`match` on them without a catch-all, so that a type checker names the case you forgot.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Advanced:
    """Every step of the edge is closed and the stage moved."""

    task: str
    from_stage: str
    to_stage: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Deferred:
    """Another run holds the task; nothing was done, and the deferral was counted."""

    task: str
    holder: str  # actor@host:pid of whoever holds it, "" if that cannot be read
    epoch: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """A named fact is not known yet; the next look is due by itself."""

    task: str
    stage: str
    reason: str
    look_ms: int = 0  # milliseconds until the next look


@dataclass(frozen=True, slots=True)
class LostRace:
    """The task moved on meanwhile, or is not in the expected stage; no stage, no step event, no effect."""

    task: str
    stage: str  # where it is now
    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class Parked:
    """Left to a person, with an alert."""

    task: str
    stage: str
    reason: str


@dataclass(frozen=True, slots=True)
class RolledBack:
    """A step was refused for good; the stage went back along `on_failure`, nothing was undone."""

    task: str
    to_stage: str
    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Not possible as asked: unknown task, no edge, a closed gate, a paused, canceled or finished task."""

    task: str
    reason: str
    stage: str = ""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """The mechanism itself failed; irreversible steps read this as "stop", claiming as "go on" (FR-7)."""

    task: str
    reason: str


@dataclass(frozen=True, slots=True)
class Freed:
    """An operator took a stuck ownership away; the task is free under a new epoch."""

    task: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Done:
    """An operator's verb was recorded."""

    task: str
    what: str  # in a person's words
    stage: str  # where the task is after it
    version: int


Result = Advanced | Deferred | Waiting | LostRace | Parked | RolledBack | Refused | Unavailable
