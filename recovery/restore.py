"""
Putting a backup back: a new incarnation, whose epochs begin above every one ever handed out (F1, V8, X2; R93).

The world has moved on since the backup. What happened then is not in it, so nothing is decided from the file alone:
used epochs never come back, facts are asked as always before a step, and an effect that cites an event the log lacks
stops its task. The database, what SQLite left beside it, the poison and the anchor are one set and change as one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import structlog

from journal.errors import DamagedError, InvalidInputError, JournalError, NotWriterError, StoreUnavailableError
from journal.events import Draft, IncarnationStarted, Owner
from journal.locks import read_holder
from journal.log import anchor, poison
from journal.log.backup import back_up
from journal.log.offline import open_evidence
from journal.log.sqlite import SqliteLog
from journal.log.unit import Unit, Written
from journal.names import shown
from journal.ownership import Locks
from journal.ports import Anchor, Clock
from journal.stream import Stream
from recovery.verify import verify

logger = structlog.get_logger(__name__)

UNKNOWN_EPOCHS = 1_000_000
"""
Added to the floor when something that may have known higher epochs could not be read.

A task that waits takes an epoch for each look, at most one in some seconds: this is more than a year of that.
"""

_SIDES = ("-wal", "-shm", "-journal")
_KNOWN = """
SELECT max((SELECT coalesce(max(epoch), 0) FROM journal_events),
    (SELECT coalesce(max(json_extract(body, '$.floor')), 0) FROM journal_events
        WHERE task = '' AND kind = 'incarnation_started'))
"""

OpenLog = Callable[[Path], Awaitable[SqliteLog]]


class Traces(Protocol):
    """A place in the world where effects of this journal show their fences."""

    @property
    def name(self) -> str: ...

    async def greatest(self, journal_id: str) -> int:
        """
        The greatest epoch that an effect of this journal shows there; 0 = none.

        Raises:
            JournalError, OSError: It cannot be asked.
        """
        ...


@dataclass(frozen=True, slots=True)
class Copy:
    """What one database file knows."""

    journal_id: str
    head: Anchor
    greatest: int  # epoch, floors included


@dataclass(frozen=True, slots=True)
class Restored:
    """What was done."""

    journal_id: str
    head: Anchor  # of the backup
    floor: int
    lost: int | None  # events that the replaced file held beyond the backup; None = it could not be read
    unread: tuple[str, ...]  # what could not be asked for its epochs
    kept: Path | None  # the replaced file, under its new name


async def restore(
    db: Path, source: Path, *, me: Owner, clock: Clock, open_log: OpenLog, traces: Sequence[Traces] = ()
) -> Restored:
    """
    Put a backup in the place of a journal that nobody drives.

    Args:
        db: The journal's place.
        source: The backup; it stays as it is.
        me: This process, for the lock.
        clock: For names and times.
        open_log: Opens a log for writing as the service would.
        traces: Where the world may show epochs.

    Raises:
        NotWriterError: A service, or a step's child that outlived one, still works on the journal.
        InvalidInputError: The backup is of another journal, or is the journal itself.
        StoreError: The backup is damaged or newer than this program, or the disk refuses; the journal is as it was.
    """
    _check_places(db, source)
    locks = Locks(db, me)
    lock = locks.take_writer("restore")
    if lock is None:
        raise NotWriterError(path=str(db), holder=str(read_holder(locks.writer_path())))
    try:
        _no_children(db, locks)
        return await _restore(db, source, clock, open_log, traces)
    finally:
        lock.release()


async def prepare(source: Path, place: Path, open_log: OpenLog, floor: int) -> None:
    """
    Make a verified copy with a new incarnation, ready to be moved to where it serves.

    Raises:
        StoreError: The source is damaged or newer than this program; nothing is left at `place`.
    """
    _clear(place)
    try:
        head = back_up(source, place)
        with open_evidence(place) as copy:
            found = verify(copy, deep=True)
        if not found.intact:
            first = found.violations[0]
            raise DamagedError(
                path=str(source), why=f"does not verify: position {first.position}, {first.detail}",
                remedy="take another backup",
            )  # fmt: skip
        log = await open_log(place)
        try:
            await _begin(log, floor, f"{shown(source.name, 100)} at {head.position}:{head.hash[:16]}")
        finally:
            await log.close()
    except BaseException:
        _clear(place)
        raise


async def _begin(log: SqliteLog, floor: int, restored_from: str) -> None:
    rows = await log.query("SELECT max(version) FROM journal_events WHERE task = ''")
    draft = Draft(IncarnationStarted(floor, restored_from), actor="restore")
    if not isinstance(await log.append(Unit(Stream("", version=rows[0][0] or 0), (draft,))), Written):
        raise StoreUnavailableError(path=str(log.path), why="somebody else writes the copy")


async def _restore(db: Path, source: Path, clock: Clock, open_log: OpenLog, traces: Sequence[Traces]) -> Restored:
    backup = read_copy(source)
    # The second is of a restore that was cut short, and has asked for what the first knew.
    old, begun = (_replaced(path, source, backup) for path in (db, anchor.restoring_path(db)))
    greatest = max(copy.greatest for copy in (backup, old, begun) if copy)
    shown_there, unread = await _greatest(backup, traces)
    greatest = max(greatest, shown_there)
    if not old and not begun:
        unread.insert(0, "the journal that is replaced")
    floor = greatest + (UNKNOWN_EPOCHS if unread else 0)
    staging = db.with_name(db.name + ".staging")
    await prepare(source, staging, open_log, floor)
    head = read_copy(staging).head
    try:
        kept = _swap(db, staging, clock)
        poison.lift(db)
        anchor.put(db, head)
    except OSError as error:
        raise StoreUnavailableError(
            path=str(db), why=f"the restore was cut short: {error}", remedy="mend that and run it again"
        ) from error
    lost = None if old is None else max(0, old.head.position - backup.head.position)
    logger.info("restored", floor=floor, head=f"{head.position}:{head.hash}", lost=lost)
    return Restored(backup.journal_id, backup.head, floor, lost, tuple(unread), kept)


async def begin_again(
    db: Path, source: Path, *, me: Owner, clock: Clock, open_log: OpenLog, traces: Sequence[Traces] = ()
) -> Restored:
    """
    Begin a new incarnation of a log on a server that lost its end, above every epoch that a copy still knows.

    What the copy holds beyond the server stays in it, as evidence; the server's log is what it is. Nothing is moved
    before the new incarnation is durable, so that it can be run again.

    Args:
        db: This host's copy; it is made anew from the server.
        source: A copy that knows what was lost: this host's, or one of another host.
        me: This process, for the lock.
        clock: For names and times.
        open_log: Opens a new copy of the server's log for writing.
        traces: Where the world may show epochs.

    Raises:
        NotWriterError: A service, or a step's child that outlived one, still works on the copy.
        InvalidInputError: The copy is of another journal.
        StoreError: The copy or the server cannot be read; nothing was changed on this host.
    """
    locks = Locks(db, me)
    lock = locks.take_writer("restore")
    if lock is None:
        raise NotWriterError(path=str(db), holder=str(read_holder(locks.writer_path())))
    staging = db.with_name(db.name + ".staging")
    try:
        _no_children(db, locks)
        known = read_copy(source)
        _clear(staging)
        log = await open_log(staging)
        try:
            position, digest = await log.head()
            if log.journal_id != known.journal_id:
                why = f"is of journal {known.journal_id}, and the server holds {log.journal_id}"
                raise InvalidInputError(what=shown(str(source), 300), why=why)
            greatest, unread = await _greatest(known, traces)
            floor = greatest + (UNKNOWN_EPOCHS if unread else 0)
            await _begin(log, floor, f"a server at {position}:{digest[:16]}")
            head = Anchor(*await log.head())
        finally:
            await log.close()
        kept = _swap(db, staging, clock)
        anchor.put(db, head)
    finally:
        _clear(staging)
        lock.release()
    lost = max(0, known.head.position - position)
    return Restored(known.journal_id, Anchor(position, digest), floor, lost, tuple(unread), kept)


async def _greatest(known: Copy, traces: Sequence[Traces]) -> tuple[int, list[str]]:
    """The greatest epoch that is known anywhere, and what could not be asked."""
    greatest, unread = known.greatest, []
    for trace in traces:
        try:
            greatest = max(greatest, await trace.greatest(known.journal_id))
        except (JournalError, OSError) as error:
            logger.warning("traces_unreadable", where=trace.name, error=str(error))
            unread.append(trace.name)
    return greatest, unread


def _replaced(path: Path, source: Path, backup: Copy) -> Copy | None:
    """What lies where the backup goes; None if nothing does, or it cannot be read."""
    try:
        known = read_copy(path) if path.exists() else None
    except JournalError as error:
        logger.warning("old_journal_unreadable", path=str(path), error=str(error))
        return None
    if known is not None and known.journal_id != backup.journal_id:
        why = f"is of journal {backup.journal_id}, {path.name} of {known.journal_id}; move that file away first"
        raise InvalidInputError(what=shown(str(source), 300), why=why)
    return known


def read_copy(path: Path) -> Copy:
    """
    What a database file knows of itself, read while nobody writes it.

    Raises:
        StoreError: It cannot be read, or holds no journal.
    """
    with open_evidence(path, mine=True) as db:
        try:
            first = db.execute(
                "SELECT json_extract(body, '$.journal') FROM journal_events WHERE position = 1"
            ).fetchone()
            last = db.execute("SELECT position, hash FROM journal_events ORDER BY position DESC LIMIT 1").fetchone()
            greatest = db.execute(_KNOWN).fetchone()[0]
        except sqlite3.Error as error:
            raise DamagedError(path=str(path), why=str(error)) from error
    if not first or not first[0]:
        raise DamagedError(path=str(path), why="holds no event", remedy="name a backup of a journal")
    return Copy(str(first[0]), Anchor(last[0], bytes(last[1]).hex()), int(greatest))


def _check_places(db: Path, source: Path) -> None:
    if source.exists() and db.exists() and source.samefile(db):
        raise InvalidInputError(what=shown(str(source), 300), why="is the journal itself; name a backup")
    if not db.parent.is_dir():
        raise StoreUnavailableError(path=str(db), why="its folder does not exist", remedy="create the folder first")


def _no_children(db: Path, locks: Locks) -> None:
    """A step's child that outlived its service holds its task's lock: what it does belongs to the file it began in."""
    for task in locks.left_behind():
        raise NotWriterError(path=str(db), holder=f"a child of {locks.holder_of(task)}, which holds task {task}")


def _swap(db: Path, staging: Path, clock: Clock) -> Path | None:
    """
    Move the set aside and the new file into its place.

    While `.restoring` lies there nobody opens the journal for writing, so a crash between two of these leaves nothing
    that could be mistaken for the journal: neither the old file without its WAL nor the new one with the old WAL (R92).
    """
    ready = anchor.restoring_path(db)
    staging.replace(ready)
    anchor.sync_folder(db.parent)
    kept = None
    if db.exists():
        stamp = datetime.fromtimestamp(clock.now_us() / 1e6, UTC).strftime("%Y%m%dT%H%M%S%fZ")
        kept = db.with_name(f"{db.name}.before-{stamp}")
        for suffix in ("-wal", "-journal"):
            with suppress(FileNotFoundError):
                db.with_name(db.name + suffix).rename(kept.with_name(kept.name + suffix))
        db.rename(kept)
    for suffix in _SIDES:
        db.with_name(db.name + suffix).unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        anchor.anchor_path(db).unlink()  # it names a head that was lost
    ready.replace(db)
    anchor.sync_folder(db.parent)
    return kept


def _clear(place: Path) -> None:
    for suffix in ("", *_SIDES):
        place.with_name(place.name + suffix).unlink(missing_ok=True)
