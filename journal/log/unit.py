"""A unit: the events that one caller appends at once, and what can become of them."""

from __future__ import annotations

from dataclasses import dataclass

from journal.events import Draft, Event
from journal.stream import Stream


@dataclass(frozen=True, slots=True)
class Unit:
    """Events for one stream, to be appended whole or not at all, if the stream is still at `stream.version`."""

    stream: Stream
    drafts: tuple[Draft, ...]


@dataclass(frozen=True, slots=True)
class Written:
    """The unit is durable."""

    stream: Stream  # after it
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Moved:
    """The stream is at another version by now; nothing was written."""

    version: int


@dataclass(frozen=True, slots=True)
class Taken:
    """Another task has an open intent in the unit's lane; nothing was written."""

    holder: str


Answer = Written | Moved | Taken
