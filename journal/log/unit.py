"""A unit: the events that one caller appends at once, and what can become of them; and writes beside the log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from journal.errors import InadmissibleError
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


@dataclass(frozen=True, slots=True)
class Astray:
    """Whatever shares the file with the log stands elsewhere by now, or refused to follow; nothing was written."""

    why: str  # for a person


Answer = Written | Moved | Taken | Astray

_SIDE = re.compile(r"(?:INSERT (?:OR IGNORE )?INTO|UPDATE|DELETE FROM) journal_(?:inbox|jobs|cursors)\b")


@dataclass(frozen=True, slots=True)
class Side:
    """
    One statement on a mutable side table, written in the same transactions as the units (DESIGN 4, L1).

    Side tables are no truth about effects and are not rebuilt; no statement here can name the event table first.

    Raises:
        InadmissibleError: It writes to anything but a side table.
    """

    statement: str
    parameters: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if not _SIDE.match(self.statement):
            raise InadmissibleError(rule="L1", detail="a statement that begins with no write to a side table")


@dataclass(frozen=True, slots=True)
class Changed:
    """The side statement is durable."""

    count: int  # rows it changed
    rows: tuple[tuple[Any, ...], ...] = ()  # what it returned
