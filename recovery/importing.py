"""
Import: an export becomes a journal again, event for event, with the same hashes.

It is the same journal, not a new one: two services that drive the two would do each effect twice. An import is for
audits and for moving house; whoever goes back to an older state wants `restore`, which begins a new incarnation.
"""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from journal.chain import GENESIS
from journal.errors import DamagedError, InvalidInputError, NotWriterError, StoreUnavailableError
from journal.events import Owner
from journal.locks import read_holder
from journal.log import anchor
from journal.log.connection import open_writer
from journal.log.offline import open_evidence
from journal.log.rows import INSERT, as_far_as_known
from journal.log.schema import COLUMNS
from journal.log.upstream import Upstream, mark_copy
from journal.names import shown
from journal.ownership import Locks
from journal.ports import Anchor
from recovery.export import checked_rows, read_preamble
from recovery.restore import OpenLog
from recovery.verify import verify

BATCH = 1000
"""Rows in one transaction."""

_SIDES = ("", "-wal", "-shm", "-journal")
_AFTER = f"SELECT {COLUMNS} FROM journal_events WHERE position > ? ORDER BY position LIMIT ?"  # noqa: S608
_LANES = "INSERT INTO journal_lanes SELECT lane, task FROM journal_view_tasks WHERE lane <> ''"


async def import_lines(
    db: Path, lines: Iterable[str], *, me: Owner, open_log: OpenLog, upstream: Upstream | None = None
) -> Anchor:
    """
    Make a journal of an export, where there is none yet or only a new one.

    Args:
        db: Where it shall lie.
        lines: The export's lines.
        me: This process, for the lock.
        open_log: Opens a log for writing as the service would; it builds the views.
        upstream: A log on a server that takes the events, and of which the file becomes this host's copy.

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
        if upstream is not None:
            await asyncio.to_thread(_must_hold_nothing, upstream)
        _clear(staging)
        head = _fill(staging, iter(lines))
        await _finish(staging, open_log, head)
        if upstream is not None:  # verified by now: what a server holds stays there
            await asyncio.to_thread(_hand_over, staging, upstream)
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


def _must_hold_nothing(upstream: Upstream) -> None:
    upstream.open()
    if (position := upstream.head()[0]) > 0:
        why = f"holds {position} events already, and nothing is ever taken out; import into an empty database"
        raise InvalidInputError(what=upstream.shown, why=why)


def _hand_over(staging: Path, upstream: Upstream) -> None:
    """Append everything in order; cut short, the server holds a beginning of it, and another database is needed."""
    position, digest = 0, GENESIS
    with closing(open_writer(staging)) as db:
        while rows := db.execute(_AFTER, (position, BATCH)).fetchall():
            upstream.append(position, digest, [as_far_as_known(row) for row in rows])
            position, digest = rows[-1][0], rows[-1][-1]
        mark_copy(db)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _clear(place: Path) -> None:
    for suffix in _SIDES:
        place.with_name(place.name + suffix).unlink(missing_ok=True)
