"""
Import: an export becomes a journal again, event for event, with the same hashes.

It is the same journal, not a new one: two services that drive the two would do each effect twice. An import is for
audits and for moving house; whoever goes back to an older state wants `restore`, which begins a new incarnation.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from journal.errors import DamagedError, InvalidInputError, NotWriterError, StoreUnavailableError
from journal.events import Owner
from journal.log import anchor
from journal.log.connection import open_writer
from journal.log.offline import open_evidence
from journal.log.rows import INSERT
from journal.names import shown
from journal.ownership import Locks, read_holder
from journal.ports import Anchor
from recovery.export import checked_rows, read_preamble
from recovery.restore import OpenLog
from recovery.verify import verify

BATCH = 1000
"""Rows in one transaction."""

_SIDES = ("", "-wal", "-shm", "-journal")
_LANES = "INSERT INTO journal_lanes SELECT lane, task FROM journal_view_tasks WHERE lane <> ''"


async def import_lines(db: Path, lines: Iterable[str], *, me: Owner, open_log: OpenLog) -> Anchor:
    """
    Make a journal of an export, where there is none yet or only a new one.

    Args:
        db: Where it shall lie.
        lines: The export's lines.
        me: This process, for the lock.
        open_log: Opens a log for writing as the service would; it builds the views.

    Returns:
        The head, the same as the export's.

    Raises:
        InvalidInputError: There is a journal with events, or the export is one task's part.
        NotWriterError: A service works on the journal.
        DamagedError: The export was changed or cut; nothing is left behind.
        StoreError: The disk refuses; nothing is left behind.
    """
    if not db.parent.is_dir():
        raise StoreUnavailableError(path=str(db), why="its folder does not exist", remedy="create the folder first")
    locks = Locks(db, me)
    lock = locks.take_writer("import")
    if lock is None:
        raise NotWriterError(path=str(db), holder=str(read_holder(locks.writer_path())))
    staging = db.with_name(f"{db.name}.importing")
    try:
        _must_be_empty(db)
        _clear(staging)
        head = _fill(staging, iter(lines))
        await _finish(staging, open_log, head)
        _clear(db)
        staging.replace(db)
        anchor.put(db, head)
        return head
    except OSError as error:
        raise StoreUnavailableError(path=str(db), why=f"cannot be written: {error}") from error
    finally:
        _clear(staging)
        lock.release()


def _must_be_empty(db: Path) -> None:
    if not db.exists():
        return
    with open_evidence(db, mine=True) as there:
        number = there.execute("SELECT count(*) FROM (SELECT 1 FROM journal_events LIMIT 2)").fetchone()[0]
    if number > 1:  # a new one holds its own first event, which nothing rests on
        raise InvalidInputError(what=shown(str(db), 300), why="holds events already; import into a new file with --db")


def _fill(staging: Path, lines: Iterator[str]) -> Anchor:
    first = next(lines, None)
    if first is None:
        raise InvalidInputError(what="the export", why="is empty")
    preamble = read_preamble(first)
    if preamble.task:
        why = "is of one task; only a whole log can be imported (`verify_export.py` checks it as it is)"
        raise InvalidInputError(what="the export", why=why)
    with closing(open_writer(staging)) as db:
        rows = checked_rows(preamble, lines)
        while batch := list(itertools.islice(rows, BATCH)):
            db.execute("BEGIN IMMEDIATE")
            try:
                db.executemany(INSERT, batch)
            except sqlite3.Error as error:
                db.execute("ROLLBACK")
                why = f"the table refuses an event among {batch[0][0]} to {batch[-1][0]}: {error}"
                raise DamagedError(path="the export", why=why) from error
            db.execute("COMMIT")
    if not preamble.events:
        raise InvalidInputError(what="the export", why="holds no event")
    return preamble.head


async def _finish(staging: Path, open_log: OpenLog, head: Anchor) -> None:
    """Build the views, give the lanes to who holds them, and look at the whole once more."""
    log = await open_log(staging)
    await log.close()
    with closing(open_writer(staging)) as db:
        db.execute(_LANES)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    with open_evidence(staging, mine=True) as made:
        found = verify(made, deep=True)
    if not found.intact or (found.position, found.hash) != (head.position, head.hash):
        why = found.violations[0].detail if found.violations else "it ends elsewhere than it promised"
        raise DamagedError(path="the export", why=why, remedy="ask for the export again")


def _clear(place: Path) -> None:
    for suffix in _SIDES:
        place.with_name(place.name + suffix).unlink(missing_ok=True)
