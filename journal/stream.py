"""
One task's stream, folded: the decision state beside what only adapters, clocks and people need.

`Stream` is immutable and belongs to one version; whoever holds it can append with that version as the expected one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from journal.events import Acquired, Applied, Event, HeadChanged, Intended, Opened, Owner, Parked, Released, Reopened
from journal.ports import Anchor, Subject
from journal.state import TaskState, evolve
from journal.words import Evidence, Kind

_NONE: MappingProxyType[str, Evidence] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Stream:
    """A task as its events tell it, up to `version`."""

    task: str
    version: int = 0
    state: TaskState = TaskState()
    subject: Subject = Subject("", "", "")
    owner: Owner | None = None  # of the running term
    outcomes: MappingProxyType[str, Evidence] = field(default_factory=lambda: _NONE)  # applied in this generation
    expected: Evidence = ()  # of the last intent
    intent: Anchor | None = None  # the last one
    intents: frozenset[str] = frozenset()  # "position:hash" of every intent, so that a citation can be checked
    basis: int = 0  # position of the last outcome, settlement or acquisition: what a stage move rests on
    since_us: int = 0  # when the present question was first asked: last intent, closed step or stage move
    look_us: int = 0  # when the next look is due; 0 = at once
    reason: str = ""  # of the last parking or waiting

    def after(self, event: Event) -> Stream:
        """Take in the next event."""
        draft, body = event.draft, event.draft.body
        state = evolve(self.state, draft)
        new = replace(self, version=event.version, state=state)
        match body:
            case Opened():
                subject = Subject(event.task, body.repo, body.branch, body.head, body.base, body.pr)
                return replace(new, subject=subject, since_us=event.at)
            case HeadChanged() | Reopened():
                subject = replace(self.subject, head=body.head or self.subject.head)
                return replace(new, subject=subject, outcomes=_NONE, since_us=event.at, look_us=0, reason="")
            case Acquired():
                # Looks at one question are counted from the first: time that nobody asked in is no waiting.
                since = self.since_us if self.state.looks else event.at
                return replace(new, owner=body.owner, basis=event.position, look_us=0, since_us=since)
            case Intended():
                anchor = Anchor(event.position, event.hash.hex())
                cited = self.intents | {f"{anchor.position}:{anchor.hash}"}
                return replace(new, intent=anchor, intents=cited, expected=body.expected, since_us=event.at)
            case Applied():
                outcomes = MappingProxyType({**self.outcomes, draft.step: body.seen})
                return replace(new, outcomes=outcomes, basis=event.position, since_us=event.at)
            case Parked(reason=reason):
                return replace(new, reason=reason)
            case Released(look_ms=look_ms, reason=reason):
                look_us = event.at + look_ms * 1000 if look_ms else 0
                return replace(new, owner=None, look_us=look_us, reason=reason)
            case _:
                pass
        if draft.kind is Kind.SETTLED:
            return replace(new, basis=event.position, since_us=event.at, look_us=0, owner=None)
        if draft.kind is Kind.STAGE_MOVED:
            return replace(new, since_us=event.at, reason="")
        return new if state.owner else replace(new, owner=None)


def fold_stream(task: str, events: Iterable[Event], start: Stream | None = None) -> Stream:
    """Fold a task's events in order of version."""
    stream = start or Stream(task)
    for event in events:
        stream = stream.after(event)
    return stream
