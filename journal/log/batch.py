"""
The members of one transaction: each is compared, admitted and placed by itself; one refused hurts no other (S7).

Works on values only: the writer hands in where the log stands and takes over where it stands after the commit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from journal.admit import admit_each
from journal.chain import GENESIS
from journal.errors import InadmissibleError, JournalError, TaskExistsError
from journal.events import Acquired, Event, Intended, Opened
from journal.log.companion import Companion, move_of
from journal.log.rows import Redact, place
from journal.log.unit import Answer, Astray, Moved, Taken, Unit, Written
from journal.state import TaskState


@dataclass(frozen=True, slots=True)
class Head:
    """Where the log stands."""

    position: int = 0
    hash: bytes = GENESIS
    lanes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # lane -> task that holds it


class Batch:
    """Takes units one after the other; `events` and `head` are what the transaction will have written."""

    def __init__(
        self,
        db: sqlite3.Connection,
        head: Head,
        at: int,
        *,
        known: Mapping[str, int] = MappingProxyType({}),
        redact: Redact | None = None,
        full: JournalError | None = None,
        companion: Companion | None = None,
    ) -> None:
        """
        Begin a batch inside a transaction.

        Args:
            db: The writer's connection, in a transaction.
            head: Where the log stands.
            at: Microseconds since 1970, for all events of the batch.
            known: Versions of streams as this process last wrote them; others are read. One that were wrong would be
                refused by the table's own trigger.
            redact: Takes known secrets out of stored bodies.
            full: Why no term or effect may begin; None if there is room (S10).
            companion: What shares the file and follows the stages.
        """
        self._db, self._at, self._redact, self._full = db, at, redact, full
        self._companion = companion
        self.position, self.hash, self.lanes = head.position, head.hash, dict(head.lanes)
        self._lanes_before = head.lanes
        self.events: list[Event] = []
        self.states: list[TaskState] = []  # each event's task with it, so that no view folds again
        self.versions: dict[str, int] = {}  # of the streams that this batch looked at, as they will be after it
        self._known = known
        self._opened: dict[str, str] = {}  # tasks opened in this batch, by their name in small letters

    @property
    def head(self) -> Head:
        return Head(self.position, self.hash, MappingProxyType(self.lanes))

    def take(self, unit: Unit) -> Answer | JournalError:
        """Compare, admit and place one unit; a refusal is its own answer and leaves the batch as it was."""
        stream = unit.stream
        version = self.versions.get(stream.task)
        if version is None:
            version = self._known.get(stream.task)
            version = self._stored_version(stream.task) if version is None else version
            self.versions[stream.task] = version
        if version != stream.version:
            return Moved(version)
        try:
            self._check(unit, version)
            states = admit_each(stream.state, unit.drafts) if stream.task else [stream.state] * len(unit.drafts)
            state = states[-1]
            if state.lane and state.lane != stream.state.lane:
                holder = self.lanes.get(state.lane, stream.task)
                if holder != stream.task:
                    return Taken(holder)
            placed, states = self._place(unit, states)
        except JournalError as error:
            return error
        # Last, when nothing else can refuse the unit: what the companion writes is not undone for one member alone.
        move = move_of(unit, state.stage) if self._companion is not None else None
        if self._companion is not None and move is not None and (why := self._companion.move(self._db, move)):
            return Astray(why)
        self._keep(unit, placed, states)
        return placed

    def store_lanes(self) -> None:
        """Write the lanes that changed."""
        store_lanes(self._db, self._lanes_before, self.lanes)

    def _stored_version(self, task: str) -> int:
        row = self._db.execute("SELECT max(version) FROM journal_events WHERE task = ?", (task,)).fetchone()
        return int(row[0] or 0)

    def _check(self, unit: Unit, version: int) -> None:
        """What cannot be seen in the unit's own stream: other tasks' names, and the disk."""
        task, drafts = unit.stream.task, unit.drafts
        if not drafts:
            raise InadmissibleError(rule="L3", detail="a unit without events")
        if task and isinstance(drafts[0].body, Opened):
            if existing := task if version else self._same_but_for_case(task):
                raise TaskExistsError(task=task, existing=existing)
        elif task and not version:
            raise InadmissibleError(rule="P0", detail=f"{drafts[0].kind} before opened")
        if self._full is not None and any(isinstance(d.body, (Acquired, Intended)) for d in drafts):
            raise self._full

    def _same_but_for_case(self, task: str) -> str:
        row = self._db.execute(
            "SELECT task FROM journal_events WHERE task = ? COLLATE NOCASE AND kind = 'opened'", (task,)
        ).fetchone()
        if row:
            return str(row[0])
        return self._opened.get(task.lower(), "")

    def _place(self, unit: Unit, states: Sequence[TaskState]) -> tuple[Written, list[TaskState]]:
        """The events in their places, and the fold with each of them as it is stored."""
        stream, position, head = unit.stream, self.position, self.hash
        events: list[Event] = []
        stored: list[TaskState] = []
        for draft, state in zip(unit.drafts, states, strict=True):
            position += 1
            event = place(
                stream.task, draft, position=position, version=stream.version + 1, at=self._at, prev_hash=head,
                basis=stream.basis, redact=self._redact,
            )  # fmt: skip
            # A draft that was changed on its way in (redacted) is folded as it is stored.
            head, stream = event.hash, stream.after(event, state if event.draft is draft else None)
            events.append(event)
            stored.append(stream.state)
        return Written(stream, tuple(events)), stored

    def _keep(self, unit: Unit, placed: Written, states: Sequence[TaskState]) -> None:
        last = placed.events[-1]
        self.position, self.hash = last.position, last.hash
        self.events += placed.events
        self.states += states
        self.versions[unit.stream.task] = last.version
        if isinstance(unit.drafts[0].body, Opened):
            self._opened[unit.stream.task.lower()] = unit.stream.task
        before, after = unit.stream.state.lane, placed.stream.state.lane
        if before != after:
            if before and self.lanes.get(before) == unit.stream.task:
                del self.lanes[before]
            if after:
                self.lanes[after] = unit.stream.task


def store_lanes(db: sqlite3.Connection, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Write the lanes that changed; they are a cache of the fold, kept so that starting needs no replay."""
    if after == before:
        return
    gone = [(lane,) for lane in before if lane not in after]
    new = [(lane, task) for lane, task in after.items() if before.get(lane) != task]
    db.executemany("DELETE FROM journal_lanes WHERE lane = ?", gone)
    db.executemany("INSERT OR REPLACE INTO journal_lanes VALUES (?, ?)", new)
