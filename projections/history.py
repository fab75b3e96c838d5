"""
One task's history: its events folded into epochs, steps and decisions, for whoever audits it (DC-4, `journal inspect`).

Pure, and over the log alone: the same fold answers offline, over HTTP, and as of any earlier point. It tells what was
written, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from journal.events import (
    Acquired,
    Applied,
    Event,
    HazardFound,
    Intended,
    Observed,
    Owner,
    Parked,
    Rejected,
    Released,
    Settled,
    StageMoved,
)
from journal.stream import Stream
from journal.words import OPERATOR_KINDS, Cause, Evidence, Hold


@dataclass(frozen=True, slots=True)
class Attempt:
    """One intent and what became of it. Times are microseconds since 1970; 0 = never."""

    attempt: int
    epoch: int
    position: int
    intended_at: int
    settled_at: int = 0
    outcome: str = "open"  # open, applied, rejected, superseded, settled
    seen: Evidence = ()


@dataclass(frozen=True, slots=True)
class StepHistory:
    """One step of one generation: every attempt, and how it was settled."""

    epoch: int  # in which it was driven or settled last
    generation: int
    step: str
    key: str
    attempts: tuple[Attempt, ...] = ()
    intended_at: int = 0  # the first attempt; 0 = none was needed
    settled_at: int = 0
    outcome: str = "open"  # open, applied, rejected, not_applied
    via: str = ""  # apply, probe, other, awaited, operator
    evidence: Evidence = ()

    @property
    def in_doubt(self) -> bool:
        """An attempt has no outcome: running, or whoever ran it is gone."""
        return self.outcome == "open"


@dataclass(frozen=True, slots=True)
class Epoch:
    """One term of ownership."""

    epoch: int
    owner: Owner
    actor: str
    from_stage: str
    to_stage: str
    acquired_at: int
    before: str = ""  # the owner whose term had no end
    cause: Cause = Cause.NONE  # why that term is over
    ended_at: int = 0
    ending: str = ""  # as released; "taken over", or the operator's verb that ended it; "" = it still runs
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """One `observed`: what was in doubt, what the world showed, what followed."""

    position: int
    at: int
    epoch: int
    actor: str
    step: str
    attempt: int
    row: str
    fact: str
    guard: str
    verdict: str
    seen: Evidence
    reply: Evidence
    followed_by: str = ""  # kind of the next event


@dataclass(frozen=True, slots=True)
class Move:
    """One stage the task came into."""

    position: int
    at: int
    epoch: int
    from_stage: str
    to_stage: str


@dataclass(frozen=True, slots=True)
class Note:
    """What a person did, and what alarmed somebody: operator's verbs, parkings, hazards."""

    position: int
    at: int
    epoch: int
    kind: str
    actor: str
    step: str
    reason: str


@dataclass(slots=True)
class History:
    """A task's history up to `stream.version`."""

    stream: Stream
    opened_at: int = 0
    changed_at: int = 0
    epochs: list[Epoch] = field(default_factory=list)
    steps: list[StepHistory] = field(default_factory=list)
    decisions: list[DecisionRecord] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    @property
    def reclaims(self) -> int:
        """Terms that began over one that had no end."""
        return sum(1 for epoch in self.epochs if epoch.cause is not Cause.NONE)

    @property
    def status(self) -> str:
        """One word for people, the same as in the view of tasks."""
        state = self.stream.state
        if state.hold is not Hold.NONE:
            return state.hold.value
        if state.owner:
            return "owned"
        return "waiting" if self.stream.look_us else "free"

    def take(self, event: Event) -> None:
        """Take in the next event."""
        if self.decisions and not self.decisions[-1].followed_by:
            self.decisions[-1] = replace(self.decisions[-1], followed_by=event.kind.value)
        self.stream = self.stream.after(event)
        self.opened_at = self.opened_at or event.at
        self.changed_at = event.at
        self._take_epoch(event)
        self._take_step(event)
        self._take_rest(event)

    def _take_epoch(self, event: Event) -> None:
        d = event.draft
        match d.body:
            case Acquired(owner=owner, plan=plan, before=before, cause=cause):
                self._end(event.at, "taken over", f"found {cause.value}" if cause is not Cause.NONE else "")
                self.epochs.append(Epoch(d.epoch, owner, d.actor, plan.source, plan.target, event.at, before, cause))
            case Released(ending=ending, reason=reason):
                self._end(event.at, ending.value, reason)
            case body if d.kind in OPERATOR_KINDS:
                self._end(event.at, d.kind.value, getattr(body, "reason", ""))
            case _:
                pass

    def _end(self, at: int, ending: str, reason: str) -> None:
        if self.epochs and not self.epochs[-1].ending:
            self.epochs[-1] = replace(self.epochs[-1], ended_at=at, ending=ending, reason=reason)

    def _take_step(self, event: Event) -> None:
        d, at = event.draft, event.at
        match d.body:
            case Intended():
                old = self._step(event)
                tries = old.attempts
                if tries and tries[-1].outcome == "open":
                    tries = (*tries[:-1], replace(tries[-1], outcome="superseded", settled_at=at))
                tries = (*tries, Attempt(d.attempt, d.epoch, event.position, at))
                new = replace(old, attempts=tries, epoch=d.epoch, intended_at=old.intended_at or at)
                self._put(replace(new, outcome="open", via="", settled_at=0, evidence=()))
            case Applied(via=via, seen=seen):
                self._settle(event, "applied", via, seen)
            case Rejected(seen=seen):
                self._settle(event, "rejected", "apply", seen)
            case Settled(applied=applied, evidence=words, reason=reason):
                seen = (("evidence", words), ("reason", reason))
                self._settle(event, "applied" if applied else "not_applied", "operator", seen)
            case _:
                pass

    def _settle(self, event: Event, outcome: str, via: str, seen: Evidence) -> None:
        d, at = event.draft, event.at
        old = self._step(event)
        tries = old.attempts
        if tries and tries[-1].attempt == d.attempt:
            how = "settled" if via == "operator" else outcome
            tries = (*tries[:-1], replace(tries[-1], outcome=how, settled_at=at, seen=seen))
        self._put(replace(old, attempts=tries, epoch=d.epoch, settled_at=at, outcome=outcome, via=via, evidence=seen))

    def _step(self, event: Event) -> StepHistory:
        key = event.key
        found = next((s for s in reversed(self.steps) if s.key == key), None)
        return found or StepHistory(event.draft.epoch, event.draft.generation, event.draft.step, key)

    def _put(self, step: StepHistory) -> None:
        for place in range(len(self.steps) - 1, -1, -1):
            if self.steps[place].key == step.key:
                self.steps[place] = step
                return
        self.steps.append(step)

    def _take_rest(self, event: Event) -> None:
        d, body = event.draft, event.draft.body
        match body:
            case Observed():
                self.decisions.append(
                    DecisionRecord(
                        event.position,
                        event.at,
                        d.epoch,
                        d.actor,
                        d.step,
                        d.attempt,
                        body.row,
                        body.fact.value,
                        body.guard.value,
                        body.verdict,
                        body.seen,
                        body.reply,
                    )  # fmt: skip
                )
            case StageMoved(from_stage=source, to_stage=target):
                self.moves.append(Move(event.position, event.at, d.epoch, source, target))
            case Parked(reason=reason) | HazardFound(reason=reason):
                self._note(event, reason)
            case _ if d.kind in OPERATOR_KINDS:
                self._note(event, getattr(body, "reason", ""))
            case _:
                pass

    def _note(self, event: Event, reason: str) -> None:
        d = event.draft
        self.notes.append(Note(event.position, event.at, d.epoch, d.kind.value, d.actor, d.step, reason))


def history(task: str, events: Iterable[Event]) -> History:
    """Fold a task's events, in order of version."""
    folded = History(Stream(task))
    for event in events:
        folded.take(event)
    return folded
