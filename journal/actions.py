"""
What the engine can name (actions) and what can come of it (results): the whole vocabulary between it and its shell.

Values only. Whoever performs them - the shell, crash points, spans, the world of the explorer - needs no engine.
"""

from __future__ import annotations

from dataclasses import dataclass

from journal.events import Draft
from journal.plan import EdgePlan, StepPlan
from journal.ports import Answer, Finding, Reply
from journal.state import TaskState
from journal.words import Ending, Standing

# Actions and results are dataclasses and no NamedTuples: there Locked() == Unlocked(), and a cache would mix them up.


@dataclass(frozen=True, slots=True)
class TakeLock:
    """Without blocking. The lock is held for the whole term and inherited by every child: it is the liveness."""


@dataclass(frozen=True, slots=True)
class EndHolder:
    """Cancel the run and kill the process groups of whoever holds the lock past the budget."""


@dataclass(frozen=True, slots=True)
class Read:
    """Read the task's stream."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the edge's gates."""

    plan: EdgePlan


@dataclass(frozen=True, slots=True)
class Append:
    """Write a unit of events, if the stream is still the one this was decided from."""

    expect: TaskState
    drafts: tuple[Draft, ...]


@dataclass(frozen=True, slots=True)
class Quiesce:
    """Make absence stable: install the fence (fenced), or wait until no carrier of an attempt is left (probed)."""

    step: StepPlan
    fence: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Probe:
    """Ask the world about the cursor's step."""

    step: StepPlan


@dataclass(frozen=True, slots=True)
class Apply:
    """Perform the effect whose intent is durable."""

    step: StepPlan
    key: tuple[int, str]  # (generation, step): identifies, never contains the epoch
    fence: tuple[int, int]  # (epoch, attempt): orders


@dataclass(frozen=True, slots=True)
class Wait:
    """Pause inside the term, a little longer each time."""

    nth: int
    step: StepPlan


@dataclass(frozen=True, slots=True)
class Unlock:
    """Give the lock back."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The run is over."""

    ending: Ending
    reason: str = ""


Action = TakeLock | EndHolder | Read | Ask | Append | Quiesce | Probe | Apply | Wait | Unlock | Finished


@dataclass(frozen=True, slots=True)
class Locked:
    """The lock is ours."""


@dataclass(frozen=True, slots=True)
class Busy:
    """Somebody holds the lock; overdue = for longer than the budget, and this actor may act on it."""

    overdue: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """The holder was told to go."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The task as the log has it, and how sure it is that the owner it names, if any, is no more."""

    state: TaskState
    owner: Standing = Standing.GONE  # who holds a lock that nobody can share knows


@dataclass(frozen=True, slots=True)
class Asked:
    """The gates' common answer."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class Appended:
    """The unit is durable."""

    state: TaskState


@dataclass(frozen=True, slots=True)
class Lost:
    """The stream had moved on; nothing was written."""

    state: TaskState


@dataclass(frozen=True, slots=True)
class Occupied:
    """Another task has an open intent in the lane; nothing was written."""

    holder: str


@dataclass(frozen=True, slots=True)
class Quiet:
    """Absence is stable from here on, as far as whoever began the last attempt is gone."""

    carrier: Standing = Standing.GONE


@dataclass(frozen=True, slots=True)
class Probed:
    """What the world shows; late = the deadline for this fact has passed."""

    finding: Finding
    late: bool = False


@dataclass(frozen=True, slots=True)
class Replied:
    """What the attempt claims."""

    reply: Reply


@dataclass(frozen=True, slots=True)
class Waited:
    """The pause is over."""


@dataclass(frozen=True, slots=True)
class Unlocked:
    """The lock is free."""


Result = (
    Locked | Busy | Ended | Seen | Asked | Appended | Lost | Occupied | Quiet | Probed | Replied | Waited | Unlocked
)  # fmt: skip
