"""What grows with the log and what must not: the write-ahead file under readers that take their time."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from journal.events import Draft, HazardFound
from journal.log.sqlite import SqliteLog
from journal.log.unit import Unit, Written
from journal.stream import Stream
from journal.words import evidence
from projections import all_views
from tests.builders import StandingClock, opened

WAL_LIMIT = 8 << 20
"""Bytes: twice the thousand pages after which SQLite carries a write-ahead file over, and room for the last batch."""

NOTE = Draft(HazardFound("a note", evidence(text="x" * 900)), 0, 1)
TASKS, NOTES = 50, 60


async def opened_log(folder: Path) -> tuple[SqliteLog, list[Stream]]:
    log = await SqliteLog.open(
        folder / "journal.db", write=True, clock=StandingClock(), new_id=lambda: "ab" * 16, projections=all_views()
    )
    return log, [await appended(log, Stream(f"T-{n}"), opened()) for n in range(TASKS)]


async def appended(log: SqliteLog, stream: Stream, draft: Draft) -> Stream:
    answer = await log.append(Unit(stream, (draft,)))
    assert isinstance(answer, Written)
    return answer.stream


async def write(log: SqliteLog, streams: list[Stream]) -> int:
    """Append notes to every task; gives the largest size of the write-ahead file on the way, in bytes."""
    wal, largest = log.path.with_name("journal.db-wal"), 0
    for _ in range(NOTES):
        streams = list(await asyncio.gather(*(appended(log, stream, NOTE) for stream in streams)))
        largest = max(largest, wal.stat().st_size)
    return largest


async def read_slowly(log: SqliteLog) -> int:
    """Follow the log a few events at a time and dawdle after each, as a listener on a thin line does."""
    position = 0
    while events := await log.events(after=position, limit=5):
        position = events[-1].position
        for _ in range(20):
            await asyncio.sleep(0)
    return position


async def test_the_write_ahead_file_stays_small_while_somebody_reads_slowly(tmp_path: Path) -> None:
    """A page of the log is one short transaction of ours, however long whoever asked for it looks at it."""
    log, streams = await opened_log(tmp_path)
    try:
        reading = [asyncio.create_task(read_slowly(log)) for _ in range(4)]
        largest = await write(log, streams)
        assert largest < WAL_LIMIT
        assert all(position > 0 for position in await asyncio.gather(*reading))
    finally:
        await log.close()


async def test_a_foreign_transaction_that_stays_open_is_what_makes_it_grow_and_its_end_lets_it_be_reused(
    tmp_path: Path,
) -> None:
    """The claim above is not empty: with an open transaction the same writing goes beyond the limit."""
    log, streams = await opened_log(tmp_path)
    try:
        with closing(sqlite3.connect(log.path, isolation_level=None)) as foreign:
            foreign.execute("BEGIN")
            foreign.execute("SELECT count(*) FROM journal_events").fetchone()
            held = await write(log, streams)
            assert held > WAL_LIMIT
        after = await write(log, [await log.read(stream.task) for stream in streams])
        assert after < held * 1.5  # twice as large, had it gone on growing
    finally:
        await log.close()
