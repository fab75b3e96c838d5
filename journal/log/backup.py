"""
A copy of a journal by SQLite's backup API: beside a running service, after a crash, of a file at rest (R87).

Never by copying the open file: its newest events lie in the WAL, and closing a descriptor of it would drop the locks of
every connection in the process.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from journal.errors import InvalidInputError, StoreUnavailableError
from journal.log.anchor import sync_folder
from journal.log.connection import unavailable
from journal.log.offline import open_evidence
from journal.names import shown
from journal.ports import Anchor


def back_up(source: Path, dest: Path) -> Anchor:
    """
    Copy a journal into one complete file, which exists whole and synced or not at all.

    Args:
        source: The journal; it may be open in a service.
        dest: A file that does not exist yet.

    Returns:
        The head of the copy.

    Raises:
        InvalidInputError: `dest` is taken.
        StoreError: The journal cannot be read, or the copy not written.
    """
    if dest.is_dir() or dest.exists() or dest.is_symlink():
        raise InvalidInputError(what=shown(str(dest), 300), why="is there already; name a new file")
    partial = dest.with_name(f".{dest.name}.{os.urandom(8).hex()}.partial")
    try:
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with open_evidence(source) as db:
            head = _copy(db, partial)
        _sync(partial)
        os.link(partial, dest)  # and not rename: it refuses to replace
        sync_folder(dest.parent)
    except OSError as error:
        raise StoreUnavailableError(path=str(dest), why=f"cannot be written: {error.strerror or error}") from error
    finally:
        for suffix in ("", "-journal", "-wal", "-shm"):
            with suppress(OSError):
                partial.with_name(partial.name + suffix).unlink()
    return head


def _copy(db: sqlite3.Connection, partial: Path) -> Anchor:
    try:
        with closing(sqlite3.connect(partial, isolation_level=None)) as copy:
            db.backup(copy)  # in one step: a copy in several begins anew whenever the service commits
            # One file that needs nothing beside it, readable on a medium that cannot be written.
            copy.execute("PRAGMA journal_mode = DELETE").fetchall()
            row = copy.execute("SELECT position, hash FROM journal_events ORDER BY position DESC LIMIT 1").fetchone()
    except sqlite3.Error as error:
        raise unavailable(partial, error) from error
    return Anchor(row[0], bytes(row[1]).hex()) if row else Anchor(0, "")


def _sync(file: Path) -> None:
    fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
