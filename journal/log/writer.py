"""
The one writer: a thread that owns the read-write connection and commits whole batches (S4, S7, decision 0005).

Callers hand in units and await; the thread drains what waits into one transaction, compares and admits each member by
itself, updates the projections, commits once, and answers everybody after the sync. A caller that is cancelled tears
nothing: its unit is already one entry of the queue, is written whole or not at all, and the caller learns of its
cancellation only when that is decided.

A COMMIT that raises is unknown (S5): the connection is closed and opened anew, and each member is answered from what
the file then holds. After a disk error the writer is poisoned (S6).
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import structlog

from journal.chain import GENESIS
from journal.errors import (
    CommitUnknownError,
    DamagedError,
    InadmissibleError,
    JournalError,
    PoisonedError,
    StoreUnavailableError,
)
from journal.events import Acquired, Draft, Event, Intended, JournalCreated
from journal.log import poison
from journal.log.batch import Batch, Head
from journal.log.companion import Companion
from journal.log.connection import DISK_ERRORS, open_writer, primary_code, unavailable
from journal.log.ground import Footing
from journal.log.intake import Entry, Intake, Outcome, Tally, Wake, deliver
from journal.log.rows import INSERT, Redact, place, to_row
from journal.log.unit import Answer, Changed, Side, Unit, Written
from journal.log.upstream import BehindError
from journal.ports import Clock
from journal.projection import Projection, catch_up, store_checkpoints

logger = structlog.get_logger(__name__)

KNOWN_VERSIONS = 8192
"""Streams whose version is kept from the last write, so that a running task costs no query an append."""

_UPSERT_COUNT = (
    "INSERT INTO journal_counters VALUES (?, ?, ?, ?, ?) ON CONFLICT (name, actor, task) "
    "DO UPDATE SET count = count + excluded.count, last_at = excluded.last_at"
)


class Writer:
    """Owns the connection and the thread. Made under the writer lock, by `journal.journal`."""

    follows = False
    """The file is a copy of a log elsewhere."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        new_id: Callable[[], str],
        projections: Sequence[Projection] = (),
        redact: Redact | None = None,
        companion: Companion | None = None,
    ) -> None:
        self.path, self._companion = path, companion
        self._clock, self._new_id, self._projections, self._redact = clock, new_id, tuple(projections), redact
        self._intake = Intake(path)
        self._thread = threading.Thread(target=self._serve, name="journal-writer", daemon=True)
        self._broken: JournalError | None = None
        self.on_events: Callable[[Sequence[Event]], None] | None = None  # called in the thread, after the commit
        self.batches = self.events = 0
        self.commit_s = 0.0  # spent in transactions, failed ones too
        self._head = Head()
        self._versions: dict[str, int] = {}
        self.journal_id = ""
        self._db = self._open()
        self._thread.start()

    # -- called from the event loop -----------------------------------------------------------------------------------

    async def append(self, unit: Unit) -> Answer:
        """
        Append a unit if its stream is still at the version it was decided from.

        A caller that is cancelled waits until its unit is written or refused (R80), so that nobody who comes after it
        reads a stream that is about to move.

        Raises:
            InadmissibleError: No rule allows the unit: a bug in whoever wrote it.
            TaskExistsError: `opened` for an id that is taken, ignoring letter case.
            CommitUnknownError: It may or may not be durable; read the stream again, rest nothing on it.
            StoreError: It is not written, and why.
        """
        answer = await self._intake.ask(unit)
        assert not isinstance(answer, Changed)
        return answer

    async def side(self, side: Side) -> Changed:
        """
        Write to a side table: in the batches of the units, answered after their commit.

        Raises:
            CommitUnknownError: It may or may not be durable.
            StoreError: It is not written, and why.
        """
        answer = await self._intake.ask(side)
        assert isinstance(answer, Changed)
        return answer

    def count(self, name: str, actor: str, task: str = "") -> None:
        """Count something that is no event (deferrals): a bystander's event would make the owner lose its race."""
        self._intake.put(Tally(name, actor, task, self._clock.now_us()))

    @property
    def broken(self) -> JournalError | None:
        """Why nothing can be written any more; None while it can."""
        return self._broken

    async def close(self) -> None:
        """Write what waits, close the connection, end the thread. Whoever comes later is refused, nobody hangs."""
        self._intake.close()
        await asyncio.to_thread(self._thread.join)

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        if reason := poison.reason(self.path):
            raise PoisonedError(path=str(self.path), why=reason)
        db = open_writer(self.path, self._companion, follows=self.follows)
        try:
            self._footing = Footing(self.path)
            lanes = dict(db.execute("SELECT lane, task FROM journal_lanes").fetchall())
            self._head = self._begin(db, Head(*(_stored_head(db) or (0, GENESIS)), MappingProxyType(lanes)))
            self.journal_id = journal_id(db)
            catch_up(db, self._projections)
        except sqlite3.Error as error:
            db.close()
            raise unavailable(self.path, error) from error
        except BaseException:
            db.close()
            raise
        return db

    def _begin(self, db: sqlite3.Connection, head: Head) -> Head:
        """Where the log stands once it holds a first event."""
        if head.position:
            return head
        draft = Draft(JournalCreated(self._new_id()), actor="journal")
        event = place("", draft, position=1, version=1, at=self._clock.now_us(), prev_hash=GENESIS, basis=0)
        db.execute("BEGIN IMMEDIATE")
        db.execute(INSERT, to_row(event))
        db.execute("COMMIT")
        return Head(event.position, event.hash, head.lanes)

    def _serve(self) -> None:
        ending = False
        while not ending:
            waiting, ending = self._intake.drain()
            batch = [w for w in waiting if isinstance(w, Entry)]
            tallies = [w for w in waiting if isinstance(w, Tally)]
            if batch or tallies:
                deliver(batch, self._commit([entry.unit for entry in batch], tallies))
            if Wake.LOOK in waiting:
                self._look_around()
        with suppress(sqlite3.Error):
            self._db.execute("PRAGMA busy_timeout = 100")  # a reader elsewhere must not hold up our end (R79)
            if self._companion is None:  # a host's checkpoints are the host's business
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self._db.close()

    def _look_around(self) -> None:
        """Something may have happened outside; for whoever follows another log."""

    def _publish(self, events: Sequence[Event], answers: Sequence[Outcome]) -> None:
        """Make a batch durable elsewhere before it is committed here; for whoever follows another log."""

    def _withdrawn(
        self, units: list[Unit | Side], tallies: list[Tally], answers: list[Outcome], error: JournalError
    ) -> list[Outcome]:
        """The events could not be published: nothing of the batch is committed."""
        self._roll_back()
        return [error if isinstance(answer, (Written, Changed)) else answer for answer in answers]

    def _commit(self, units: list[Unit | Side], tallies: list[Tally]) -> list[Outcome]:
        """Write a batch; every failure becomes an answer, since the thread must outlive it."""
        begun = time.perf_counter()
        try:
            self._check_ground()
            return self._transact(units, tallies)
        except sqlite3.IntegrityError as error:
            return self._one_by_one(units, error)
        except sqlite3.Error as error:
            return [self._failed_before_commit(error)] * len(units)
        except JournalError as error:
            return [error] * len(units)
        except Exception as error:
            logger.exception("journal_batch_failed", path=str(self.path))
            self._roll_back()
            return [StoreUnavailableError(path=str(self.path), why=f"a bug stopped the batch: {error!r}")] * len(units)
        finally:
            self.commit_s += time.perf_counter() - begun

    def _transact(self, units: list[Unit | Side], tallies: list[Tally]) -> list[Outcome]:
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        batch = Batch(
            db, self._head, self._clock.now_us(), known=self._versions, redact=self._redact, full=self._full(units),
            companion=self._companion,
        )  # fmt: skip
        answers = [_aside(db, unit) if isinstance(unit, Side) else batch.take(unit) for unit in units]
        if batch.events:
            db.executemany(INSERT, [to_row(event) for event in batch.events])
            for projection in self._projections:
                projection.apply(db, batch.events, batch.states)
            store_checkpoints(db, self._projections, batch.events[-1])
            batch.store_lanes()
        if tallies:
            db.executemany(_UPSERT_COUNT, [(t.name, t.actor, t.task, 1, t.at) for t in tallies])
        try:
            self._publish(batch.events, answers)
        except BehindError:
            raise
        except JournalError as error:
            return self._withdrawn(units, tallies, answers, error)
        try:
            db.execute("COMMIT")
        except sqlite3.Error as error:
            return self._settle_commit(answers, error)
        self._head = batch.head
        self._remember(batch.versions)
        self.batches += 1
        self.events += len(batch.events)
        self._tell(batch.events)
        return answers

    def _remember(self, versions: dict[str, int]) -> None:
        """Keep versions that are durable now; whoever was written to least lately goes first."""
        for task, version in versions.items():
            self._versions.pop(task, None)
            if version:
                self._versions[task] = version
        while len(self._versions) > KNOWN_VERSIONS:
            del self._versions[next(iter(self._versions))]

    def _tell(self, events: list[Event]) -> None:
        if self.on_events is None or not events:
            return
        try:
            self.on_events(events)
        except Exception:
            # They are durable: a listener's bug must not turn that into "nothing was written".
            logger.exception("journal_listener_failed", path=str(self.path))

    def _check_ground(self) -> None:
        if self._broken is None:
            self._broken = self._footing.lost()
        if self._broken is not None:
            raise self._broken

    def _full(self, units: list[Unit | Side]) -> JournalError | None:
        """An effect needs room for its outcome: why none may begin now, or None (S10). Outcomes still go through."""
        drafts = (d for unit in units if isinstance(unit, Unit) for d in unit.drafts)
        return self._footing.full() if any(isinstance(d.body, (Acquired, Intended)) for d in drafts) else None

    # -- failures -----------------------------------------------------------------------------------------------------

    def _one_by_one(self, units: list[Unit | Side], error: sqlite3.IntegrityError) -> list[Outcome]:
        """The table refused what `admit` let through: a bug, or a second writer. Only whoever caused it may suffer."""
        logger.error("journal_table_refused", path=str(self.path), error=str(error), units=len(units))
        self._roll_back()
        if (_stored_head(self._db) or (0, b"")) != (self._head.position, self._head.hash):
            self._broken = DamagedError(
                path=str(self.path),
                why="somebody else wrote to it although this process holds the writer lock",
                remedy="end the other program, run `journal verify`, start again",
            )
        if len(units) == 1:
            return [self._broken or InadmissibleError(rule="L2", detail=str(error))]
        return [answer for unit in units for answer in self._commit([unit], [])]

    def _roll_back(self) -> None:
        self._forget()
        with suppress(sqlite3.Error):
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def _forget(self) -> None:
        """Whatever is cached may be of the transaction that was not to be."""
        self._versions.clear()
        for projection in self._projections:
            projection.reset()

    def _failed_before_commit(self, error: sqlite3.Error) -> JournalError:
        """Nothing was committed: the answer is known. A disk error still stops the writer for good."""
        self._roll_back()
        if primary_code(error) in DISK_ERRORS:
            return self._poison(str(error))
        return unavailable(self.path, error)

    def _settle_commit(self, answers: list[Outcome], error: sqlite3.Error) -> list[Outcome]:
        """A COMMIT raised. Reopen, look, and answer each member from what is there; never commit again."""
        logger.warning("journal_commit_failed", path=str(self.path), error=str(error))
        self._forget()
        with suppress(sqlite3.Error):
            self._db.close()
        unknown = CommitUnknownError(path=str(self.path), why=str(error))
        try:
            if primary_code(error) in DISK_ERRORS:
                # What is absent now may still come back (finding 7): nothing is certain, so nothing is looked for.
                raise self._poison(str(error))
            self._check_ground()
            known = self.journal_id
            self._db = self._open()
            if self.journal_id != known:
                raise DamagedError(path=str(self.path), why="another journal stands there since a commit failed")
            found = [self._found(a) if isinstance(a, Written) else a for a in answers]
            return [unknown if isinstance(a, Changed) else a for a in found]
        except (JournalError, sqlite3.Error, OSError) as again:
            self._broken = self._broken or (again if isinstance(again, JournalError) else unknown)
            return [unknown if isinstance(a, (Written, Changed)) else a for a in answers]

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


def journal_id(db: sqlite3.Connection) -> str:
    """The random id in the log's first event; empty if there is none."""
    first = db.execute("SELECT json_extract(body, '$.journal') FROM journal_events WHERE position = 1").fetchone()
    return str(first[0] or "") if first else ""


def _stored_head(db: sqlite3.Connection) -> tuple[int, bytes] | None:
    row = db.execute("SELECT position, hash FROM journal_events ORDER BY position DESC LIMIT 1").fetchone()
    return (row[0], row[1]) if row else None


def _aside(db: sqlite3.Connection, side: Side) -> Changed | JournalError:
    """One statement beside the units. SQLite undoes a refused statement alone, so it hurts nobody else in the batch."""
    try:
        cursor = db.execute(side.statement, side.parameters)
        return Changed(rows=tuple(cursor.fetchall()), count=cursor.rowcount)
    except sqlite3.Error as error:
        own = primary_code(error) in (sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH)
        if not own or not db.in_transaction:
            raise
        return InadmissibleError(rule="L1", detail=f"a side table refused a statement: {error}")
