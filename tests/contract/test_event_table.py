"""
The event table refuses every forgery by itself, on a connection opened by hand with SQLite's own defaults (L2, L7, S3).

Finding 6: with `recursive_triggers` off REPLACE deletes a row without firing a delete trigger. So nothing here relies
on our pragmas, and each test ends by comparing the whole table with what it was.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from journal.chain import GENESIS
from journal.errors import DamagedError, NewerSchemaError, StoreUnavailableError
from journal.log.connection import WRITER_PRAGMAS, open_reader, open_writer
from journal.log.schema import APPLICATION_ID, COLUMNS, SCHEMA_NUMBER, missing_guards

NAMES = COLUMNS.split(", ")
Row = dict[str, Any]


def event(position: int, version: int, kind: str, **more: Any) -> Row:
    """A row that fits, except for what `more` says."""
    fits: Row = {
        "position": position, "task": "T-1", "version": version, "generation": 1, "epoch": 1, "kind": kind, "schema": 1,
        "step": "", "attempt": 0, "key": "", "actor": "worker", "body": "{}", "body_hash": bytes(32), "at": 5,
        "prev_hash": digest(position - 1), "hash": digest(position),
    }  # fmt: skip
    return fits | more


def digest(position: int) -> bytes:
    return sha256(str(position).encode()).digest() if position else GENESIS


HISTORY = [
    event(1, 1, "journal_created", task=""),
    event(2, 1, "opened"),
    event(3, 2, "acquired"),
    event(4, 3, "intended", step="merge_pr", attempt=1),
    event(5, 4, "applied", step="merge_pr", attempt=1),
]


def insert(db: sqlite3.Connection, row: Row, verb: str = "INSERT") -> None:
    marks = ", ".join(f":{name}" for name in NAMES)
    db.execute(f"{verb} INTO journal_events ({COLUMNS}) VALUES ({marks})", row)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    file = tmp_path_factory.mktemp("template") / "journal.db"
    with closing(open_writer(file)) as db:
        for row in HISTORY:
            insert(db, row)
    return file.read_bytes()


@pytest.fixture
def path(tmp_path: Path, template: bytes) -> Path:
    file = tmp_path / "journal.db"
    file.write_bytes(template)
    return file


@pytest.fixture
def plain(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection as anybody would open it: no pragma of ours, no authorizer."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        assert db.execute("PRAGMA recursive_triggers").fetchone() == (0,)
        yield db


def contents(db: sqlite3.Connection) -> list[Any]:
    return db.execute("SELECT * FROM journal_events ORDER BY position").fetchall()


def refused(db: sqlite3.Connection, statement: str, *parameters: Any, match: str = "journal: ") -> None:
    before = contents(db)
    with pytest.raises(sqlite3.IntegrityError, match=match):
        db.execute(statement, parameters)
    assert contents(db) == before


@pytest.mark.proves("L7", "DC-1")
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE journal_events SET body = '[]'",
        "UPDATE journal_events SET body = '[]' WHERE position = 3",
        "UPDATE OR REPLACE journal_events SET position = 4 WHERE position = 3",
        "UPDATE OR IGNORE journal_events SET at = at + 1 WHERE position = 5",
        "UPDATE journal_events SET position = position",
    ],
)
def test_no_statement_changes_an_event(plain: sqlite3.Connection, statement: str) -> None:
    refused(plain, statement, match="never updated")


@pytest.mark.proves("L7", "DC-1")
@pytest.mark.parametrize("statement", ["DELETE FROM journal_events", "DELETE FROM journal_events WHERE position = 5"])
def test_no_statement_removes_an_event(plain: sqlite3.Connection, statement: str) -> None:
    refused(plain, statement, match="never deleted")


IN_THE_WAY = {
    "position": event(5, 5, "released"),
    "the last position, with all that belongs to it": event(5, 4, "released", prev_hash=digest(4)),
    "task and version": event(6, 4, "released"),
    "one opened": event(6, 5, "opened"),
    "one opened, in other letters": event(6, 1, "opened", task="t-1"),
    "one acquired an epoch": event(6, 5, "acquired", epoch=1),
    "one intended an attempt": event(6, 5, "intended", step="merge_pr", attempt=1),
    "one applied a step": event(6, 5, "applied", step="merge_pr", attempt=2),
}


@pytest.mark.proves("L2", "S3", "L7", "I4", "I10")
@pytest.mark.parametrize("verb", ["INSERT", "INSERT OR REPLACE", "REPLACE", "INSERT OR FAIL", "INSERT OR ROLLBACK"])
@pytest.mark.parametrize("row", IN_THE_WAY.values(), ids=IN_THE_WAY)
def test_nothing_takes_the_place_of_an_event_by_any_unique_key(plain: sqlite3.Connection, row: Row, verb: str) -> None:
    before = contents(plain)
    with pytest.raises(sqlite3.IntegrityError, match="journal: "):
        insert(plain, row, verb)
    assert contents(plain) == before


@pytest.mark.proves("L7")
@pytest.mark.parametrize("row", IN_THE_WAY.values(), ids=IN_THE_WAY)
def test_insert_or_ignore_neither_adds_nor_changes(plain: sqlite3.Connection, row: Row) -> None:
    before = contents(plain)
    with pytest.raises(sqlite3.IntegrityError, match="journal: "):
        insert(plain, row, "INSERT OR IGNORE")
    assert contents(plain) == before


@pytest.mark.proves("L7")
@pytest.mark.parametrize("target", ["(position)", "(task, version)", ""])
def test_an_upsert_changes_nothing(plain: sqlite3.Connection, target: str) -> None:
    before = contents(plain)
    marks = ", ".join(f":{name}" for name in NAMES)
    insertion = f"INSERT INTO journal_events ({COLUMNS}) VALUES ({marks})"  # noqa: S608
    with pytest.raises(sqlite3.IntegrityError, match="journal: "):
        plain.execute(f"{insertion} ON CONFLICT {target} DO UPDATE SET body = 'forged'", HISTORY[4])
    assert contents(plain) == before


OUT_OF_PLACE = {
    "a gap in the log": event(7, 5, "released"),
    "a negative position": event(-1, 5, "released"),
    "position zero": event(0, 5, "released"),
    "a replayed position": event(2, 5, "released"),
    "the greatest position of all": event(2**63 - 1, 5, "released"),
    "a gap in the stream": event(6, 6, "released"),
    "a version again": event(6, 4, "released"),
    "version zero": event(6, 0, "released"),
    "a negative version": event(6, -1, "released"),
    "a new stream that does not begin with 1": event(6, 2, "opened", task="T-2"),
    "another hash before it": event(6, 5, "released", prev_hash=digest(4)),
    "no hash before it": event(6, 5, "released", prev_hash=GENESIS),
}


@pytest.mark.proves("L2", "I1", "I2")
@pytest.mark.parametrize("row", OUT_OF_PLACE.values(), ids=OUT_OF_PLACE)
def test_only_the_exact_next_place_is_taken(plain: sqlite3.Connection, row: Row) -> None:
    before = contents(plain)
    with pytest.raises(sqlite3.IntegrityError, match="journal: "):
        insert(plain, row)
    assert contents(plain) == before


@pytest.mark.proves("L2")
def test_a_position_that_sqlite_would_choose_itself_is_refused(plain: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="journal: position"):
        insert(plain, event(6, 5, "released") | {"position": None})


@pytest.mark.proves("S3", "I3")
@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("epoch", "one"), ("epoch", 1.5), ("at", "now"), ("body", b"{}"), ("body", None), ("kind", None),
        ("task", b"T"), ("hash", "0" * 32), ("hash", bytes(31)), ("prev_hash", b""), ("body_hash", bytes(33)),
        ("version", "x"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_or_length_is_refused(plain: sqlite3.Connection, column: str, value: object) -> None:
    before = contents(plain)
    with pytest.raises(sqlite3.IntegrityError):
        insert(plain, event(6, 5, "released") | {column: value})
    assert contents(plain) == before


@pytest.mark.proves("L2")
def test_the_exact_next_event_is_taken(plain: sqlite3.Connection) -> None:
    """The counter-test: what the others refuse is refused for its fault alone."""
    insert(plain, event(6, 5, "released"))
    insert(plain, event(7, 1, "opened", task="T-2"))
    insert(plain, event(8, 6, "acquired", epoch=2))
    assert len(contents(plain)) == len(HISTORY) + 3


@pytest.mark.proves("L7", "S3")
@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE journal_events",
        "DROP TRIGGER journal_events_no_update",
        "DROP TRIGGER journal_events_next",
        "DROP INDEX journal_one_applied",
        "ALTER TABLE journal_events RENAME TO gone",
        "ALTER TABLE journal_events DROP COLUMN actor",
        "UPDATE journal_events SET body = '[]'",
        "DELETE FROM journal_events",
        "PRAGMA writable_schema = ON",
    ],
)
def test_our_writing_connection_may_not_even_try(path: Path, statement: str) -> None:
    """A dropped table fires no trigger, so the authorizer stands before it."""
    with closing(open_writer(path)) as db:
        before = contents(db)
        with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
            db.execute(statement)
        assert contents(db) == before
        assert missing_guards(db) == []


@pytest.mark.proves("L7", "A5")
@pytest.mark.parametrize("statement", ["DELETE FROM journal_events", "DROP TABLE journal_events", "CREATE TABLE x (y)"])
def test_our_reading_connections_cannot_write(path: Path, statement: str) -> None:
    with closing(open_reader(path)) as db, pytest.raises(sqlite3.OperationalError, match="readonly"):
        db.execute(statement)


@pytest.mark.proves("S1", "R90")
def test_every_pragma_is_read_back_and_a_difference_refuses_the_connection(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(open_writer(path)) as db:
        found = {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name, _, _ in WRITER_PRAGMAS}
    assert (found["journal_mode"], found["synchronous"], found["recursive_triggers"]) == ("wal", 2, 1)

    monkeypatch.setattr("journal.log.connection.WRITER_PRAGMAS", (("synchronous", "NORMAL", 2),))
    with pytest.raises(StoreUnavailableError, match=r"synchronous = 1 where 2"):
        open_writer(path)


def dump(db: sqlite3.Connection) -> list[str]:
    return [line for line in db.iterdump() if "journal_" not in line]


@pytest.mark.proves("NFR-3")
def test_a_hosts_own_tables_stay_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "host.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as host:
        host.execute("PRAGMA application_id = 77")
        host.execute("PRAGMA user_version = 12")
        host.execute("CREATE TABLE tasks (id INTEGER PRIMARY KEY, stage TEXT NOT NULL DEFAULT 'analysis')")
        host.execute("CREATE INDEX by_stage ON tasks (stage)")
        host.execute("CREATE TRIGGER touched AFTER UPDATE ON tasks BEGIN SELECT 1; END")
        host.execute("INSERT INTO tasks VALUES (1, 'review'), (2, 'deploy')")
        before = dump(host)

    with closing(open_writer(file)) as db:
        assert dump(db) == before
        assert db.execute("PRAGMA application_id").fetchone() == (77,)
        assert db.execute("PRAGMA user_version").fetchone() == (12,)
        db.execute("UPDATE tasks SET stage = 'done' WHERE id = 2")  # the host's statements still run


@pytest.mark.proves("NFR-3")
def test_making_the_tables_again_changes_nothing(path: Path) -> None:
    def look() -> tuple[list[Any], list[Any]]:
        with closing(sqlite3.connect(path)) as db:
            return db.execute("SELECT * FROM sqlite_schema").fetchall(), contents(db)

    before = look()
    for _ in range(3):
        open_writer(path).close()
    assert look() == before


@pytest.mark.proves("L4")
def test_a_newer_file_is_read_and_not_written_and_not_changed(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("INSERT INTO journal_migrations VALUES (?, 'from the future')", (SCHEMA_NUMBER + 1,))
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = path.read_bytes()

    with pytest.raises(NewerSchemaError, match=rf"schema {SCHEMA_NUMBER + 1} is newer than this program's"):
        open_writer(path)
    assert path.read_bytes() == before
    with closing(open_reader(path)) as db:
        assert len(contents(db)) == len(HISTORY)


@pytest.mark.proves("L7", "R91")
@pytest.mark.parametrize(
    ("statements", "named"),
    [
        (["DROP TRIGGER journal_events_no_update"], "journal_events_no_update"),
        (["DROP INDEX journal_one_applied"], "journal_one_applied"),
        (
            [
                "DROP TRIGGER journal_events_no_delete",
                "CREATE TRIGGER journal_events_no_delete BEFORE DELETE ON journal_events BEGIN SELECT 1; END",
            ],
            "journal_events_no_delete",
        ),
    ],
    ids=["a trigger dropped", "an index dropped", "a trigger replaced by a look-alike"],
)
def test_a_table_that_lost_a_guard_is_not_written_and_not_mended(path: Path, statements: list[str], named: str) -> None:
    """Putting the guard back without a word would hide that rows could have been changed in between."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)
    for _ in range(2):
        with pytest.raises(DamagedError, match=named):
            open_writer(path)


@pytest.mark.proves("L4", "NFR-3")
def test_a_foreign_table_of_our_name_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "host.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as host:
        columns = COLUMNS.replace("position", "position INTEGER PRIMARY KEY", 1)
        host.execute(f"CREATE TABLE journal_events ({columns})")
        host.execute("INSERT INTO journal_events (position) VALUES (1)")
    with pytest.raises(DamagedError, match="journal_events"):
        open_writer(file)


@pytest.mark.proves("L4", "R91")
def test_what_is_no_journal_is_named_as_what_it_is(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a database, and long enough to be taken for a header of one\n" * 40)
    with pytest.raises(DamagedError, match="not an SQLite database"):
        open_writer(text)
    with pytest.raises(StoreUnavailableError, match="is a folder"):
        open_writer(tmp_path)
    with pytest.raises(StoreUnavailableError, match="its folder does not exist"):
        open_writer(tmp_path / "missing" / "journal.db")
    with pytest.raises(StoreUnavailableError, match="no such file"):
        open_reader(tmp_path / "missing.db")
    assert not (tmp_path / "missing.db").exists()

    empty = tmp_path / "host.db"
    with closing(sqlite3.connect(empty)) as host:
        host.execute("CREATE TABLE tasks (id)")
    with pytest.raises(DamagedError, match="holds no journal"):
        open_reader(empty)


@pytest.mark.proves("I3")
def test_a_fresh_file_says_whose_it_is(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
