"""
Reading a journal as evidence: nothing beside it is made, nothing in it changes, whether or not a service runs (A5).

SQLite alone cannot do that. Plain `mode=ro` on a file at rest leaves `-wal` and `-shm` behind; `immutable=1` ignores a
left-over WAL and with it the newest events; a read-write connection checkpoints the WAL away. So it depends on what
lies there (`standing`). Whether a copy was taken without its `-wal` cannot be known from it; `verify --head` tells.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from enum import StrEnum
from pathlib import Path

from journal.errors import DamagedError, StoreUnavailableError
from journal.events import NOBODY
from journal.locks import is_held
from journal.log.connection import open_reader, unavailable
from journal.ownership import Locks

_SIDES = ("-wal", "-journal")
_TRIES = 3


class Standing(StrEnum):
    """What lies there, and so how it is read."""

    LIVE = "live"  # a process holds the writer lock: read beside it
    LEFT_OVER = "left-over"  # nobody drives, and a WAL or rollback journal was left: read from a private copy
    AT_REST = "at rest"  # one complete file, as far as it can tell: read as immutable


def standing(path: Path) -> Standing:
    """Look at the lock and the side files; changes nothing, opens no database file (R87)."""
    if is_held(Locks(path, NOBODY).writer_path()):
        return Standing.LIVE
    return _lying(path)


def _lying(path: Path) -> Standing:
    return Standing.LEFT_OVER if _sides(path) else Standing.AT_REST


@contextmanager
def open_evidence(path: Path, *, mine: bool = False) -> Iterator[sqlite3.Connection]:
    """
    Open a journal for reading and leave the database and its WAL as they are, bit for bit.

    Works beside a running service, after kill -9, on a copy, and in a folder that cannot be written.

    Args:
        path: The database file.
        mine: The caller holds the writer lock and does not write: nobody else does.

    Raises:
        StoreUnavailableError: There is no readable journal, or somebody began to write while it was read.
        DamagedError: The file holds no journal, or SQLite cannot read it.
    """
    match _lying(path) if mine else standing(path):
        case Standing.LIVE:
            with _reading(path, open_reader(path)) as db:
                yield db
        case Standing.AT_REST:
            before = _marks(path)
            with _unchanged(path, before), _reading(path, open_reader(path, immutable=True)) as db:
                yield db
        case Standing.LEFT_OVER:
            with tempfile.TemporaryDirectory(prefix="journal-evidence-") as folder:
                before, copy = _private(path, Path(folder))
                with _unchanged(path, before), _reading(path, _open_copy(path, copy)) as db:
                    yield db


@contextmanager
def _reading(path: Path, db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    try:
        yield db
    except sqlite3.Error as error:
        raise unavailable(path, error) from error
    finally:
        db.close()


@contextmanager
def _unchanged(path: Path, before: tuple[int, ...]) -> Iterator[None]:
    """Nobody promised us to stay away: if somebody wrote meanwhile, nothing that was read counts."""
    try:
        yield
    finally:
        if _marks(path) != before:
            raise _moved(path)


def _private(path: Path, folder: Path) -> tuple[tuple[int, ...], Path]:
    """The file and what was left beside it under a private name, all of one moment."""
    for _ in range(_TRIES):
        before = _marks(path)
        sides = _sides(path)
        try:
            # A reader that has a WAL never writes the main file, so a second name for it saves copying gigabytes;
            # to roll back a journal it would, so then the file itself is copied.
            if "-journal" in sides or not _linked(path, folder / path.name):
                shutil.copyfile(path, folder / path.name)
            for suffix in sides:
                shutil.copyfile(path.with_name(path.name + suffix), folder / (path.name + suffix))
        except OSError as error:
            raise StoreUnavailableError(
                path=str(path),
                why=f"no private copy could be made in {folder.parent} ({error.strerror})",
                remedy="set TMPDIR to a folder with room for the journal",
            ) from error
        if _marks(path) == before:
            return before, folder / path.name
        for file in folder.iterdir():
            file.unlink()
    raise _moved(path)


def _open_copy(path: Path, copy: Path) -> sqlite3.Connection:
    try:
        if copy.with_name(copy.name + "-journal").exists():
            with closing(sqlite3.connect(copy)) as db:  # rolls the copy back to its last commit
                db.execute("SELECT 1 FROM sqlite_schema").fetchone()
        return open_reader(copy)
    except (StoreUnavailableError, DamagedError) as error:
        raise type(error)(path=str(path), why=error.why, remedy=error.remedy) from error


def _linked(path: Path, name: Path) -> bool:
    try:
        os.link(path, name)
    except OSError:  # another file system, or not our file
        return False
    return True


def _sides(path: Path) -> tuple[str, ...]:
    return tuple(suffix for suffix in _SIDES if _size(path.with_name(path.name + suffix)))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _marks(path: Path) -> tuple[int, ...]:
    """What changes when somebody writes: inode, size and time of the file and of what lies beside it."""
    marks: list[int] = []
    for suffix in ("", *_SIDES):
        try:
            found = path.with_name(path.name + suffix).stat()
        except OSError:
            marks += (0, 0, 0)
        else:
            marks += (found.st_ino, found.st_size, found.st_mtime_ns) if found.st_size else (0, 0, 0)
    return tuple(marks)


def _moved(path: Path) -> StoreUnavailableError:
    return StoreUnavailableError(path=str(path), why="somebody began to write it while it was read", remedy="ask again")
