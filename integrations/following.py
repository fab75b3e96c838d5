"""This host's copy of a log on a server, for whoever only wants to look: brought up to it first, if that can be."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing

from integrations.settings import Settings
from journal.clock import SystemClock, SystemIds, this_process
from journal.errors import JournalError, StoreUnavailableError
from journal.log.connection import open_reader
from journal.log.postgres.connect import Server
from journal.log.postgres.upstream import PostgresUpstream
from journal.log.rows import Row
from journal.log.schema import COLUMNS
from journal.log.sqlite import SqliteLog
from journal.ownership import Locks
from projections import all_views

WAITS = 30
"""Looks at the copy, a tenth of a second apart, until the service beside us has followed."""

_PAGE = 1000
_MINE = f"SELECT {COLUMNS} FROM journal_events WHERE position > ? ORDER BY position LIMIT ?"  # noqa: S608


def bring_up(settings: Settings, server: Server, complain: Callable[[str], None]) -> None:
    """
    Let the copy follow the server; where that is impossible and there is a copy, say so and leave it as it is.

    Args:
        settings: Of this host.
        server: The log's place in them.
        complain: Told why what is read may not be the newest.

    Raises:
        StoreError: The server cannot be asked and there is no copy to read.
    """
    locks = Locks(settings.db, this_process(SystemIds().instance()))
    lock = locks.take_writer("follow") if settings.db.parent.is_dir() else None
    try:
        if lock is not None:
            asyncio.run(_follow(settings, server))
        else:
            asyncio.run(_await_service(settings, server))
    except JournalError as error:
        if not settings.db.exists():
            raise
        complain(f"{error}; what follows is this host's copy as it is")
    finally:
        if lock is not None:
            lock.release()


async def _follow(settings: Settings, server: Server) -> None:
    log = await SqliteLog.open(
        settings.db, write=True, clock=SystemClock(), new_id=SystemIds().instance, projections=all_views(),
        upstream=PostgresUpstream(server),
    )  # fmt: skip
    await log.close()


async def _await_service(settings: Settings, server: Server) -> None:
    """The service on this host follows by itself; wait until it has reached what the server holds now."""
    upstream, clock = PostgresUpstream(server), SystemClock()
    try:
        await asyncio.to_thread(upstream.open)
        wanted, _ = await asyncio.to_thread(upstream.head)
    finally:
        await asyncio.to_thread(upstream.close)
    reached = 0
    for _ in range(WAITS):
        with closing(open_reader(settings.db)) as db:
            reached = db.execute("SELECT coalesce(max(position), 0) FROM journal_events").fetchone()[0]
        if reached >= wanted:
            return
        await clock.sleep(0.1)
    why = f"the service on this host has followed to position {reached} only, and the server holds {wanted}"
    raise StoreUnavailableError(path=str(settings.db), why=why)


def first_difference(db: sqlite3.Connection, server: Server) -> int:
    """
    Position of the first event that stands otherwise on the server than in a copy of it; 0 = they are the same.

    Only what both hold is compared, whole rows: a body that somebody changed on the server keeps its hash there.

    Raises:
        StoreError: One of the two cannot be read.
    """
    upstream, position = PostgresUpstream(server), 0
    try:
        upstream.open()
        while mine := db.execute(_MINE, (position, _PAGE)).fetchall():
            theirs = upstream.after(position, _PAGE)
            position = mine[-1][0]
            if found := _differs(mine, theirs):
                return found
    finally:
        upstream.close()
    return 0


def _differs(mine: Sequence[Row], theirs: Sequence[Row]) -> int:
    for number, row in enumerate(mine):
        if number >= len(theirs) or tuple(row) != tuple(theirs[number]):
            return int(row[0])
    return 0
