"""
One task's stream, folded: the decision state beside what only adapters, clocks and people need.

`Stream` is immutable and belongs to one version; whoever holds it can append with that version as the expected one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from journal.events import (
    Acquired,
    Applied,
    Event,
    HeadChanged,
    Intended,
    Opened,
    Owner,
    Parked,
    Released,
    Reopened,
    Settled,
    StageMoved,
    Unread,
)
from journal.ports import Anchor, Subject
from journal.state import TaskState, evolve
from journal.words import Evidence

_NONE: MappingProxyType[str, Evidence] = MappingProxyType({})


class Stream(NamedTuple):
    """A task as its events tell it, up to `version`. A tuple, since one is made for every event that is written."""

    task: str
    version: int = 0
    state: TaskState = TaskState()
    subject: Subject = Subject("", "", "")
    owner: Owner | None = None  # of the running term
    outcomes: MappingProxyType[str, Evidence] = _NONE  # applied in this generation
    expected: Evidence = ()  # of the last intent
    intent: Anchor | None = None  # the last one
    intents: frozenset[str] = frozenset()  # "position:hash" of every intent, so that a citation can be checked
    basis: int = 0  # position of the last outcome, settlement or acquisition: what a stage move rests on
    since_us: int = 0  # when the present question was first asked: last intent, closed step or stage move
    look_us: int = 0  # when the next look is due; 0 = at once
    reason: str = ""  # of the last parking or waiting
    carrier: Owner | None = None  # who began the last attempt; a later term does not change who may still land it

    def after(self, event: Event, state: TaskState | None = None) -> Stream:
        """Take in the next event; `state` is the fold with it, if the caller has it already."""
        if self.state.unread:
            return self._replace(version=event.version)
        draft, body, at = event.draft, event.draft.body, event.at
        if state is None:
            state = evolve(self.state, draft)
        # Taken apart and put together anew: `_replace` asks for each of the fields, at every event.
        task, _, before, subject, owner, outcomes, expected, intent, intents, basis, since, look, reason, carrier = self
        match body:
            case Intended():
                intent, carrier, expected, since = Anchor(event.position, event.hash.hex()), owner, body.expected, at
                intents |= {f"{intent.position}:{intent.hash}"}
            case Applied():
                outcomes, basis, since = MappingProxyType({**outcomes, draft.step: body.seen}), event.position, at
            case Acquired():
                # Looks at one question are counted from the first: time that nobody asked in is no waiting.
                owner, basis, look, since = body.owner, event.position, 0, since if before.looks else at
            case Released(look_ms=look_ms):
                owner, look, reason = None, at + look_ms * 1000 if look_ms else 0, body.reason
            case StageMoved():
                since, reason = at, ""
            case Opened():
                subject, since = Subject(task, body.repo, body.branch, body.head, body.base, body.pr), at
            case HeadChanged() | Reopened():
                subject = replace(subject, head=body.head or subject.head)
                outcomes, since, look, reason = _NONE, at, 0, ""
            case Unread(why=why):
                owner, reason = None, why
            case Parked():
                reason = body.reason
            case Settled():
                owner, basis, since, look = None, event.position, at, 0
            case _:
                owner = owner if state.owner else None
        return Stream(
            task, event.version, state, subject, owner, outcomes, expected, intent, intents, basis, since, look, reason,
            carrier,
        )  # fmt: skip


def fold_stream(task: str, events: Iterable[Event], start: Stream | None = None) -> Stream:
    """Fold a task's events in order of version."""
    stream = start or Stream(task)
    for event in events:
        stream = stream.after(event)
    return stream
