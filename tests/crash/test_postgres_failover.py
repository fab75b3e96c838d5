"""
The server dies for good under load and a standby takes its place (V8, M4, S5).

With a synchronous standby nothing that was acknowledged is missing, and every host goes on by itself. With an
asynchronous one the end may be missing: then each host that knows better stops instead of going on in another past.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

from journal.clock import SystemClock
from journal.errors import CommitUnknownError, DamagedError, JournalError, StoreUnavailableError
from journal.log.postgres.connect import Server
from journal.log.postgres.upstream import PostgresUpstream
from journal.log.sqlite import SqliteLog
from journal.log.unit import Unit, Written
from journal.stream import Stream
from projections import all_views
from tests.builders import acquired, intended, opened, plan
from tests.doubles.postgres import Postgres, new_server

SYNCHRONOUS = "ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 (standby)'"


@contextmanager
def pair(*, synchronous: bool) -> Iterator[tuple[Postgres, Postgres, str]]:
    """A primary, its standby, and a DSN that names both."""
    with new_server() as primary, new_server(lambda copy: copy.copy_from(primary)) as standby:
        primary.sql("CREATE DATABASE j")
        if synchronous:
            primary.sql(SYNCHRONOUS)
            primary.sql("SELECT pg_reload_conf()")
            assert _within(lambda: primary.sql("SELECT sync_state FROM pg_stat_replication") == "sync")
        assert _within(lambda: standby.sql("SELECT count(*) FROM pg_database WHERE datname = 'j'") == "1")
        yield primary, standby, f"postgresql://owner@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/j"


def _within(true: Callable[[], bool]) -> bool:
    return any(true() for _ in range(200))


@asynccontextmanager
async def hosts(folder: Path, dsn: str, count: int, timeout_s: float = 5) -> AsyncIterator[list[SqliteLog]]:
    logs: list[SqliteLog] = []
    try:
        for n in range(count):
            (folder / f"host-{n}").mkdir()
            logs.append(await opened_log(folder / f"host-{n}" / "journal.db", dsn, timeout_s))
        yield logs
    finally:
        for log in logs:
            await log.close()


async def opened_log(path: Path, dsn: str, timeout_s: float) -> SqliteLog:
    return await SqliteLog.open(
        path, write=True, clock=SystemClock(), new_id=lambda: os.urandom(16).hex(), projections=all_views(),
        upstream=PostgresUpstream(Server(dsn, timeout_s=timeout_s)),
    )  # fmt: skip


class Load:
    """Tasks driven without end on several hosts; keeps what was acknowledged, and the only two ways it may fail."""

    def __init__(self, enough: int) -> None:
        self.acknowledged: dict[int, str] = {}  # position: hash
        self.surprises: list[BaseException] = []
        self.reached, self._enough, self._over = asyncio.Event(), enough, False

    def stop(self) -> None:
        self._over = True

    async def grown_by(self, count: int) -> None:
        """Until so many more were acknowledged."""
        wanted = len(self.acknowledged) + count
        while len(self.acknowledged) < wanted and not self.surprises:  # noqa: ASYNC110 - six tasks make it grow
            await asyncio.sleep(0.01)

    async def drive(self, log: SqliteLog, name: str) -> None:
        number = 0
        while not self._over:
            number += 1
            stream = Stream(f"{name}-{number}")
            for draft in (opened(), acquired(plan("merge_pr")), intended("merge_pr")):
                try:
                    answer = await log.append(Unit(stream, (draft,)))
                except (CommitUnknownError, StoreUnavailableError):
                    break  # what may be there is left alone: the next task has another name
                except JournalError as error:
                    self.surprises.append(error)
                    return
                if not isinstance(answer, Written):
                    self.surprises.append(AssertionError(answer))
                    return
                stream = answer.stream
                event = answer.events[-1]
                self.acknowledged[event.position] = event.hash.hex()
                if len(self.acknowledged) >= self._enough:
                    self.reached.set()


async def fail_over(folder: Path, seed: int) -> None:
    """Kill the primary after a number of acknowledged events, promote the standby, go on, and compare."""
    chosen = random.Random(seed)
    with pair(synchronous=True) as (primary, standby, dsn):
        async with hosts(folder, dsn, 2) as logs:
            load = Load(enough=chosen.randrange(40, 160))
            work = [asyncio.create_task(load.drive(logs[n % 2], f"T-{n}")) for n in range(6)]
            await asyncio.wait_for(load.reached.wait(), 60)
            await asyncio.to_thread(standby.follow_nobody)
            with suppress(TimeoutError):  # as it should be: nothing can be acknowledged any more
                await asyncio.wait_for(load.grown_by(30), 1.0)
            await asyncio.to_thread(primary.kill)
            await asyncio.to_thread(standby.promote)
            await asyncio.wait_for(load.grown_by(30), 60)
            load.stop()
            await asyncio.gather(*work)
            assert load.surprises == []
            assert [log.broken for log in logs] == [None, None]
            await asyncio.gather(*(until_reached(log, max(load.acknowledged)) for log in logs))
        rows = [line.split("|") for line in standby.sql(ALL, "j").splitlines()]
        assert [int(row[0]) for row in rows] == list(range(1, len(rows) + 1))
        stored = {int(row[0]): row[1] for row in rows}
        lost = {p: h for p, h in load.acknowledged.items() if stored.get(p) != h}
        assert lost == {}, f"seed {seed}: acknowledged and gone"


ALL = "SELECT position, encode(hash, 'hex') FROM journal_events ORDER BY position"


async def until_reached(log: SqliteLog, position: int) -> None:
    async with asyncio.timeout(30):
        while (await log.head())[0] < position:  # noqa: ASYNC110 - the tail is followed in another thread
            await asyncio.sleep(0.01)


@pytest.mark.proves("M4", "S5", "V8")
async def test_nothing_acknowledged_is_lost_when_a_synchronous_standby_takes_over(tmp_path: Path) -> None:
    await fail_over(tmp_path, seed=1)


@pytest.mark.long
@pytest.mark.proves("M4", "S5", "V8")
@pytest.mark.parametrize("seed", range(100, 120))
async def test_nothing_acknowledged_is_lost_twenty_times_in_a_row(tmp_path: Path, seed: int) -> None:
    print(f"seed {seed}")
    await fail_over(tmp_path, seed)


@pytest.mark.proves("M4", "V8", "A2")
async def test_a_promoted_standby_that_lacks_the_end_stops_every_host_that_knows_of_it(tmp_path: Path) -> None:
    with pair(synchronous=False) as (primary, standby, dsn):
        async with hosts(tmp_path, dsn, 2) as logs:
            stream = await opened_task(logs[0], "T-1")
            await until_reached(logs[1], 2)
            assert _within(lambda: standby.sql("SELECT count(*) FROM journal_events", "j") == "2")
            await asyncio.to_thread(standby.kill)  # it is away while the last events are written
            answer = await logs[0].append(Unit(stream, (acquired(plan("merge_pr")), intended("merge_pr"))))
            assert isinstance(answer, Written)
            await until_reached(logs[1], 4)
            await asyncio.to_thread(primary.kill)
            await asyncio.to_thread(standby.start)
            await asyncio.to_thread(standby.promote)

            for log in logs:
                with pytest.raises(DamagedError, match="lacks events 3 to 4"):
                    await log.append(Unit(Stream("T-9"), (opened(),)))
                assert isinstance(log.broken, DamagedError)
        assert standby.sql("SELECT max(position) FROM journal_events", "j") == "2"


@pytest.mark.proves("M4", "S5")
async def test_a_commit_that_waits_for_a_standby_in_vain_is_unknown_and_nobody_sees_it(tmp_path: Path) -> None:
    """Called off by us it would be done on the primary alone, where another host would follow it."""
    with pair(synchronous=True) as (primary, standby, dsn):
        async with hosts(tmp_path, dsn, 1, timeout_s=1) as (log,):
            stream = await opened_task(log, "T-1")
            await asyncio.to_thread(standby.follow_nobody)
            assert _within(lambda: not primary.sql("SELECT FROM pg_stat_replication"))
            with pytest.raises(CommitUnknownError):
                await log.append(Unit(stream, (acquired(plan("merge_pr")),)))
            assert primary.sql("SELECT max(position) FROM journal_events", "j") == "2"
            primary.sql("ALTER SYSTEM RESET synchronous_standby_names")  # somebody decides to go on without
            primary.sql("SELECT pg_reload_conf()")
            assert _within(lambda: primary.sql("SELECT max(position) FROM journal_events", "j") == "3")
            await until_reached(log, 3)
            assert (await log.read("T-1")).version == 2


async def opened_task(log: SqliteLog, task: str) -> Stream:
    answer = await log.append(Unit(Stream(task), (opened(),)))
    assert isinstance(answer, Written)
    return answer.stream
