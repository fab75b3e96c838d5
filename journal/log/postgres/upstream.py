"""
The shared log on a PostgreSQL server (DESIGN 10, M4): one round trip a batch, and an answer only when it is durable.

A thread of its own runs the driver's loop, so that notifications and polling go on while the writer waits. The writer's
calls block until they are answered; an answer that does not come is unknown, never "no" (S5).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import structlog

from journal.errors import CommitUnknownError, JournalError, StoreUnavailableError
from journal.events import Event
from journal.log.postgres.connect import Server, connect, driver, failures, unavailable
from journal.log.postgres.schema import AFTER, APPEND, CHANNEL, migrate
from journal.log.rows import Row, to_row
from journal.log.upstream import BehindError

logger = structlog.get_logger(__name__)

POLL_S = 2.0
"""How often the tail is looked at without a notification: those are a nudge and may be lost."""

RETRIES = 5
"""Tries of an append that the server gave up for another's sake (40001, 40P01); nothing of it was written."""

SETTLE_TRIES = 3
"""Connections tried, the second and third after a second each, before an unanswered COMMIT stays unknown."""

_FLUSH = "SELECT journal_lock()"
"""
A commit of our own before anything is read: it waits for the standbys, and with it everything that stands before it.

A server that crashed shows commits that had not reached a standby; a host that followed them would know of events that
a promoted standby lacks.
"""

_NEVER = 1e6
"""Seconds; the driver's own time limit would call the statement off."""

_LOST = ("08", "57P0")
"""SQLSTATEs after which nobody can say what became of the statement: the connection or the server went."""

_GAVE_WAY = ("40001", "40P01")

T = TypeVar("T")


class PostgresUpstream:
    """`Upstream` over one connection for appending and one that listens."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._db: Any = None
        self._in_transaction = self._made = False
        self._loop = asyncio.new_event_loop()
        self._tail: asyncio.Task[None] | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._loop.run_forever, name="journal-server", daemon=True)
        self._thread.start()

    @property
    def shown(self) -> str:
        return self._server.shown

    def open(self) -> None:
        self._call(self._opened())

    def head(self) -> tuple[int, bytes]:
        row = self._call(self._ask("SELECT position, hash FROM journal_head"))[0]
        return row[0], row[1]

    def after(self, position: int, limit: int) -> Sequence[Row]:
        return [tuple(row) for row in self._call(self._ask(AFTER, position, limit))]

    def append(self, position: int, digest: bytes, events: Sequence[Event]) -> None:
        self._call(self._append(position, digest, [to_row(event) for event in events]))

    def holds(self, event: Event) -> bool:
        return self._call(self._holds(event))

    @contextmanager
    def alone(self) -> Iterator[int]:
        position = self._call(self._begin())
        try:
            yield position
        finally:
            self._call(self._end())

    def watch(self, nudge: Callable[[int], None]) -> None:
        self._call(self._watch(nudge))

    def close(self) -> None:
        if self._closed:
            return
        self._call(self._close())
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        if self._closed:
            work.close()
            raise StoreUnavailableError(path=self.shown, why="the journal is closed")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    # -- in the thread's loop -----------------------------------------------------------------------------------------

    async def _opened(self) -> None:
        db = await self._connection()
        try:
            await migrate(db, self.shown)
            await db.execute(_FLUSH)
            self._made = True
        except failures(self._server) as error:
            raise unavailable(self._server, error) from error

    async def _connection(self) -> Any:
        if self._db is None or self._db.is_closed():
            self._in_transaction = False
            self._db = await connect(self._server, "log")
            if self._made:
                try:
                    await self._db.execute(_FLUSH)
                except failures(self._server) as error:
                    self._drop()
                    raise unavailable(self._server, error) from error
        return self._db

    async def _ask(self, sql: str, *arguments: object) -> Any:
        """Read; a connection that went since the last call is opened once more."""
        for last in (False, True):
            db = await self._connection()
            try:
                return await db.fetch(sql, *arguments)
            except failures(self._server) as error:
                lost = self._is_lost(error)
                if lost:
                    self._drop()
                if last or not lost:
                    raise unavailable(self._server, error) from error
        raise AssertionError

    async def _append(self, position: int, digest: bytes, rows: Sequence[Row]) -> None:
        columns = [list(column) for column in zip(*rows, strict=True)]
        for _ in range(RETRIES):
            db = await self._connection()
            try:
                answer = await self._uncancelled(db, db.fetchval(APPEND, position, digest, *columns, timeout=_NEVER))
                if self._in_transaction and answer < 0:
                    self._in_transaction = False
                    await self._uncancelled(db, db.execute("COMMIT", timeout=_NEVER))
            except (Exception, asyncio.CancelledError) as error:  # whatever it is, the server may have done it (S5)
                if getattr(error, "sqlstate", None) in _GAVE_WAY and not self._in_transaction:
                    continue
                raise self._failed(error) from error
            if answer >= 0:
                raise BehindError
            return
        why = f"gave this append up for another's sake {RETRIES} times"
        raise StoreUnavailableError(path=self.shown, why=why, remedy="ask again")

    async def _uncancelled(self, db: Any, statement: Coroutine[Any, Any, T]) -> T:
        """
        Wait for a statement that commits no longer than for others, then hang up instead of calling it off.

        A commit that waits for a standby and is called off is done on the primary alone: others would see it, and a
        standby that is promoted lacks it. Hung up on, it goes on waiting where nobody sees it.
        """
        asked = asyncio.ensure_future(statement)
        await asyncio.wait({asked}, timeout=self._server.timeout_s)
        if not asked.done():
            db.terminate()
        return await asked

    def _failed(self, error: BaseException) -> JournalError:
        """What became of an append that raised: nothing was written, or nobody knows."""
        if isinstance(error, Exception) and not self._is_lost(error):
            return unavailable(self._server, error)
        self._drop()
        return CommitUnknownError(path=self.shown, why=str(error) or type(error).__name__)

    def _is_lost(self, error: Exception) -> bool:
        """The server did not answer the statement. Whatever it refuses by an answer was rolled back."""
        asyncpg = driver(self._server)
        if isinstance(error, asyncpg.PostgresError):
            return str(error.sqlstate or "").startswith(_LOST)
        return True

    def _drop(self) -> None:
        if self._db is not None:
            self._db.terminate()
            self._db = None

    async def _holds(self, event: Event) -> bool:
        """
        Ask on a new connection, behind the counter's lock and in a commit of our own.

        The lock waits for an append of ours that is still on its way in the server; the commit waits for the standbys,
        which the one that was not answered may not have done.
        """
        failure: JournalError | None = None
        for turn in range(SETTLE_TRIES):
            if turn:
                await _pause(asyncio.Event(), 1.0)
            try:
                db = await self._connection()
                async with db.transaction():
                    await db.fetchval("SELECT journal_lock()")
                    found = await db.fetchval("SELECT hash FROM journal_events WHERE position = $1", event.position)
                return bool(found == event.hash)
            except JournalError as error:
                failure = error
            except failures(self._server) as error:
                self._drop()
                failure = unavailable(self._server, error)
        assert failure is not None
        raise failure

    async def _begin(self) -> int:
        db = await self._connection()
        try:
            # Not the default, which may be stricter: the lock is all that is needed, and nobody has to give way.
            await db.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
            position = int(await db.fetchval("SELECT journal_lock()"))
        except failures(self._server) as error:
            self._drop()
            raise unavailable(self._server, error) from error
        self._in_transaction = True
        return position

    async def _end(self) -> None:
        if self._in_transaction and self._db is not None:
            self._in_transaction = False
            try:
                await self._db.execute("ROLLBACK")
            except failures(self._server):
                self._drop()

    # -- the tail -----------------------------------------------------------------------------------------------------

    async def _watch(self, nudge: Callable[[int], None]) -> None:
        self._tail = asyncio.create_task(self._follow(nudge))

    async def _follow(self, nudge: Callable[[int], None]) -> None:
        """Tell where the log ends whenever it may have grown; a lost connection only makes that slower."""
        said = ""
        failed: tuple[type[Exception], ...] = (JournalError, *failures(self._server))
        while True:
            try:
                await self._listen(nudge)
            except failed as error:
                why = str(error)
                if why != said:
                    logger.warning("log_not_followed", server=self.shown, why=why)
                said = why
            await _pause(asyncio.Event(), POLL_S)

    async def _listen(self, nudge: Callable[[int], None]) -> None:
        db = await connect(self._server, "tail")

        def heard(_db: Any, _pid: int, _channel: str, position: str) -> None:
            if position.isdecimal():  # whoever may connect may send one
                nudge(int(position))

        try:
            await db.add_listener(CHANNEL, heard)
            while True:
                nudge(await db.fetchval("SELECT position FROM journal_head"))
                await _pause(asyncio.Event(), POLL_S)
        finally:
            db.terminate()

    async def _close(self) -> None:
        if self._tail is not None:
            self._tail.cancel()
            await asyncio.gather(self._tail, return_exceptions=True)
        if self._db is not None:
            with suppress(*failures(self._server)):
                await self._db.close(timeout=1.0)
            self._drop()
        await _pause(asyncio.Event(), 0.001)  # sockets that were cut off are closed at the loop's next turn


async def _pause(woken: asyncio.Event, seconds: float) -> None:
    """Until it is set, or for so long."""
    with suppress(TimeoutError):
        await asyncio.wait_for(woken.wait(), seconds)
