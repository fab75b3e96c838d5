"""
The event table on the server refuses every forgery by itself, whoever is connected (L2, L7, S3, M4).

Each test ends by comparing the whole table with what it was.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import asyncpg
import pytest

from journal.chain import GENESIS
from journal.errors import DamagedError, NewerSchemaError, StoreUnavailableError
from journal.log.postgres.connect import Server, connect
from journal.log.postgres.schema import SCHEMA_NUMBER, check, migrate
from journal.log.schema import COLUMNS
from tests.doubles.postgres import Postgres

BODY = sha256(b"{}").digest()
INSERT = f"INSERT INTO journal_events ({COLUMNS}) VALUES ({', '.join(f'${n}' for n in range(1, 17))})"  # noqa: S608 - places


def digest(position: int) -> bytes:
    return sha256(str(position).encode()).digest() if position else GENESIS


def row(position: int, task: str, version: int, kind: str, **more: Any) -> tuple[Any, ...]:
    """A row that fits, except for what `more` says."""
    fits = {
        "position": position, "task": task, "version": version, "generation": 1, "epoch": 1, "kind": kind, "schema": 1,
        "step": "merge_pr", "attempt": 1, "key": "", "actor": "worker", "body": "{}", "body_hash": BODY, "at": 5,
        "prev_hash": digest(position - 1), "hash": digest(position),
    }  # fmt: skip
    return tuple({**fits, **more}.values())


HISTORY = [
    row(1, "", 1, "journal_created"),
    row(2, "T-1", 1, "opened"),
    row(3, "T-1", 2, "acquired"),
    row(4, "T-1", 3, "intended"),
    row(5, "T-1", 4, "applied"),
]


async def filled(dsn: str) -> Any:
    """A plain connection, as anybody would open it, to a table with a short history."""
    server = Server(dsn)
    db = await connect(server, "test")
    await migrate(db, server.shown)
    await db.executemany(INSERT, HISTORY)
    await db.close()
    return await asyncpg.connect(dsn)


FORGERIES = {
    "an update": "UPDATE journal_events SET body = '{}' WHERE position = 3",
    "a delete": "DELETE FROM journal_events WHERE position = 5",
    "a truncate": "TRUNCATE journal_events",
    "an update past the switch for replicas": (
        "SET session_replication_role = replica; UPDATE journal_events SET actor = 'x' WHERE position = 3"
    ),
    "an upsert": (
        "INSERT INTO journal_events SELECT * FROM journal_events WHERE position = 5 "
        "ON CONFLICT (position) DO UPDATE SET actor = 'x'"
    ),
}


@pytest.mark.proves("L2", "M4")
@pytest.mark.parametrize("statement", FORGERIES.values(), ids=list(FORGERIES))
async def test_what_stands_in_the_table_stays(database: str, statement: str) -> None:
    db = await filled(database)
    before = await db.fetch("SELECT * FROM journal_events ORDER BY position")
    with pytest.raises(asyncpg.PostgresError):
        await db.execute(statement)
    await db.execute("RESET ALL")
    assert await db.fetch("SELECT * FROM journal_events ORDER BY position") == before
    await db.close()


MISFITS = {
    "a gap in the log": row(7, "T-2", 1, "opened"),
    "a place that is taken": row(5, "T-2", 1, "opened"),
    "a gap in the stream": row(6, "T-1", 6, "observed"),
    "a version that is taken": row(6, "T-1", 4, "observed"),
    "another past": row(6, "T-1", 5, "observed", prev_hash=digest(1)),
    "a body that is not the hashed one": row(6, "T-1", 5, "observed", body='{"a":1}'),
    "a task opened again in other letters": row(6, "t-1", 1, "opened"),
    "an epoch acquired twice": row(6, "T-1", 5, "acquired"),
    "an attempt intended twice": row(6, "T-1", 5, "intended"),
    "a step applied twice": row(6, "T-1", 5, "applied", attempt=2),
}


@pytest.mark.proves("L2", "L7", "S3", "M4")
@pytest.mark.parametrize("misfit", MISFITS.values(), ids=list(MISFITS))
async def test_a_row_that_does_not_fit_is_refused_and_one_that_fits_is_not(
    database: str, misfit: tuple[Any, ...]
) -> None:
    db = await filled(database)
    with pytest.raises(asyncpg.IntegrityConstraintViolationError):
        await db.execute(INSERT, *misfit)
    await db.execute(INSERT, *row(6, "T-1", 5, "observed"))
    assert await db.fetchval("SELECT position FROM journal_head") == 6
    await db.close()


@pytest.mark.proves("M4", "S4")
async def test_the_table_takes_nothing_from_a_session_whose_commits_can_be_lost(database: str) -> None:
    db = await filled(database)
    await db.execute("SET synchronous_commit = off")
    with pytest.raises(asyncpg.PostgresError, match="synchronous_commit"):
        await db.execute(INSERT, *row(6, "T-1", 5, "observed"))
    await db.close()


@pytest.mark.proves("M4")
async def test_positions_come_in_the_order_of_commits_so_no_reader_misses_one(database: str) -> None:
    """The first to insert holds the counter until it commits; the second waits instead of taking a later place."""
    first, reader = await filled(database), await asyncpg.connect(database)
    second = await asyncpg.connect(database, server_settings={"lock_timeout": "200"})
    async with first.transaction():
        await first.execute(INSERT, *row(6, "T-2", 1, "opened"))
        with pytest.raises(asyncpg.LockNotAvailableError):
            await second.execute(INSERT, *row(7, "T-3", 1, "opened"))
        assert await reader.fetchval("SELECT max(position) FROM journal_events") == 5
    await second.execute(INSERT, *row(7, "T-3", 1, "opened"))
    assert await reader.fetchval("SELECT max(position) FROM journal_events") == 7
    for db in (first, second, reader):
        await db.close()


@pytest.mark.proves("NFR-3", "M4")
async def test_who_migrates_twice_or_at_once_changes_nothing(database: str) -> None:
    server = Server(database)
    one, two = [await connect(server, "test") for _ in range(2)]
    import asyncio

    await asyncio.gather(migrate(one, server.shown), migrate(two, server.shown))
    await migrate(one, server.shown)
    assert await check(one, server.shown) == SCHEMA_NUMBER
    for db in (one, two):
        await db.close()


@pytest.mark.proves("L4", "M4")
async def test_a_newer_schema_is_refused_unless_it_says_that_older_programs_may_go_on(database: str) -> None:
    server = Server(database)
    db = await connect(server, "test")
    await migrate(db, server.shown)
    await db.execute("INSERT INTO journal_migrations VALUES (98, 'harmless', 1)")
    assert await check(db, server.shown) == 98
    await db.execute("INSERT INTO journal_migrations VALUES (99, 'needs us', 99)")
    with pytest.raises(NewerSchemaError, match="99"):
        await check(db, server.shown)
    await db.close()


@pytest.mark.proves("L7", "M4")
@pytest.mark.parametrize(
    "statement",
    [
        "DROP TRIGGER journal_events_stay ON journal_events",
        "ALTER TABLE journal_events DISABLE TRIGGER journal_events_next",
        "DROP INDEX journal_one_acquired",
    ],
)
async def test_a_table_whose_guards_were_taken_away_is_refused(database: str, statement: str) -> None:
    db = await filled(database)
    await db.execute(statement)
    with pytest.raises(DamagedError, match="missing or switched off"):
        await check(db, "there")
    await db.close()


@pytest.mark.proves("M4", "L2")
async def test_a_service_needs_few_rights_and_with_them_can_append_only_through_the_function(
    postgres: Postgres, database: str
) -> None:
    db = await filled(database)
    await db.execute("DROP ROLE IF EXISTS plain; CREATE ROLE plain LOGIN")
    name = database.rpartition("/")[2]
    stranger = Server(postgres.dsn(name, "plain"))
    outsider = await connect(stranger, "test")
    with pytest.raises(StoreUnavailableError, match="grant"):
        await _checked(outsider, stranger)
    await db.execute("SELECT journal_admit('plain')")
    assert await check(outsider, stranger.shown) == SCHEMA_NUMBER
    assert await outsider.fetchval("SELECT count(*) FROM journal_events") == 5
    for statement in (*FORGERIES.values(), "INSERT INTO journal_events SELECT * FROM journal_events"):
        with pytest.raises(asyncpg.PostgresError, match="denied"):
            await outsider.execute(statement)
    await outsider.execute("SELECT journal_lock()")
    await outsider.close()
    await db.execute("DROP OWNED BY plain; DROP ROLE plain")
    await db.close()


async def _checked(db: Any, server: Server) -> int:
    from journal.log.postgres.connect import unavailable

    try:
        return await check(db, server.shown)
    except asyncpg.PostgresError as error:
        raise unavailable(server, error) from error
