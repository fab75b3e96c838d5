"""
Connections: the one that writes, and any number that only read (S1, S3, S9; reports R83-R91).

Every pragma is set and read back; a difference refuses the connection. An authorizer denies UPDATE, DELETE, DROP and
ALTER on the event table, since a dropped table fires no trigger, and writing the schema by hand.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from urllib.parse import quote

from journal.errors import DamagedError, NewerSchemaError, StoreUnavailableError
from journal.log import anchor
from journal.log.companion import Companion
from journal.log.ground import wal_reset_bug
from journal.log.schema import APPLICATION_ID, SCHEMA_NUMBER, migrate, missing_guards, schema_number
from journal.log.upstream import is_copy

Pragmas = tuple[tuple[str, str, object], ...]
"""(name, what is set, what must be read back)."""

WRITER_PRAGMAS: Pragmas = (
    ("journal_mode", "WAL", "wal"),
    ("synchronous", "FULL", 2),
    ("recursive_triggers", "ON", 1),
    ("foreign_keys", "ON", 1),
    ("trusted_schema", "OFF", 0),
    ("cell_size_check", "ON", 1),
    ("busy_timeout", "10000", 10000),
)
READER_PRAGMAS = (
    *(p for p in WRITER_PRAGMAS if p[0] not in ("journal_mode", "synchronous")),
    ("query_only", "ON", 1),
)

# A host's triggers run on our connection when its column of stages is written: they must not begin to call themselves.
# Our own table needs no recursive triggers, since its insert trigger looks for what REPLACE would delete (schema).
_GUEST_PRAGMAS = tuple(p for p in READER_PRAGMAS if p[0] not in ("recursive_triggers", "query_only"))

_ROLLBACK = frozenset({"delete", "truncate", "persist"})

_TABLE = "journal_events"


def guest_pragmas(path: Path, mode: str, version: tuple[int, ...] = sqlite3.sqlite_version_info) -> Pragmas:
    """
    How durable commits are made in a file whose journal mode is its host's and is never changed (DESIGN 9, S1, S4).

    Args:
        path: For the message.
        mode: The file's journal mode, as SQLite says it.
        version: Of the SQLite library.

    Raises:
        StoreUnavailableError: Commits would not be durable, or this SQLite can lose them (R86).
    """
    if mode == "wal":
        if wal_reset_bug(version):
            raise StoreUnavailableError(
                path=str(path),
                why=f"the host keeps it in WAL mode, and SQLite {'.'.join(map(str, version))} can lose commits there "
                "when two connections write (fixed in 3.44.6, 3.50.7 and 3.51.3)",
                remedy="use a fixed SQLite, or let the host choose a rollback journal (journal_mode=DELETE)",
            )
        return (("synchronous", "FULL", 2), *_GUEST_PRAGMAS)
    if mode in _ROLLBACK:
        # FULL leaves a moment in which a power cut brings a deleted rollback journal back, and undoes the commit.
        return (("synchronous", "EXTRA", 3), *_GUEST_PRAGMAS)
    why = f"the host keeps it in journal mode '{mode}', in which a crash can lose or damage commits"
    raise StoreUnavailableError(path=str(path), why=why, remedy="let the host choose WAL or a rollback journal")


def open_writer(path: Path, companion: Companion | None = None, *, follows: bool = False) -> sqlite3.Connection:
    """
    Open the file for writing: create or migrate it, check that it is an intact journal of a known schema.

    Args:
        path: The file.
        companion: Whose file it is, if not our own: it must exist, and its journal mode stays.
        follows: It is a copy of a log elsewhere, which the caller compares and brings up to it.

    Raises:
        StoreUnavailableError, DamagedError, NewerSchemaError: Each says what was found and how to mend it.
    """
    _check_path(path)
    fresh = not path.exists() or path.stat().st_size == 0
    if fresh and companion is not None:
        raise StoreUnavailableError(path=str(path), why="is not there or empty", remedy="name the host's database")
    try:
        db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
    except sqlite3.Error as error:
        raise unavailable(path, error) from error
    try:
        number = schema_number(db)  # before any pragma: a newer file is not changed in the least
        if number > SCHEMA_NUMBER:
            raise NewerSchemaError(path=str(path), found=number, known=SCHEMA_NUMBER)
        if is_copy(db) and not follows:
            raise StoreUnavailableError(
                path=str(path),
                why="is a host's copy of a log on a server, and nothing may be appended to it alone",
                remedy='set [journal] engine = "postgres", or name another file',
            )
        if fresh:
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        mode = db.execute("PRAGMA journal_mode").fetchone()[0]
        # Whoever names a host's file without saying that it is one must not change it to WAL either.
        guest = companion is not None or (mode in _ROLLBACK and _has_foreign_tables(db))
        _set(db, path, guest_pragmas(path, mode) if guest else WRITER_PRAGMAS)
        if companion is not None:
            companion.check(db, path)
        if number:
            _check_guards(db, path)  # before migrating, which would put back what was taken away without a word
        migrate(db)
        _check_guards(db, path)  # a foreign table of our name stays as it is, and is none of ours
        if not follows:  # a copy is looked at when it has followed: it may be new, and the anchor of its host old
            anchor.check(db, path)
        db.set_authorizer(_authorize)
    except sqlite3.Error as error:
        db.close()
        raise unavailable(path, error) from error
    except BaseException:
        db.close()
        raise
    return db


def open_reader(path: Path, *, immutable: bool = False) -> sqlite3.Connection:
    """
    Open the file for reading only.

    Args:
        path: The database file.
        immutable: The file cannot change and its folder cannot be written; only right without a left-over WAL.

    Raises:
        StoreUnavailableError, DamagedError: There is no readable journal there.
    """
    _check_path(path)
    if not path.exists():
        raise StoreUnavailableError(path=str(path), why="no such file", remedy="`journal init` creates a journal")
    try:
        uri = f"file:{quote(str(path.absolute()))}?mode=ro{'&immutable=1' if immutable else ''}"
        db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise unavailable(path, error) from error
    try:
        _set(db, path, READER_PRAGMAS)
        if not schema_number(db):
            raise DamagedError(path=str(path), why="holds no journal", remedy="name the file that `journal init` made")
    except sqlite3.Error as error:
        db.close()
        raise unavailable(path, error) from error
    except BaseException:
        db.close()
        raise
    return db


def _check_guards(db: sqlite3.Connection, path: Path) -> None:
    if missing := missing_guards(db):
        raise DamagedError(path=str(path), why=f"the event table is not ours: {', '.join(missing)} missing or changed")


def _set(db: sqlite3.Connection, path: Path, pragmas: tuple[tuple[str, str, object], ...]) -> None:
    for name, value, expected in pragmas:
        db.execute(f"PRAGMA {name} = {value}").fetchall()
        found = db.execute(f"PRAGMA {name}").fetchone()[0]
        if found != expected:
            raise StoreUnavailableError(
                path=str(path),
                why=f"SQLite answers {name} = {found} where {expected} was asked for",
                remedy="put the journal on a local file system",
            )


def _has_foreign_tables(db: sqlite3.Connection) -> bool:
    names = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    return not all(name.startswith(("journal_", "sqlite_")) for (name,) in names)


def _check_path(path: Path) -> None:
    if path.is_dir():
        raise StoreUnavailableError(path=str(path), why="is a folder", remedy="name the database file itself")
    if not path.parent.is_dir():
        raise StoreUnavailableError(path=str(path), why="its folder does not exist", remedy="create the folder first")


def _authorize(action: int, first: str | None, second: str | None, database: str | None, inner: str | None) -> int:
    del database, inner
    if action in (sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE, sqlite3.SQLITE_DROP_TABLE) and first == _TABLE:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_ALTER_TABLE and second == _TABLE:
        return sqlite3.SQLITE_DENY
    if action in (sqlite3.SQLITE_DROP_TRIGGER, sqlite3.SQLITE_DROP_INDEX) and second == _TABLE:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_PRAGMA and (first or "").lower() == "writable_schema":
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def unavailable(path: Path, error: sqlite3.Error) -> StoreUnavailableError | DamagedError:
    """An SQLite error as one of ours, in words that say what to do."""
    match primary_code(error):
        case sqlite3.SQLITE_NOTADB:
            return DamagedError(path=str(path), why="is not an SQLite database")
        case sqlite3.SQLITE_CORRUPT:
            return DamagedError(path=str(path), why=f"is damaged ({error})")
        case sqlite3.SQLITE_READONLY:
            why, remedy = "is read-only", "give this user the right to write the file and its folder"
        case sqlite3.SQLITE_FULL:
            why, remedy = "the disk is full", "free space; nothing was written"
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            why, remedy = "another program holds a lock on the file", "end it; only one journal process writes"
        case sqlite3.SQLITE_CANTOPEN:
            why, remedy = "cannot be opened", "check that the file and its folder exist and may be read"
        case _:
            why, remedy = str(error), "run `journal doctor`"
    return StoreUnavailableError(path=str(path), why=why, remedy=remedy)


def primary_code(error: sqlite3.Error) -> int:
    """The primary result code, without the extended part; -1 if SQLite gave none."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else -1


DISK_ERRORS = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
"""After one of these the writer is poisoned until a person has looked (S6)."""
