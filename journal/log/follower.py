"""
The writer of a copy: each batch is decided and placed here, made durable upstream, and only then committed here.

As long as the shared log ends where the copy ends, whatever the copy says is true of both: versions, lanes, names. So a
batch is decided from the copy and offered upstream for exactly that place. If another host was quicker, the batch is
undone, the copy follows, and the members are decided anew; for a while the counter is then locked first.

The copy never runs ahead: it commits after the shared log did, and follows before it decides. One that holds what the
shared log lacks has met a log that lost its end, and stops (V8).
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType

import structlog

from journal.chain import GENESIS
from journal.errors import CommitUnknownError, DamagedError, JournalError, StoreUnavailableError
from journal.events import Draft, Event, IncarnationStarted, JournalCreated
from journal.log import anchor
from journal.log.batch import Head, store_lanes
from journal.log.companion import Companion
from journal.log.intake import Outcome, Tally, Wake
from journal.log.rows import INSERT, Redact, Row, as_far_as_known, place
from journal.log.schema import COLUMNS
from journal.log.unit import Changed, Side, Unit, Written
from journal.log.upstream import BehindError, Upstream, is_copy, mark_copy
from journal.log.writer import Writer
from journal.ports import Clock
from journal.projection import Projection, store_checkpoints
from journal.stream import Stream, fold_stream

logger = structlog.get_logger(__name__)

CHUNK = 1000
"""Rows fetched at once while following."""

OPTIMISTIC = 2
"""Offers of a batch without the counter's lock."""

OFFERS = 5
"""Offers altogether; more are only needed while the lock cannot be had."""

CROWDED = 8
"""Batches that lock the counter first, after one that had to be done again: waiting is cheaper."""

FOLDED = 2048
"""Streams kept folded, so that following a task costs its new events only."""

_OF_TASK = f"SELECT {COLUMNS} FROM journal_events WHERE task = ? AND version > ? ORDER BY version"  # noqa: S608


class Follower(Writer):
    """Owns a copy and its way to the log that it follows."""

    follows = True

    def __init__(
        self,
        path: Path,
        upstream: Upstream,
        *,
        clock: Clock,
        new_id: Callable[[], str],
        projections: Sequence[Projection] = (),
        redact: Redact | None = None,
        companion: Companion | None = None,
    ) -> None:
        if companion is not None:
            why = "a host's database cannot share a transaction with a log on a server"
            raise StoreUnavailableError(path=str(path), why=why, remedy="use the engine sqlite beside a host")
        self._upstream, self._reached, self._crowded = upstream, 0, 0
        self._folded: OrderedDict[str, Stream] = OrderedDict()
        super().__init__(path, clock=clock, new_id=new_id, projections=projections, redact=redact)
        upstream.watch(self._grown)

    async def close(self) -> None:
        """Also lets the upstream go."""
        await super().close()
        await asyncio.to_thread(self._upstream.close)

    # -- opening ------------------------------------------------------------------------------------------------------

    def _begin(self, db: sqlite3.Connection, head: Head) -> Head:
        """Agree with the shared log, then take over what the copy lacks; views follow afterwards."""
        if head.position and not is_copy(db):
            raise StoreUnavailableError(
                path=str(self.path),
                why=f"holds a journal of its own, and [journal] names one on {self._upstream.shown}",
                remedy="move it with `journal export` and `journal import`, or name another file in `db`",
            )
        mark_copy(db)
        self._upstream.open()
        if not self._upstream.head()[0]:
            if head.position:
                raise self._lost_its_end(db, head)
            self._create_upstream()
        while rows := self._rows_after(db, head):
            head, _ = self._copy(db, head, rows, views=False)
        anchor.check(db, self.path)
        return head

    def _create_upstream(self) -> None:
        draft = Draft(JournalCreated(self._new_id()), actor="journal")
        event = place("", draft, position=1, version=1, at=self._clock.now_us(), prev_hash=GENESIS, basis=0)
        try:
            self._upstream.append(0, GENESIS, [event])
        except BehindError:
            return  # another host made it a moment ago

    # -- a batch ------------------------------------------------------------------------------------------------------

    def _transact(self, units: list[Unit | Side], tallies: list[Tally]) -> list[Outcome]:
        # What stands upstream needs no flush here: lost with the power, it is followed again. What stands beside does.
        self._flush(each=any(isinstance(unit, Side) for unit in units))
        for offer in range(OFFERS):
            waits = offer >= OPTIMISTIC or self._crowded > 0
            try:
                with self._upstream.alone() if waits else nullcontext(self._head.position) as reached:
                    if reached != self._head.position:
                        self._follow()
                    answers = super()._transact(units, tallies)
                self._crowded = max(0, self._crowded - 1)
                return answers
            except BehindError:
                self._crowded = CROWDED
                self._roll_back()
                self._follow()
        raise StoreUnavailableError(path=self._upstream.shown, why="other hosts were quicker every time")

    def _flush(self, *, each: bool) -> None:
        self._db.execute(f"PRAGMA synchronous = {'FULL' if each else 'NORMAL'}")

    def _publish(self, events: Sequence[Event], answers: Sequence[Outcome]) -> None:
        """The shared log takes the events at their place; a refusal is not told from a copy that is behind, either."""
        if not events:
            if any(not isinstance(answer, Changed) for answer in answers):
                self._must_not_be_behind()
            return
        try:
            self._upstream.append(self._head.position, self._head.hash, events)
        except CommitUnknownError as unknown:
            try:
                settled = self._upstream.holds(events[-1])
            except JournalError as error:
                raise unknown from error
            if not settled:
                raise

    def _must_not_be_behind(self) -> None:
        if self._upstream.head() != (self._head.position, self._head.hash):
            raise BehindError

    def _withdrawn(
        self, units: list[Unit | Side], tallies: list[Tally], answers: list[Outcome], error: JournalError
    ) -> list[Outcome]:
        """The shared log did not take the events; what stands beside it is this host's own and is written."""
        self._roll_back()
        sides = [unit for unit in units if isinstance(unit, Side)]
        aside = iter(super()._transact([*sides], tallies) if sides or tallies else ())
        return [
            next(aside) if isinstance(unit, Side) else error if isinstance(answer, Written) else answer
            for unit, answer in zip(units, answers, strict=True)
        ]

    # -- following ----------------------------------------------------------------------------------------------------

    def _grown(self, position: int) -> None:
        """Called in the upstream's thread; our own appends are heard of here, too."""
        if position > self._head.position:
            self._reached = position
            self._intake.put(Wake.LOOK)

    def _look_around(self) -> None:
        if self._reached <= self._head.position or self.broken is not None:
            return
        try:
            self._follow()
        except (JournalError, sqlite3.Error) as error:  # whoever appends next is told
            logger.warning("log_not_followed", path=str(self.path), why=str(error))
        except (
            Exception
        ):  # a bug, here or in the driver: the thread must outlive it, or whoever appends next waits for ever
            logger.warning("log_not_followed", path=str(self.path), exc_info=True)

    def _follow(self) -> None:
        """Take over what other hosts appended, and tell whoever listens."""
        while rows := self._rows_after(self._db, self._head):
            self._head, events = self._copy(self._db, self._head, rows, views=True)
            for event in events:
                self._versions.pop(event.task, None)
            self._tell(events)
            if any(isinstance(event.draft.body, IncarnationStarted) for event in events):
                # Epochs go on above a floor now, which is read when a log is opened.
                self._broken = StoreUnavailableError(
                    path=self._upstream.shown,
                    why="a new incarnation was begun by another host",
                    remedy="start this service again",
                )
                raise self._broken

    def _rows_after(self, db: sqlite3.Connection, head: Head) -> Sequence[Row]:
        """The next rows, after a look whether the log still holds the copy's last event."""
        rows = self._upstream.after(max(head.position - 1, 0), CHUNK)
        if not head.position:
            return rows
        if not rows or rows[0][-1] != head.hash:
            raise self._lost_its_end(db, head)
        return rows[1:]

    def _copy(
        self, db: sqlite3.Connection, head: Head, rows: Sequence[Row], *, views: bool
    ) -> tuple[Head, list[Event]]:
        """Write rows as they are, in one transaction; the table looks at order and chain."""
        events = [as_far_as_known(row) for row in rows]
        db.execute("BEGIN IMMEDIATE")
        try:
            db.executemany(INSERT, rows)
            lanes = self._lanes_after(db, head, events)
            store_lanes(db, head.lanes, lanes)
            if views:
                for projection in self._projections:
                    projection.apply(db, events)
                store_checkpoints(db, self._projections, events[-1])
            db.execute("COMMIT")
        except BaseException as error:
            self._forget()
            self._folded.clear()
            if db.in_transaction:
                db.execute("ROLLBACK")
            if isinstance(error, sqlite3.IntegrityError):
                why = f"the copy refuses events {events[0].position} to {events[-1].position}: {error}"
                raise DamagedError(
                    path=str(self.path), why=why, remedy="move the copy away; it is made anew"
                ) from error
            raise
        return Head(events[-1].position, events[-1].hash, MappingProxyType(lanes)), events

    def _lanes_after(self, db: sqlite3.Connection, head: Head, events: Sequence[Event]) -> dict[str, str]:
        """Who holds which lane after these events: a fold, like everything that is not in the rows themselves."""
        touched = {event.task for event in events if event.task}
        gone = {lane for lane, task in head.lanes.items() if task in touched}
        lanes = {lane: task for lane, task in head.lanes.items() if lane not in gone}
        for task in touched:
            stream = self._folded.pop(task, None) or Stream(task)
            stored = db.execute(_OF_TASK, (task, stream.version))
            stream = fold_stream(task, [as_far_as_known(row) for row in stored], stream)
            self._folded[task] = stream
            if stream.state.lane:
                lanes[stream.state.lane] = task
        while len(self._folded) > FOLDED:
            self._folded.popitem(last=False)
        return lanes

    def _lost_its_end(self, db: sqlite3.Connection, head: Head) -> DamagedError:
        """What the copy holds and the shared log does not: the last event that both hold, by halving."""
        low, high = 0, head.position
        while low < high:
            middle = (low + high + 1) // 2
            theirs = self._upstream.after(middle - 1, 1)
            mine = db.execute("SELECT hash FROM journal_events WHERE position = ?", (middle,)).fetchone()
            same = bool(theirs and mine and theirs[0][-1] == mine[0])
            low, high = (middle, high) if same else (low, middle - 1)
        self._broken = DamagedError(
            path=self._upstream.shown,
            why=f"lacks events {low + 1} to {head.position}, which were acknowledged and stand in {self.path}: an "
            "asynchronous standby was promoted, or an older backup restored",
            remedy="bring the server back that holds them; else follow docs/how-to/postgresql.md, 'A lost end'",
        )
        return self._broken
