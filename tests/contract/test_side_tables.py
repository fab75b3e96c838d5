"""Side tables are written by the one writer, in the log's batches, and never reach the log itself (DESIGN 4, L1)."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from journal.clock import SystemClock, SystemIds
from journal.errors import InadmissibleError, StoreUnavailableError
from journal.events import Draft, Opened
from journal.log.schema import migrate
from journal.log.sqlite import SqliteLog
from journal.log.unit import Side, Unit, Written
from journal.stream import Stream

CURSOR = "INSERT INTO journal_cursors (name, position, changed_us) VALUES (?, ?, 0)"


async def open_log(path: Path, *, write: bool = True) -> SqliteLog:
    return await SqliteLog.open(path, write=write, clock=SystemClock(), new_id=SystemIds().instance)


def opening(task: str) -> Unit:
    return Unit(Stream(task), (Draft(Opened("acme/widgets", "f", "main", "", 0, "analysis"), 0, 1, "operator"),))


@pytest.mark.proves("L1", "S7")
async def test_a_refused_side_statement_hurts_neither_a_unit_nor_another_one_of_its_batch(tmp_path: Path) -> None:
    log = await open_log(tmp_path / "j.db")
    try:
        await log.side(Side(CURSOR, ("twice", 1)))
        answers = await asyncio.gather(
            log.append(opening("T-1")),
            log.side(Side(CURSOR, ("twice", 2))),
            log.side(Side("UPDATE journal_cursors SET nothing = 1")),
            log.side(Side(CURSOR, ("other", 3))),
            log.append(opening("T-2")),
            return_exceptions=True,
        )
        kinds = [type(a) for a in answers]
        assert kinds[0] is kinds[4] is Written
        assert kinds[1] is kinds[2] is InadmissibleError
        rows = await log.query("SELECT name, position FROM journal_cursors ORDER BY name")
        assert [tuple(r) for r in rows] == [("other", 3), ("twice", 1)]
        assert (await log.read("T-2")).version == 1
    finally:
        await log.close()


@pytest.mark.proves("L7", "S4", "TR-4")
@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO journal_events VALUES (1)",
        "INSERT INTO journal_inbox2 VALUES (1)",
        "WITH x AS (SELECT 1) INSERT INTO journal_inbox SELECT 1",
        "DELETE FROM journal_view_tasks",
        "UPDATE journal_lanes SET task = 'x'",
        "DROP TABLE journal_inbox",
        "insert into journal_inbox values (1)",
    ],
)
def test_only_a_plain_write_to_a_side_table_is_a_side_statement(statement: str) -> None:
    with pytest.raises(InadmissibleError):
        Side(statement)


@pytest.mark.proves("S4")
async def test_a_log_that_only_reads_writes_no_side_table(tmp_path: Path) -> None:
    writing = await open_log(tmp_path / "j.db")
    reading = await open_log(tmp_path / "j.db", write=False)
    try:
        with pytest.raises(StoreUnavailableError):
            await reading.side(Side(CURSOR, ("x", 1)))
    finally:
        await reading.close()
        await writing.close()


@pytest.mark.proves("S7")
async def test_what_a_side_statement_returns_comes_back_after_its_commit(tmp_path: Path) -> None:
    log = await open_log(tmp_path / "j.db")
    try:
        changed = await log.side(Side(CURSOR + " RETURNING name, position", ("x", 7)))
        assert (changed.count, changed.rows) == (1, (("x", 7),))
        again = await log.side(Side(CURSOR.replace("INSERT", "INSERT OR IGNORE"), ("x", 8)))
        assert again.count == 0
    finally:
        await log.close()


@pytest.mark.proves("NFR-3", "L4")
async def test_a_file_of_the_first_schema_gets_the_side_tables_and_keeps_its_events(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    log = await open_log(path)
    await log.append(opening("T-1"))
    await log.close()
    old = sqlite3.connect(path, isolation_level=None)
    for table in ("journal_inbox", "journal_jobs", "journal_cursors"):
        old.execute(f"DROP TABLE {table}")
    old.execute("DELETE FROM journal_migrations WHERE number > 1")
    before = old.execute("SELECT * FROM journal_events").fetchall()
    old.close()
    log = await open_log(path)
    try:
        await log.side(Side(CURSOR, ("x", 1)))
        assert [tuple(r) for r in await log.query("SELECT * FROM journal_events")] == before
    finally:
        await log.close()
    again = sqlite3.connect(path, isolation_level=None)
    migrate(again)  # safe to repeat
    assert again.execute("SELECT count(*) FROM journal_cursors").fetchone() == (1,)
    again.close()
