"""Processes that share a journal, on a real server: who is alive, who may act, what a lost network costs (M2, M3)."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace

import pytest

from journal.clock import SystemClock, this_process
from journal.errors import InvalidInputError, StoreUnavailableError
from journal.events import Owner
from journal.hosts.clock import SharedClock
from journal.hosts.pulse import Pulse
from journal.hosts.roster import Periods
from journal.hosts.rows import declare_dead, members
from journal.log.postgres.connect import Server, connect
from journal.log.postgres.schema import migrate
from journal.words import Standing
from tests.doubles.cable import Cable
from tests.doubles.postgres import Postgres

SHORT = Periods(beat_s=0.1, stops_s=2, suspect_s=3, vanished_s=1)
"""A third of the product's: a machine that is busy with other tests must not look dead."""

LONGEST_S = 60
"""An upper bound for what takes a fraction of it; it decides nothing."""

A, B, C, D, E = (this_process(letter * 32) for letter in "abcde")


def pulse(
    dsn: str,
    me: Owner,
    *,
    ground: str = "",
    on_loss: Callable[[], None] = lambda: None,
    on_time: Callable[[int], None] = lambda _: None,
) -> Pulse:
    server = Server(dsn, timeout_s=SHORT.stops_s)
    return Pulse(
        lambda: connect(server, "hosts"), me, ground or me.instance, address="somewhere",
        new_key=lambda: secrets.randbits(62), periods=SHORT, on_loss=on_loss, on_time=on_time,
    )  # fmt: skip


@asynccontextmanager
async def joined(dsn: str, *owners: Owner, ground: str = "") -> AsyncIterator[list[Pulse]]:
    await tables(dsn)
    async with AsyncExitStack() as stack:
        members = []
        for owner in owners:
            member = pulse(dsn, owner, ground=ground)
            await member.start()
            stack.push_async_callback(member.close, "")
            members.append(member)
        yield members


async def tables(dsn: str) -> None:
    db = await connect(Server(dsn), "test")
    await migrate(db, "test")
    await db.close()


async def until(holds: Callable[[], Awaitable[bool]] | Callable[[], bool]) -> None:
    async with asyncio.timeout(LONGEST_S):
        while True:
            found = holds()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.05)


def stands(who: Pulse, owner: Owner, word: Standing) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        with suppress(StoreUnavailableError):  # between two sessions
            return await who.standing(owner) is word
        return False

    return holds


async def settled() -> None:
    """Nobody is suspected by who has just come; a real wait, since nobody can turn the server's clock."""
    await asyncio.sleep(SHORT.suspect_s + 0.1)


def sql(postgres: Postgres, dsn: str, statement: str) -> None:
    postgres.sql(statement, dsn.rpartition("/")[2])


@pytest.mark.proves("M2")
async def test_those_that_beat_see_each_other_alive_and_one_of_them_leads(database: str) -> None:
    async with joined(database, A) as (a,):
        b = pulse(database, B)
        await b.start()
        assert (await a.standing(B), await b.standing(A)) == (Standing.ALIVE, Standing.ALIVE)
        assert (a.refusal(), b.refusal()) == ("", "")
        assert (a.leads(), b.leads()) == (True, False)
        await a.close("")
        assert a.refusal()
        await until(b.leads)
        await b.close("")


@pytest.mark.proves("M1", "M3")
async def test_silence_makes_a_suspect_whatever_the_databases_clock_says_and_proves_nothing(
    postgres: Postgres, database: str
) -> None:
    """Also after a standby whose clock is hours off was promoted: its time meets beats that the old one stamped."""
    async with joined(database, A, B) as (a, b):
        await b.close("")
        await settled()
        assert await a.standing(B) is Standing.SUSPECT
        for off in ("1 year", "2 hours", "-2 hours"):
            stamp = f"SET beat_at = clock_timestamp() - interval '{off}' WHERE instance = '{B.instance}'"
            sql(postgres, database, f"UPDATE journal_instances {stamp}")
            await asyncio.sleep(3 * SHORT.beat_s)
            assert await a.standing(B) is Standing.SUSPECT, off


@pytest.mark.proves("M1")
async def test_its_last_word_or_a_common_kernel_proves_that_it_is_gone(database: str) -> None:
    async with joined(database, A, B) as (a, b):
        await b.close("every run was seen to end")
        await until(stands(a, B, Standing.GONE))
        assert await a.standing(Owner("run", "f" * 32)) is Standing.SUSPECT, "of an imported journal, say"
    async with joined(database, C, D, ground="one kernel") as (c, _):
        assert await c.standing(D) is Standing.GONE  # asked with the task's lock in hand


@pytest.mark.proves("M1", "M2")
async def test_each_task_is_minded_by_one_living_host_and_doubt_by_the_one_that_can_settle_it(database: str) -> None:
    async with joined(database, A, B) as (a, b):
        await settled()
        tasks = [f"T-{n}" for n in range(64)]
        minded = {task: (a.minds(task), b.minds(task)) for task in tasks}
        assert set(minded.values()) == {(True, False), (False, True)}
        some = next(task for task in tasks if minded[task] == (True, False))
        assert await a.wanted(some, None)
        assert not await a.wanted(some, B), "its owner lives"
        assert await b.wanted(some, B)
        await b.close("")
        await until(stands(a, B, Standing.SUSPECT))
        assert all(a.minds(task) for task in tasks)
        assert await a.wanted(some, B)
        returned = pulse(database, E, ground=B.instance)  # the same host again, in another process
        await returned.start()
        await until(stands(returned, B, Standing.GONE))
        other = next(task for task in tasks if not returned.minds(task))
        assert await returned.wanted(other, B), "nobody else can prove that nothing is left"
        await returned.close("")


@pytest.mark.proves("M1")
async def test_a_persons_word_proves_death_fences_whoever_wakes_up_and_is_refused_for_the_living(
    postgres: Postgres, database: str
) -> None:
    server = Server(database)
    async with joined(database, A) as (a,):
        with Cable(postgres.port) as cable:
            b = pulse(database.replace(f":{postgres.port}/", f":{cable.port}/"), B)
            await b.start()
            with pytest.raises(InvalidInputError, match="s ago; end it on"):
                await declare_dead(server, B.instance[:8], "a rumour")
            with pytest.raises(InvalidInputError, match="no process"):
                await declare_dead(server, "0123", "a rumour")
            cable.cut()
            aged = f"SET beat_at = beat_at - interval '1 hour' WHERE instance = '{B.instance}'"
            sql(postgres, database, f"UPDATE journal_instances {aged}")
            assert (await declare_dead(server, B.instance[:8], "its machine was scrapped")).instance == B.instance
            await until(stands(a, B, Standing.GONE))
            assert {m.instance: m.ended for m in await members(server)} == {
                A.instance: "", B.instance: "declared dead: its machine was scrapped",
            }  # fmt: skip
            cable.plug()
            await until(lambda: bool(b.refusal()))
            await asyncio.sleep(1)
            assert b.refusal(), "it never gets a lease again"
            await b.close("")


@pytest.mark.proves("M2", "O5")
async def test_whoever_leads_next_goes_on_where_the_last_one_was(database: str) -> None:
    async with joined(database, A, B) as (a, b):
        assert await b.marked("alerts") == 0
        await a.mark("alerts", 41)
        await a.mark("alerts", 42)
        await a.mark("publish.plane", 7)
        await a.close("")
        assert (await b.marked("alerts"), await b.marked("publish.plane")) == (42, 7)


@pytest.mark.proves("M2")
async def test_cut_off_from_the_server_it_stops_itself_before_others_suspect_it(
    postgres: Postgres, database: str
) -> None:
    """The network of one host is cut; the host lives. It refuses first, is suspected after, and may come back."""
    losses: list[str] = []
    async with joined(database, A) as (a,):
        with Cable(postgres.port) as cable:
            through = database.replace(f":{postgres.port}/", f":{cable.port}/")
            b = pulse(through, B, on_loss=lambda: losses.append("lost"))
            await b.start()
            await settled()
            assert b.refusal() == ""
            cable.cut()
            await until(stands(a, B, Standing.SUSPECT))
            assert "has not heard from this process" in b.refusal()
            assert not b.leads()
            await until(lambda: losses == ["lost"])
            with pytest.raises(StoreUnavailableError):
                await b.standing(A)  # what it last heard is not the present
            cable.plug()
            await until(lambda: b.refusal() == "")
            await until(stands(a, B, Standing.ALIVE))
            await b.close("")


@pytest.mark.proves("M2")
async def test_a_session_that_the_server_ends_is_begun_anew_before_anybody_is_suspected(
    postgres: Postgres, database: str
) -> None:
    async with joined(database, A, B) as (a, b):
        sql(postgres, database, "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
        for _ in range(10):
            await asyncio.sleep(0.05)
            assert a.refusal() == b.refusal() == ""
        await until(stands(a, B, Standing.ALIVE))
        await until(lambda: a.leads() or b.leads())


class Wrong(SystemClock):
    """A host's own clock, hours off."""

    def __init__(self, hours: int) -> None:
        self._hours = hours

    def now_us(self) -> int:
        return super().now_us() + self._hours * 3_600_000_000


@pytest.mark.proves("L5", "M2")
async def test_hosts_whose_clocks_are_hours_apart_tell_the_databases_time_from_their_first_beat_on(
    database: str,
) -> None:
    """Else a look that one of them puts off by seconds is due hours later for the other."""
    await tables(database)
    clocks = [SharedClock(Wrong(hours)) for hours in (5, -7)]
    for clock, owner in zip(clocks, (A, B), strict=True):
        member = pulse(database, owner, on_time=clock.heard)
        await member.start()
        await member.close("")
    ahead, behind = (clock.now_us() for clock in clocks)
    assert abs(ahead - behind) < 60_000_000
    assert abs(ahead - SystemClock().now_us()) < 60_000_000  # the server runs on this machine


@pytest.mark.proves("TR-1")
async def test_a_process_whose_event_loop_hangs_falls_silent_although_its_thread_lives(
    postgres: Postgres, database: str
) -> None:
    """Its runs stand still; others must not defer to it for ever. A real hang: the loop is blocked."""
    await tables(database)
    hung = pulse(database, A)
    hung._periods = replace(SHORT, hung_s=0.4)
    await hung.start()
    time.sleep(1.5)
    silent = "SELECT extract(epoch FROM clock_timestamp() - max(beat_at)) > 0.7 FROM journal_instances"
    assert postgres.sql(silent, database.rpartition("/")[2]) == "t"
    await until(lambda: hung.refusal() == "")
    spoke = "SELECT extract(epoch FROM clock_timestamp() - max(beat_at)) < 0.7 FROM journal_instances"
    await until(lambda: postgres.sql(spoke, database.rpartition("/")[2]) == "t")
    await hung.close("")


async def test_a_server_that_cannot_be_reached_lets_nobody_join() -> None:
    lonely = pulse("postgresql://owner@127.0.0.1:1/nowhere", A)
    with pytest.raises(StoreUnavailableError, match="cannot join its hosts"):
        await lonely.start()
    assert lonely.refusal()
