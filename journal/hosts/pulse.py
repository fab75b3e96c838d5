"""
The beat of one process, on a thread and a connection of its own: a busy loop or a full pool never looks like death.

Every beat renews our row by the database's clock, and reads everybody else's in the same breath. The session that
beats holds an advisory lock: it falls free the moment the server loses us, which is the quick sign (M2). No beat is
truth about an effect, so its commits wait for no disk and no replica (M3).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import structlog

from journal.errors import StoreUnavailableError
from journal.events import Owner
from journal.hosts.lease import Lease
from journal.hosts.roster import PERIODS, Member, Periods, minder, standing
from journal.hosts.rows import MEMBERS
from journal.words import Standing

logger = structlog.get_logger(__name__)

Connect = Callable[[], Awaitable[Any]]
"""Opens a connection (asyncpg) whose search path is the journal's."""

_LEAD = "SELECT pg_try_advisory_lock(hashtextextended('journal single duties ' || current_schema(), 0))"
"""The lock of whoever does the duties that one process should do; by schema, since a database may hold two journals."""

_JOIN = """
INSERT INTO journal_instances (instance, host, pid, ground, address, session, beat_at)
VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp())
ON CONFLICT (instance) DO UPDATE SET session = EXCLUDED.session, beat_at = EXCLUDED.beat_at
"""
_BEAT = """
UPDATE journal_instances SET beat_at = clock_timestamp() WHERE instance = $1 AND session = $2 AND ended = ''
RETURNING (extract(epoch FROM beat_at) * 1000000)::int8
"""
_RECENT = MEMBERS + "WHERE beat_at > clock_timestamp() - interval '1 day'"
_ONE = MEMBERS + "WHERE instance = $1"
_FORGET = """
DELETE FROM journal_instances
WHERE ended <> '' AND marks = '{}' AND beat_at < clock_timestamp() - interval '30 days'
"""
_END = "UPDATE journal_instances SET ended = $2, beat_at = clock_timestamp() WHERE instance = $1"

_MARKED = "SELECT coalesce(max((marks ->> $1)::int8), 0) FROM journal_instances"
_MARK = "UPDATE journal_instances SET marks = marks || jsonb_build_object($2::text, $3::int8) WHERE instance = $1"

_LEFT = "this process has left its hosts"

RETRY_S = (0.1, 2.0)
"""First and longest pause before the next connection; doubles."""


class Pulse:
    """This process among the hosts: `Hosts` over PostgreSQL."""

    def __init__(
        self,
        connect: Connect,
        me: Owner,
        ground: str,
        *,
        address: str = "",
        new_key: Callable[[], int],
        periods: Periods = PERIODS,
        on_loss: Callable[[], None] = lambda: None,
        on_time: Callable[[int], None] = lambda _: None,
    ) -> None:
        """
        Prepare to beat; `start` begins.

        Args:
            connect: Opens the connection that beats.
            me: This process.
            ground: See `journal.hosts.ground`.
            address: Where it listens, for people.
            new_key: A random positive number below 2**62 for each session's lock.
            periods: How long is how long.
            on_time: Called in the beating thread with the database's time, microseconds since 1970.
            on_loss: Called in the beating thread when the lease ran out, once each time: what runs is to be ended.
        """
        self._connect, self._me, self._ground, self._address = connect, me, ground, address
        self._new_key, self._periods = new_key, periods
        self._on_loss, self._on_time = on_loss, on_time
        self.lease = Lease(periods.stops_s)
        self._members: Mapping[str, Member] = {}
        self._heard_s = self._since_s = float("-inf")  # when the members were read, and since when we are connected
        self._leads = False
        self._connection: Any = None
        self._key = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._main: asyncio.AbstractEventLoop | None = None  # the loop whose runs we vouch for
        self._answered_s = float("-inf")
        self._turn = asyncio.Lock()  # a connection answers one question at a time
        self._ending = asyncio.Event()
        self._beating = threading.Event()  # the first beat reached the database
        self._failed: BaseException | None = None
        self._said, self._leaving = "", False
        self._thread = threading.Thread(target=self._run, name="hosts", daemon=True)

    # -- what runs ask ------------------------------------------------------------------------------------------------

    def refusal(self) -> str:
        return self.lease.refusal()

    def leads(self) -> bool:
        return self._leads and self.lease.held

    async def standing(self, owner: Owner) -> Standing:
        """
        How sure it is that nothing of an owner is left.

        Raises:
            StoreUnavailableError: The database cannot be asked.
        """
        if owner.instance == self._me.instance:
            return Standing.GONE
        now_s = self.lease.now_s()
        member = self._members.get(owner.instance)
        if member is None or now_s - self._heard_s > 2 * self._periods.beat_s:
            row = await self._ask(lambda db: db.fetchrow(_ONE, owner.instance))
            member = Member(**row) if row else None
        settled = now_s - self._since_s > self._periods.suspect_s
        return standing(member, self._ground, self._periods, settled=settled)

    async def wanted(self, task: str, owner: Owner | None) -> bool:
        """What was left in doubt where our locks are is ours: nobody else can prove that it is over (M1)."""
        if owner is None or owner.instance == self._me.instance:
            return owner is not None or self.minds(task)
        try:
            standing = await self.standing(owner)
        except StoreUnavailableError:
            return False
        if standing is Standing.GONE and self._shares(owner):
            return True
        return standing is not Standing.ALIVE and self.minds(task)

    def minds(self, task: str) -> bool:
        return minder(task, self._members.values(), self._me.instance, self._periods) == self._me.instance

    def _shares(self, owner: Owner) -> bool:
        member = self._members.get(owner.instance)
        return member is not None and bool(self._ground) and member.ground == self._ground

    def lives(self, instance: str) -> bool:
        member = self._members.get(instance)
        return member is not None and standing(member, self._ground, self._periods, settled=True) is Standing.ALIVE

    async def marked(self, name: str) -> int:
        return int(await self._ask(lambda db: db.fetchval(_MARKED, name)))

    async def mark(self, name: str, position: int) -> None:
        await self._ask(lambda db: db.execute(_MARK, self._me.instance, name, position))

    def members(self) -> tuple[Member, ...]:
        """Everybody heard of within a day, ourselves included, for people."""
        return tuple(self._members.values())

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """
        Join, and return after the first beat.

        Raises:
            StoreUnavailableError: The database was not reached, or refused.
        """
        self._main, self._answered_s = asyncio.get_running_loop(), self.lease.now_s()
        self._thread.start()
        if not await asyncio.to_thread(self._beating.wait, self._periods.suspect_s) or self._failed is not None:
            why = f"this process cannot join its hosts: {self._failed!r}" if self._failed else "no beat got through"
            await self.close("")
            raise StoreUnavailableError(path="journal_instances", why=why, remedy="see `journal doctor`")

    async def close(self, said: str) -> None:
        """
        Leave.

        Args:
            said: What proves that nothing of this process is left, e.g. that each run and child was seen to end;
                "" = nothing does, and others go by our silence.
        """
        self._said, self._leaving = said, True
        self.lease.give_up()
        if (loop := self._loop) is not None:
            with suppress(RuntimeError):  # it ended by itself just now
                loop.call_soon_threadsafe(self._ending.set)
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join, self._periods.suspect_s)

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:  # noqa: BLE001  (whoever waits for the first beat is told)
            self._failed = error
            logger.warning("hosts_left", error=repr(error))
        finally:
            self.lease.give_up()
            self._loop = None
            self._beating.set()

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        watching = asyncio.create_task(self._watch())
        pause_s = RETRY_S[0]
        try:
            while not self._ending.is_set():
                try:
                    await self._session()
                except Exception as error:
                    if not self._beating.is_set():
                        raise
                    logger.warning("hosts_not_reached", error=repr(error))
                else:
                    pause_s = RETRY_S[0]
                self._leads = False
                await self._drop()
                await self._pause(pause_s)
                pause_s = min(RETRY_S[1], pause_s * 2)
        finally:
            watching.cancel()
            await self._drop()

    async def _session(self) -> None:
        """Beat on one connection until we end or it fails."""
        async with asyncio.timeout(self._periods.suspect_s):
            connection = await self._connect()
            self._connection = connection
            # Losing the last beats of a crashed server costs a suspicion that the next beat ends.
            await connection.execute("SET synchronous_commit = off")
            # The old session's lock may outlive it at the server for a while: each session has a key of its own.
            self._key = self._new_key()
            await connection.execute("SELECT pg_advisory_lock($1)", self._key)
            me = self._me
            await connection.execute(_FORGET)
            await connection.execute(_JOIN, me.instance, me.host, me.pid, self._ground, self._address, self._key)
        self._since_s = self.lease.now_s()
        while not self._ending.is_set():
            async with asyncio.timeout(self._periods.stops_s):
                await self._beat(connection)
            self._beating.set()
            await self._pause(self._periods.beat_s)
        if self._said:
            async with self._turn, asyncio.timeout(self._periods.stops_s):
                await connection.execute(_END, self._me.instance, self._said)

    async def _beat(self, connection: Any) -> None:
        if self._hangs():
            return
        async with self._turn:
            sent_s = self.lease.now_s()
            theirs_us = await connection.fetchval(_BEAT, self._me.instance, self._key)
            if theirs_us is None:
                raise StoreUnavailableError(path="journal_instances", why="our row was closed or taken by another")
            self._on_time(theirs_us)
            members = {row["instance"]: Member(**row) for row in await connection.fetch(_RECENT)}
            if not members[self._me.instance].session:
                why = "the lock of our session is not there: something between us and the server swaps sessions"
                raise StoreUnavailableError(
                    path="journal_instances", why=why, remedy="let `dsn` name the server, or a pooler in session mode"
                )
            if not self._leads:
                self._leads = bool(await connection.fetchval(_LEAD))
            self._members, self._heard_s = members, sent_s
            if not self._leaving:
                self.lease.renew(sent_s)

    def _hangs(self) -> bool:
        """This thread lives while the loop that does the work hangs: then we say nothing, and others take over."""
        assert self._main is not None
        with suppress(RuntimeError):  # it was closed around us
            self._main.call_soon_threadsafe(self._answer)
        return self.lease.now_s() - self._answered_s > self._periods.hung_s

    def _answer(self) -> None:
        self._answered_s = self.lease.now_s()

    async def _watch(self) -> None:
        """Tell of each loss of the lease once, soon: what runs ends its children instead of finding out by itself."""
        held = False
        while not self._ending.is_set():
            now = self.lease.held
            if held and not now and not self._leaving:
                logger.error("lease_lost", why=self.lease.refusal())
                self._on_loss()
            held = now
            await self._pause(self._periods.beat_s / 4)

    async def _ask(self, question: Callable[[Any], Awaitable[Any]]) -> Any:
        """Ask on the connection that beats, from another thread."""
        try:
            async with asyncio.timeout(self._periods.stops_s):
                return await asyncio.wrap_future(self._begin(self._answered(question)))
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            raise StoreUnavailableError(path="journal_instances", why=_LEFT) from None
        except StoreUnavailableError:
            raise
        except Exception as error:
            why = f"hosts cannot be asked about: {error!r}"
            raise StoreUnavailableError(path="journal_instances", why=why) from error

    def _begin(self, asking: Coroutine[Any, Any, Any]) -> Future[Any]:
        try:
            if (loop := self._loop) is not None:
                return asyncio.run_coroutine_threadsafe(asking, loop)
        except RuntimeError:  # the thread ended just now
            pass
        asking.close()
        raise StoreUnavailableError(path="journal_instances", why=_LEFT)

    async def _answered(self, question: Callable[[Any], Awaitable[Any]]) -> Any:
        async with self._turn:
            if self._connection is None:
                raise StoreUnavailableError(path="journal_instances", why="the database is not reached")
            return await question(self._connection)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ending.wait()

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()
