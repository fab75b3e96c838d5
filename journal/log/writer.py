"""
The one writer: a thread that owns the read-write connection and commits whole batches (S4, S7, decision 0005).

Callers hand in units and await; the thread drains what waits into one transaction, compares and admits each member by
itself, updates the projections, commits once, and answers everybody after the sync. A caller that is cancelled tears
nothing: its unit is already one entry of the queue and is written whole or not at all.

A COMMIT that raises is unknown (S5): the connection is closed and opened anew, and each member is answered from what the
file then holds. After a disk error the writer is poisoned (S6).
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from journal.admit import admit
from journal.errors import (
    CommitUnknownError,
    InadmissibleError,
    JournalError,
    PoisonedError,
    StoreUnavailableError,
    TaskExistsError,
)
from journal.chain import GENESIS
from journal.events import Draft, Event, Intended, JournalCreated, Opened
from journal.log import poison
from journal.log.connection import DISK_ERRORS, open_writer, primary_code, unavailable
from journal.log.rows import INSERT, Redact, place, to_row
from journal.log.unit import Answer, Moved, Taken, Unit, Written
from journal.ports import Clock
from journal.projection import Projection, catch_up, store_checkpoints

logger = structlog.get_logger(__name__)

MAX_BATCH = 1000
"""Units in one transaction."""

SPACE_RESERVE = 32 << 20
"""Bytes that must be free on the journal's file system before an intent is written (S10)."""


@dataclass(slots=True)
class _Entry:
    unit: Unit
    answer: asyncio.Future[Answer]
    loop: asyncio.AbstractEventLoop


@dataclass(frozen=True, slots=True)
class _Tally:
    """One more of something that is no event."""

    name: str
    actor: str
    task: str
    at: int


_UPSERT_COUNT = (
    "INSERT INTO journal_counters VALUES (?, ?, ?, ?, ?) ON CONFLICT (name, actor, task) "
    "DO UPDATE SET count = count + excluded.count, last_at = excluded.last_at"
)


class Writer:
    """Owns the connection and the thread. Made under the writer lock, by `journal.journal`."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        new_id: Callable[[], str],
        projections: Sequence[Projection] = (),
        redact: Redact | None = None,
    ) -> None:
        self.path = path
        self._clock, self._new_id, self._projections, self._redact = clock, new_id, tuple(projections), redact
        self._queue: queue.SimpleQueue[_Entry | _Tally | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="journal-writer", daemon=True)
        self._broken: JournalError | None = None
        self.on_events: Callable[[Sequence[Event]], None] | None = None  # called in the thread, after the commit
        self.batches = self.events = 0
        self.position, self._head, self._lanes = 0, GENESIS, {}  # type: tuple[int, bytes, dict[str, str]]
        self.journal_id = ""
        self._db = self._open()
        self._thread.start()

    # -- called from the event loop -----------------------------------------------------------------------------------

    async def append(self, unit: Unit) -> Answer:
        """
        Append a unit if its stream is still at the version it was decided from.

        Raises:
            InadmissibleError: No rule allows the unit: a bug in whoever wrote it.
            TaskExistsError: `opened` for an id that is taken, ignoring letter case.
            CommitUnknownError: It may or may not be durable; read the stream again, rest nothing on it.
            StoreError: It is not written, and why.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._queue.put(_Entry(unit, answer, loop))
        return await answer

    def count(self, name: str, actor: str, task: str = "") -> None:
        """Count something that is no event (deferrals): a bystander's event would make the owner lose its race."""
        self._queue.put(_Tally(name, actor, task, self._clock.now_us()))

    @property
    def broken(self) -> JournalError | None:
        """Why nothing can be written any more; None while it can."""
        return self._broken

    async def close(self) -> None:
        """Write what waits, close the connection, end the thread."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    # -- the thread -----------------------------------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        if reason := poison.reason(self.path):
            raise PoisonedError(path=str(self.path), why=reason)
        db = open_writer(self.path)
        try:
            self._inode = os.stat(self.path).st_ino
            self._read_head(db)
            if not self.position:
                self._create(db)
            first = db.execute("SELECT json_extract(body, '$.journal') FROM journal_events WHERE position = 1").fetchone()
            self.journal_id = first[0]
            self._lanes = dict(db.execute("SELECT lane, task FROM journal_lanes"))
            catch_up(db, self._projections)
        except sqlite3.Error as error:
            db.close()
            raise unavailable(self.path, error) from error
        except BaseException:
            db.close()
            raise
        return db

    def _read_head(self, db: sqlite3.Connection) -> None:
        row = db.execute("SELECT position, hash FROM journal_events ORDER BY position DESC LIMIT 1").fetchone()
        self.position, self._head = row or (0, GENESIS)

    def _create(self, db: sqlite3.Connection) -> None:
        draft = Draft(JournalCreated(self._new_id()), actor="journal")
        event = place("", draft, position=1, version=1, at=self._clock.now_us(), prev_hash=GENESIS, basis=0)
        db.execute("BEGIN IMMEDIATE")
        db.execute(INSERT, to_row(event))
        db.execute("COMMIT")
        self._read_head(db)

    def _serve(self) -> None:
        while (entry := self._queue.get()) is not None:
            waiting, ending = [entry], False
            with suppress(queue.Empty):
                while len(waiting) < MAX_BATCH:
                    more = self._queue.get_nowait()
                    if more is None:
                        ending = True
                        break
                    waiting.append(more)
            batch = [w for w in waiting if isinstance(w, _Entry)]
            self._answer(batch, self._commit(batch, [w for w in waiting if isinstance(w, _Tally)]))
            if ending:
                break
        self._close()

    def _answer(self, batch: list[_Entry], answers: list[Answer | JournalError]) -> None:
        """Hand the answers over to each caller's loop, in one call per loop."""
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Answer], Answer | JournalError]]] = {}
        for entry, answer in zip(batch, answers, strict=True):
            by_loop.setdefault(entry.loop, []).append((entry.answer, answer))
        for loop, pairs in by_loop.items():
            with suppress(RuntimeError):  # the loop was closed; nobody waits any more
                loop.call_soon_threadsafe(_deliver, pairs)

    def _commit(self, batch: list[_Entry], tallies: list[_Tally]) -> list[Answer | JournalError]:
        if self._broken is not None:
            return [self._broken] * len(batch)
        units = [entry.unit for entry in batch]
        try:
            self._check_ground(units)
            return self._transact(units, tallies)
        except sqlite3.Error as error:
            return [self._failed_before_commit(error)] * len(batch)
        except JournalError as error:
            return [error] * len(batch)
        except Exception as error:
            # Nothing of the batch is durable, and the thread must outlive a bug so that every caller gets an answer.
            logger.exception("journal_batch_failed", path=str(self.path))
            self._roll_back()
            return [StoreUnavailableError(path=str(self.path), why=f"a bug stopped the batch: {error!r}")] * len(batch)

    def _transact(self, units: list[Unit], tallies: list[_Tally]) -> list[Answer | JournalError]:
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        batch = _Batch(self, self._clock.now_us())
        answers = [batch.take(unit) for unit in units]
        if batch.events:
            db.executemany(INSERT, [to_row(event) for event in batch.events])
            for projection in self._projections:
                projection.apply(db, batch.events)
            store_checkpoints(db, self._projections, batch.events[-1])
            batch.store_lanes(db)
        if tallies:
            db.executemany(_UPSERT_COUNT, [(t.name, t.actor, t.task, 1, t.at) for t in tallies])
        try:
            db.execute("COMMIT")
        except sqlite3.Error as error:
            return self._settle_commit(answers, error)
        self.position, self._head, self._lanes = batch.position, batch.head, batch.lanes
        self.batches += 1
        self.events += len(batch.events)
        if self.on_events is not None and batch.events:
            self.on_events(batch.events)
        return answers

    def _check_ground(self, units: list[Unit]) -> None:
        """The path must still be the file we opened (R88), and an intent needs room for its outcome (S10)."""
        try:
            inode = os.stat(self.path).st_ino
        except OSError:
            inode = -1
        if inode != self._inode:
            self._broken = StoreUnavailableError(
                path=str(self.path),
                why="the file was removed or replaced while the journal was open",
                remedy="put the right file back, run `journal verify`, start again",
            )
            raise self._broken
        if any(isinstance(d.body, Intended) for unit in units for d in unit.drafts):
            space = os.statvfs(self.path)
            if space.f_bavail * space.f_frsize < SPACE_RESERVE:
                raise StoreUnavailableError(
                    path=str(self.path),
                    why=f"less than {SPACE_RESERVE >> 20} MiB are free, so no effect may start",
                    remedy="free space",
                )

    def _roll_back(self) -> None:
        self._projections_reset()
        with suppress(sqlite3.Error):
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def _projections_reset(self) -> None:
        for projection in self._projections:
            projection.reset()

    def _failed_before_commit(self, error: sqlite3.Error) -> JournalError:
        """Nothing was committed: the answer is known. A disk error still stops the writer for good."""
        self._roll_back()
        if primary_code(error) in DISK_ERRORS:
            return self._poison(str(error))
        return unavailable(self.path, error)

    def _settle_commit(
        self, answers: list[Answer | JournalError], error: sqlite3.Error
    ) -> list[Answer | JournalError]:
        """A COMMIT raised. Reopen, look, and answer each member from what is there; never commit again."""
        logger.warning("journal_commit_failed", path=str(self.path), error=str(error))
        self._projections_reset()
        with suppress(sqlite3.Error):
            self._db.close()
        unknown = CommitUnknownError(path=str(self.path), why=str(error))
        try:
            if primary_code(error) in DISK_ERRORS:
                self._poison(str(error))  # what is absent now may still come back (finding 7): nothing is certain
                return [a if not isinstance(a, Written) else unknown for a in answers]
            self._db = self._open()
        except (JournalError, sqlite3.Error) as again:
            self._broken = again if isinstance(again, JournalError) else unavailable(self.path, again)
            return [a if not isinstance(a, Written) else unknown for a in answers]
        return [self._found(a) if isinstance(a, Written) else a for a in answers]

    def _found(self, answer: Written) -> Answer | JournalError:
        last = answer.events[-1]
        row = self._db.execute("SELECT hash FROM journal_events WHERE position = ?", (last.position,)).fetchone()
        if row and row[0] == last.hash:
            return answer
        return CommitUnknownError(path=str(self.path), why="the reopened file does not hold the unit")

    def _poison(self, why: str) -> JournalError:
        self._broken = PoisonedError(path=str(self.path), why=why)
        poison.put(self.path, why)
        return self._broken

    def _close(self) -> None:
        with suppress(sqlite3.Error):
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._db.close()
        closed = StoreUnavailableError(path=str(self.path), why="the journal is closed")
        with suppress(queue.Empty):
            while entry := self._queue.get_nowait():
                if isinstance(entry, _Entry):
                    self._answer([entry], [closed])


class _Batch:
    """The members of one transaction: each is compared, admitted and placed by itself."""

    def __init__(self, writer: Writer, at: int) -> None:
        self._writer, self._db, self._at = writer, writer._db, at
        self.position, self.head, self.lanes = writer.position, writer._head, dict(writer._lanes)
        self.events: list[Event] = []
        self._versions: dict[str, int] = {}

    def take(self, unit: Unit) -> Answer | JournalError:
        stream = unit.stream
        version = self._versions.get(stream.task)
        if version is None:
            version = self._stored_version(stream.task)
        if version != stream.version:
            self._versions[stream.task] = version
            return Moved(version)
        try:
            if not version and stream.task:
                self._check_new(unit)
            state = admit(stream.state, unit.drafts) if stream.task else stream.state
            if state.lane != stream.state.lane and state.lane:
                holder = self.lanes.get(state.lane, stream.task)
                if holder != stream.task:
                    return Taken(holder)
            placed = self._place(unit)
        except JournalError as error:
            return error
        self._commit_member(unit, placed)
        return placed

    def _stored_version(self, task: str) -> int:
        row = self._db.execute("SELECT max(version) FROM journal_events WHERE task = ?", (task,)).fetchone()
        return int(row[0] or 0)

    def _check_new(self, unit: Unit) -> None:
        task = unit.stream.task
        if not isinstance(unit.drafts[0].body, Opened):
            raise InadmissibleError(rule="P0", detail=f"{unit.drafts[0].kind} before opened")
        row = self._db.execute(
            "SELECT task FROM journal_events WHERE task = ? COLLATE NOCASE AND kind = 'opened'", (task,)
        ).fetchone()
        existing = row[0] if row else next((t for t in self._versions if t.lower() == task.lower() and t), None)
        if existing:
            raise TaskExistsError(task=task, existing=existing)

    def _place(self, unit: Unit) -> Written:
        stream, events = unit.stream, []
        position, head = self.position, self.head
        for draft in unit.drafts:
            position += 1
            event = place(
                stream.task, draft, position=position, version=stream.version + 1, at=self._at, prev_hash=head,
                basis=stream.basis, redact=self._writer._redact,
            )  # fmt: skip
            head, stream = event.hash, stream.after(event)
            events.append(event)
        return Written(stream, tuple(events))

    def _commit_member(self, unit: Unit, placed: Written) -> None:
        last = placed.events[-1]
        self.position, self.head = last.position, last.hash
        self.events.extend(placed.events)
        self._versions[unit.stream.task] = last.version
        before, after = unit.stream.state.lane, placed.stream.state.lane
        if before != after:
            if before and self.lanes.get(before) == unit.stream.task:
                del self.lanes[before]
            if after:
                self.lanes[after] = unit.stream.task

    def store_lanes(self, db: sqlite3.Connection) -> None:
        old = self._writer._lanes
        if self.lanes == old:
            return
        gone = [(lane,) for lane in old if lane not in self.lanes]
        new = [(lane, task) for lane, task in self.lanes.items() if old.get(lane) != task]
        db.executemany("DELETE FROM journal_lanes WHERE lane = ?", gone)
        db.executemany("INSERT OR REPLACE INTO journal_lanes VALUES (?, ?)", new)


def _deliver(pairs: list[tuple[asyncio.Future[Answer], Answer | JournalError]]) -> None:
    for future, answer in pairs:
        if future.done():
            continue  # the caller was cancelled; what is written is written
        if isinstance(answer, JournalError):
            future.set_exception(answer)
        else:
            future.set_result(answer)
