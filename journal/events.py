"""
The events: one frozen body per kind, drafts before they have a place, events after (DESIGN 4, PROTOCOL 4.1).

Bodies are plain dataclasses inside the engine (hashable, cheap); pydantic checks them strictly where they cross the
edge of the log, in `journal.codec`. Adding a field to a body means a new schema number there and an upcaster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from journal.plan import EdgePlan
from journal.words import Cause, Ending, Evidence, Fact, Guard, Kind

Via = Literal["apply", "probe", "other", "awaited"]


@dataclass(frozen=True, slots=True)
class Owner:
    """Who drives. Only `run` identifies; the rest is for people and never decides anything (F6)."""

    run: str  # unique per run, not per process
    instance: str = ""  # random id of the process, minted at its start
    host: str = ""
    pid: int = 0
    boot: str = ""
    ticks: int = 0  # start time of the process in clock ticks since boot


NOBODY = Owner("")


@dataclass(frozen=True, slots=True)
class Opened:
    """A task began. Written by: anyone. Read by: every view."""

    kind: ClassVar[Kind] = Kind.OPENED
    repo: str
    branch: str
    base: str
    head: str
    pr: int
    stage: str


@dataclass(frozen=True, slots=True)
class HeadChanged:
    """The change got a new head: a new generation, back to `stage` (`on_new_head`). Written by: the owner."""

    kind: ClassVar[Kind] = Kind.HEAD_CHANGED
    head: str
    stage: str


@dataclass(frozen=True, slots=True)
class Acquired:
    """
    A term of ownership began. `before` names the owner whose term had no end, `cause` why it is over.

    `trace`: the id of the run's OpenTelemetry trace, 32 hex digits, where something collects traces; decides nothing.
    """

    kind: ClassVar[Kind] = Kind.ACQUIRED
    owner: Owner
    plan: EdgePlan
    before: str = ""
    cause: Cause = Cause.NONE
    trace: str = ""  # schema 2


@dataclass(frozen=True, slots=True)
class Intended:
    """An attempt is about to start; durable before its effect (E1)."""

    kind: ClassVar[Kind] = Kind.INTENDED
    guard: Guard
    irreversible: bool
    lane: str
    budget_ms: int
    expected: Evidence = ()


@dataclass(frozen=True, slots=True)
class Applied:
    """The effect is in the world. `via`: apply (claimed, confirmed), probe (found), other (another's), awaited."""

    kind: ClassVar[Kind] = Kind.APPLIED
    via: Via
    seen: Evidence = ()


@dataclass(frozen=True, slots=True)
class Rejected:
    """The attempt did nothing and cannot land later (E6)."""

    kind: ClassVar[Kind] = Kind.REJECTED
    seen: Evidence = ()


@dataclass(frozen=True, slots=True)
class Observed:
    """The record of a decision: the table's cell, what was seen, what follows; in one unit with its consequence."""

    kind: ClassVar[Kind] = Kind.OBSERVED
    row: str
    fact: Fact
    guard: Guard
    verdict: str
    seen: Evidence = ()
    reply: Evidence = ()  # what the attempt before said: an exception's text, a status


@dataclass(frozen=True, slots=True)
class StageMoved:
    """A task left one stage for the next. `because`: position of the outcome it rests on, filled in by the log."""

    kind: ClassVar[Kind] = Kind.STAGE_MOVED
    from_stage: str
    to_stage: str
    final: bool = False
    because: int = 0


@dataclass(frozen=True, slots=True)
class Parked:
    """Left to a person. `alert` is stable, so that a repeated alert is recognised."""

    kind: ClassVar[Kind] = Kind.PARKED
    reason: str
    alert: str


@dataclass(frozen=True, slots=True)
class Settled:
    """An operator says how an attempt ended (V6)."""

    kind: ClassVar[Kind] = Kind.SETTLED
    applied: bool
    evidence: str
    reason: str


@dataclass(frozen=True, slots=True)
class HazardFound:
    """A fact contradicts the journal."""

    kind: ClassVar[Kind] = Kind.HAZARD_FOUND
    reason: str
    seen: Evidence = ()


@dataclass(frozen=True, slots=True)
class Released:
    """The term ended. `look_ms`: when waiting, milliseconds after this event until the next look is due."""

    kind: ClassVar[Kind] = Kind.RELEASED
    ending: Ending
    reason: str = ""
    look_ms: int = 0


@dataclass(frozen=True, slots=True)
class Paused:
    """An operator stops the task from being driven."""

    kind: ClassVar[Kind] = Kind.PAUSED
    reason: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """An operator lets a paused or parked task be driven again (`retry` is this with its reason)."""

    kind: ClassVar[Kind] = Kind.RESUMED
    reason: str


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """An operator asks for the end; takes effect before the next irreversible call."""

    kind: ClassVar[Kind] = Kind.CANCEL_REQUESTED
    reason: str


@dataclass(frozen=True, slots=True)
class Canceled:
    """The task ended on request, with no attempt in doubt."""

    kind: ClassVar[Kind] = Kind.CANCELED
    reason: str


@dataclass(frozen=True, slots=True)
class Reopened:
    """An operator begins a new generation at `stage`."""

    kind: ClassVar[Kind] = Kind.REOPENED
    stage: str
    head: str
    reason: str


@dataclass(frozen=True, slots=True)
class JournalCreated:
    """The first event of every log."""

    kind: ClassVar[Kind] = Kind.JOURNAL_CREATED
    journal: str  # random id, survives a restore


@dataclass(frozen=True, slots=True)
class IncarnationStarted:
    """The log was restored from a copy: epochs begin above `floor`."""

    kind: ClassVar[Kind] = Kind.INCARNATION_STARTED
    floor: int
    restored_from: str


@dataclass(frozen=True, slots=True)
class Switched:
    """The mechanism was switched on or off."""

    kind: ClassVar[Kind] = Kind.SWITCHED
    enabled: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Sealed:
    """The head was anchored outside the file."""

    kind: ClassVar[Kind] = Kind.SEALED
    position: int
    hash: str
    where: str


@dataclass(frozen=True, slots=True)
class Unread:
    """An event of a kind or schema that a newer version wrote: its task stands still here (L4). Never written."""

    kind: ClassVar[Kind] = Kind.UNREAD
    word: str  # the stored kind
    why: str


Body = (
    Opened | HeadChanged | Acquired | Intended | Applied | Rejected | Observed | StageMoved | Parked | Settled
    | HazardFound | Released | Paused | Resumed | CancelRequested | Canceled | Reopened
    | JournalCreated | IncarnationStarted | Switched | Sealed | Unread
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Draft:
    """An event that has no place yet. A dataclass and no NamedTuple: those of different classes compare equal."""

    body: Body
    epoch: int = 0  # of the writer; operator's and log events carry the current one
    generation: int = 0
    actor: str = ""
    step: str = ""
    attempt: int = 0

    @property
    def kind(self) -> Kind:
        return self.body.kind


class Event(NamedTuple):
    """An event in its place, as read back."""

    position: int
    task: str
    version: int
    draft: Draft
    schema: int
    at: int  # microseconds since 1970, UTC; never decides safety (L5)
    body_text: str
    body_hash: bytes
    prev_hash: bytes
    hash: bytes

    @property
    def kind(self) -> Kind:
        return self.draft.body.kind

    @property
    def key(self) -> str:
        return key_of(self.task, self.draft)


def key_of(task: str, draft: Draft) -> str:
    """task/generation/step for an event about a step, else empty (E3)."""
    return f"{task}/{draft.generation}/{draft.step}" if draft.step else ""
