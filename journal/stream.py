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
        draft, body = event.draft, event.draft.body
        if self.state.unread:
            return self._replace(version=event.version)
        if state is None:
            state = evolve(self.state, draft)
        match body:
            case Intended():
                anchor = Anchor(event.position, event.hash.hex())
                cited = self.intents | {f"{anchor.position}:{anchor.hash}"}
                return self._replace(
                    version=event.version, state=state, intent=anchor, intents=cited, expected=body.expected,
                    since_us=event.at, carrier=self.owner,
                )  # fmt: skip
            case Applied():
                outcomes = MappingProxyType({**self.outcomes, draft.step: body.seen})
                return self._replace(
                    version=event.version, state=state, outcomes=outcomes, basis=event.position, since_us=event.at
                )
            case Acquired():
                # Looks at one question are counted from the first: time that nobody asked in is no waiting.
                since = self.since_us if self.state.looks else event.at
                return self._replace(
                    version=event.version,
                    state=state,
                    owner=body.owner,
                    basis=event.position,
                    look_us=0,
                    since_us=since,
                )
            case _:
                return self._seldom(event, owned=bool(state.owner))._replace(version=event.version, state=state)

    def _seldom(self, event: Event, *, owned: bool) -> Stream:
        """What the events change that stand at the edges of a term, version and state apart."""
        match event.draft.body:
            case Opened() as body:
                subject = Subject(event.task, body.repo, body.branch, body.head, body.base, body.pr)
                return self._replace(subject=subject, since_us=event.at)
            case HeadChanged() | Reopened() as body:
                subject = replace(self.subject, head=body.head or self.subject.head)
                return self._replace(subject=subject, outcomes=_NONE, since_us=event.at, look_us=0, reason="")
            case Unread(why=why):
                return self._replace(reason=why, owner=None)
            case Parked(reason=reason):
                return self._replace(reason=reason)
            case Released(look_ms=look_ms, reason=reason):
                look_us = event.at + look_ms * 1000 if look_ms else 0
                return self._replace(owner=None, look_us=look_us, reason=reason)
            case Settled():
                return self._replace(basis=event.position, since_us=event.at, look_us=0, owner=None)
            case StageMoved():
                return self._replace(since_us=event.at, reason="")
            case _:
                return self if owned else self._replace(owner=None)


def fold_stream(task: str, events: Iterable[Event], start: Stream | None = None) -> Stream:
    """Fold a task's events in order of version."""
    stream = start or Stream(task)
    for event in events:
        stream = stream.after(event)
    return stream
