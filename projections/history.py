"""
One task's whole story, for whoever audits it: a pure fold of its events (FR-6, DC-5).

Nothing here is stored: a task's stream is short, and the story is asked for by people.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from journal.codec import as_data
from journal.events import (
    Acquired,
    Applied,
    Event,
    HeadChanged,
    Intended,
    Observed,
    Opened,
    Owner,
    Rejected,
    Released,
    Reopened,
    Settled,
    StageMoved,
)
from journal.words import Evidence


@dataclass(frozen=True, slots=True)
class StepStory:
    """One step in one generation. Times in microseconds UTC, 0 = not yet."""

    epoch: int  # of the last attempt, or of what closed it
    generation: int
    step: str
    key: str
    attempts: int
    intended_at: int = 0  # of the last attempt
    settled_at: int = 0
    outcome: str = "in_doubt"  # or applied, rejected, not_applied (an operator's word)
    via: str = ""  # apply, probe, other, awaited, operator
    evidence: Evidence = ()


@dataclass(frozen=True, slots=True)
class EpochStory:
    """One term of ownership."""

    epoch: int
    generation: int
    owner: Owner
    actor: str
    from_stage: str
    to_stage: str
    acquired_at: int
    before: str = ""  # the run whose term had no end
    cause: str = ""  # why that term was over: gone, budget, operator
    ended_at: int = 0  # 0 = still running, or ended without a word
    ending: str = ""  # as in `released`, or "reclaimed"
    reason: str = ""
    trace: str = ""  # id of its OpenTelemetry trace


@dataclass(frozen=True, slots=True)
class StageStory:
    """One stay in one stage."""

    stage: str
    generation: int
    since_position: int
    since_at: int
    until_at: int = 0
    because: int = 0  # position of the outcome that the move into it rests on


@dataclass(frozen=True, slots=True)
class Decision:
    """One `observed`: what was seen of an attempt in doubt, and what followed."""

    position: int
    epoch: int
    step: str
    attempt: int
    actor: str
    at: int
    row: str
    fact: str
    guard: str
    verdict: str
    seen: Evidence
    reply: Evidence
    key: str = ""
    begun_in: int = 0  # epoch that began the attempt it is about; 0 = none was begun


@dataclass(frozen=True, slots=True)
class Story:
    """Everything, in order."""

    stages: tuple[StageStory, ...] = ()
    epochs: tuple[EpochStory, ...] = ()
    steps: tuple[StepStory, ...] = ()
    decisions: tuple[Decision, ...] = ()
    reclaims: dict[str, int] = field(default_factory=dict)  # by cause


def tell(events: Sequence[Event], start: Story | None = None) -> Story:
    """Fold a task's events, in order of version, onto a story."""
    story = start or Story()
    for event in events:
        story = _after(story, event)
    return story


def _after(s: Story, e: Event) -> Story:
    d = e.draft
    match d.body:
        case Opened(stage=stage) | HeadChanged(stage=stage) | Reopened(stage=stage):
            return _entered(s, e, stage, 0)
        case StageMoved() as moved:
            return _entered(s, e, moved.to_stage, moved.because)
        case Acquired() as body:
            return _acquired(s, e, body)
        case Released(ending=ending, reason=reason):
            return _ended(s, e, ending.value, reason)
        case Intended():
            return _step(
                s, e, attempts=d.attempt, intended_at=e.at, settled_at=0, outcome="in_doubt", via="", evidence=()
            )
        case Applied(via=via, seen=seen):
            return _step(s, e, settled_at=e.at, outcome="applied", via=via, evidence=seen)
        case Rejected(seen=seen):
            return _step(s, e, settled_at=e.at, outcome="rejected", via="apply", evidence=seen)
        case Settled() as body:
            word = "applied" if body.applied else "not_applied"
            said: Evidence = (("evidence", body.evidence), ("reason", body.reason))
            return _step(s, e, settled_at=e.at, outcome=word, via="operator", evidence=said)
        case Observed() as o:
            decision = Decision(
                e.position,
                d.epoch,
                d.step,
                d.attempt,
                d.actor,
                e.at,
                o.row,
                o.fact.value,
                o.guard.value,
                o.verdict,
                o.seen,
                o.reply,
                e.key,
                _begun_in(s, e),
            )
            return replace(s, decisions=(*s.decisions, decision))
        case _:
            return s


def _begun_in(s: Story, e: Event) -> int:
    return next((k.epoch for k in s.steps if k.key == e.key and k.outcome == "in_doubt"), 0)


def _entered(s: Story, e: Event, stage: str, because: int) -> Story:
    before = s.stages
    if before:
        before = (*before[:-1], replace(before[-1], until_at=e.at))
    return replace(s, stages=(*before, StageStory(stage, e.draft.generation, e.position, e.at, because=because)))


def _acquired(s: Story, e: Event, body: Acquired) -> Story:
    d, cause = e.draft, body.cause.value
    if cause:
        s = replace(_ended(s, e, "reclaimed", cause), reclaims=s.reclaims | {cause: s.reclaims.get(cause, 0) + 1})
    term = EpochStory(
        d.epoch, d.generation, body.owner, d.actor, body.plan.source, body.plan.target, e.at, body.before, cause,
        trace=body.trace,
    )  # fmt: skip
    return replace(s, epochs=(*s.epochs, term))


def _ended(s: Story, e: Event, ending: str, reason: str) -> Story:
    if not s.epochs or s.epochs[-1].ending:
        return s
    return replace(s, epochs=(*s.epochs[:-1], replace(s.epochs[-1], ended_at=e.at, ending=ending, reason=reason)))


def _step(s: Story, e: Event, **learnt: Any) -> Story:
    d = e.draft
    for at, known in enumerate(s.steps):
        if (known.generation, known.step) == (d.generation, d.step):
            told = replace(known, epoch=d.epoch, **learnt)
            return replace(s, steps=(*s.steps[:at], told, *s.steps[at + 1 :]))
    new = StepStory(d.epoch, d.generation, d.step, e.key, 0)
    return replace(s, steps=(*s.steps, replace(new, **learnt)))


def gist(event: Event, limit: int = 300) -> str:
    """What a person wants to know of a body, in one line."""
    data = as_data(event.draft.body)
    if isinstance(event.draft.body, Acquired):
        plan = event.draft.body.plan
        data |= {"edge": f"{plan.source}->{plan.target}"}
    for name in ("plan", "owner", "seen", "expected"):
        data.pop(name, None)
    return " ".join(f"{name}={value}" for name, value in sorted(data.items()) if value or value == 0)[:limit]


def event_data(event: Event) -> dict[str, Any]:
    """An event as plain data, in the words of the table's columns."""
    d = event.draft
    return {
        "position": event.position,
        "task": event.task,
        "version": event.version,
        "generation": d.generation,
        "epoch": d.epoch,
        "kind": event.kind.value,
        "step": d.step,
        "attempt": d.attempt,
        "key": event.key,
        "actor": d.actor,
        "at": event.at,
        "schema": event.schema,
        "body": as_data(d.body),
        "hash": event.hash.hex(),
        "prev_hash": event.prev_hash.hex(),
    }
