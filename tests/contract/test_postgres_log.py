"""
Several hosts on one server: what one appended the others have, and nothing is written twice, lost or guessed (M4).

Each `Host` is what one service is to the log: a folder with its copy, a writer's thread, a way to the server. What the
port promises is checked in `test_log.py`, on this engine too.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from journal.errors import CommitUnknownError, DamagedError, JournalError, StoreUnavailableError
from journal.events import Applied, Draft, Event, IncarnationStarted, Released, StageMoved
from journal.log.port import EventLog
from journal.log.postgres.connect import Server
from journal.log.postgres.upstream import PostgresUpstream
from journal.log.sqlite import SqliteLog
from journal.log.unit import Moved, Side, Taken, Unit, Written
from journal.stream import Stream
from journal.words import Ending
from projections import all_views
from tests.builders import StandingClock, acquired, intended, opened, plan
from tests.doubles.postgres import Postgres, new_server
from tests.doubles.wire import wire

Host = Callable[..., Awaitable[SqliteLog]]
NUMBERS = itertools.count(1)
APPENDED = b"\x00\x00\x00\x08" + b"\xff" * 8
"""What the server's function answers when it has appended: -1, eight bytes of it."""


@pytest.fixture
async def host(database: str, tmp_path: Path) -> AsyncIterator[Host]:
    """Opens the log as one more host, or as the one in `folder` again."""
    logs: list[SqliteLog] = []

    async def open_host(folder: str = "", dsn: str = "", standbys: int = 0) -> SqliteLog:
        place = tmp_path / (folder or f"host-{next(NUMBERS)}")
        place.mkdir(exist_ok=True)
        log = await SqliteLog.open(
            place / "journal.db", write=True, clock=StandingClock(), new_id=lambda: os.urandom(16).hex(),
            projections=all_views(), upstream=PostgresUpstream(Server(dsn or database, standbys, timeout_s=5)),
        )  # fmt: skip
        logs.append(log)
        return log

    yield open_host
    for log in logs:
        await log.close()


async def written(log: EventLog, stream: Stream, *drafts: Draft) -> Stream:
    answer = await log.append(Unit(stream, drafts))
    assert isinstance(answer, Written), answer
    return answer.stream


async def every_event(log: EventLog) -> list[Event]:
    return list(await log.events(limit=100_000))


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await true():  # noqa: ASYNC110 - another host's thread does it
            await asyncio.sleep(0.01)


@pytest.mark.proves("M4", "L2", "L3")
async def test_hosts_that_append_at_once_make_one_dense_log_and_each_has_the_whole_of_it(
    host: Host, database: str
) -> None:
    logs = [await host() for _ in range(3)]
    names = [[f"T-{n}-{m}" for m in range(15)] for n in range(len(logs))]

    async def drive(log: SqliteLog, task: str) -> None:
        stream = await written(log, Stream(task), opened())
        stream = await written(log, stream, acquired(plan("merge_pr")), intended("merge_pr"))
        await written(log, stream, Draft(Applied("apply"), 1, 1, "worker", "merge_pr", 1))

    await asyncio.gather(*(drive(log, task) for log, tasks in zip(logs, names, strict=True) for task in tasks))
    total = 1 + 3 * 15 * 4
    db = await asyncpg.connect(database)
    rows = await db.fetch("SELECT position, hash, prev_hash FROM journal_events ORDER BY position")
    await db.close()
    assert [row[0] for row in rows] == list(range(1, total + 1))
    assert all(after[2] == before[1] for before, after in itertools.pairwise(rows))
    for log in logs:
        await until(lambda log=log: _reached(log, total))  # type: ignore[misc]
        assert [event.hash for event in await every_event(log)] == [row[1] for row in rows]
        assert await log.query("SELECT DISTINCT position FROM journal_projections") == [(total,)]


async def _reached(log: EventLog, position: int) -> bool:
    return (await log.head())[0] == position


@pytest.mark.proves("M4", "L3", "FR-2")
async def test_of_hosts_that_write_from_one_version_one_wins_and_every_other_is_told(host: Host) -> None:
    logs = [await host() for _ in range(3)]
    stream = await written(logs[0], Stream("T-1"), opened())
    units = [Unit(stream, (acquired(plan("merge_pr"), run=f"run-{n}"), intended("merge_pr"))) for n in range(9)]
    answers = await asyncio.gather(*(logs[n % 3].append(unit) for n, unit in enumerate(units)))

    assert [type(a) for a in answers].count(Written) == 1
    assert {a.version for a in answers if isinstance(a, Moved)} == {3}
    for log in logs:
        assert (await log.read("T-1")).version == 3  # whoever lost has followed when it is told so


@pytest.mark.proves("M4", "E2", "E13")
async def test_a_lane_that_another_host_holds_is_taken_until_that_host_moves_on(host: Host) -> None:
    lane = "merge:acme/widgets/main"
    edge = plan("merge_pr", lane=lane)
    here, there = await host(), await host()
    mine = await written(here, await written(here, Stream("T-1"), opened()), acquired(edge))
    theirs = await written(there, await written(there, Stream("T-2"), opened()), acquired(edge))
    mine = await written(here, mine, intended("merge_pr", lane=lane))
    blocked = Unit(theirs, (intended("merge_pr", lane=lane),))

    assert await there.append(blocked) == Taken("T-1")
    seen = Draft(Applied("apply"), 1, 1, "worker", "merge_pr", 1)
    moved = Draft(StageMoved("deploy-staging", "deploy", final=True), 1, 1, "worker")
    await written(here, mine, seen, moved, Draft(Released(Ending.ADVANCED), 1, 1, "worker"))
    assert isinstance(await there.append(blocked), Written)


@pytest.mark.proves("M4", "NFR-4")
async def test_a_host_that_only_listens_hears_what_others_append(host: Host) -> None:
    here, there = await host(), await host()
    heard: list[int] = []
    assert there.writer is not None
    there.writer.on_events = lambda events: heard.extend(event.position for event in events)
    stream = await written(here, Stream("T-1"), opened())
    await written(here, stream, acquired(plan("merge_pr")))
    await until(lambda: _reached(there, 3))
    assert heard == [2, 3]
    assert (await there.read("T-1")).version == 2
    assert await there.query("SELECT position FROM journal_projections LIMIT 1") == [(3,)]


@pytest.mark.proves("M4", "R81")
async def test_a_driver_that_fails_in_a_way_of_its_own_while_others_are_followed_stops_nobody(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread outlives it: whoever appends afterwards would wait for ever."""
    a, b = await host(), await host()
    met = threading.Event()
    after = PostgresUpstream.after

    def fails(self: PostgresUpstream, position: int, limit: int) -> object:
        if threading.current_thread().name == "journal-writer" and not met.is_set():
            met.set()
            raise RuntimeError("got result for unknown protocol state")
        return after(self, position, limit)

    monkeypatch.setattr(PostgresUpstream, "after", fails)
    await written(a, Stream("T-1"), opened())  # which b is told of
    assert await asyncio.to_thread(met.wait, 20)
    async with asyncio.timeout(20):
        await written(b, Stream("T-2"), opened())
        await written(a, Stream("T-3"), opened())


@pytest.mark.proves("S7", "M4")
async def test_callers_that_come_together_share_commits_and_round_trips(host: Host, database: str) -> None:
    log = await host()
    assert log.writer is not None
    await until(lambda: _reached(log, 1))
    before = log.writer.batches
    db = await asyncpg.connect(database)
    commits = "SELECT xmin::text FROM journal_events WHERE position > 1"
    await asyncio.gather(*(log.append(Unit(Stream(f"T-{n}"), (opened(),))) for n in range(100)))
    assert 1 <= log.writer.batches - before <= 10
    assert len({row[0] for row in await db.fetch(commits)}) <= 10
    await db.close()


@pytest.mark.proves("S5", "M4", "R81")
async def test_an_append_whose_answer_was_lost_is_settled_by_reading_and_never_sent_again(
    host: Host, postgres: Postgres, database: str
) -> None:
    name = database.rpartition("/")[2]
    async with wire(postgres.port) as line:
        log = await host(dsn=f"postgresql://owner@127.0.0.1:{line.port}/{name}")
        stream = await written(log, Stream("T-1"), opened())
        done = Draft(Applied("apply"), 1, 1, "worker", "merge_pr", 1)
        for draft in (acquired(plan("merge_pr")), intended("merge_pr"), done):
            line.lose_the_answer(APPENDED)
            stream = await written(log, stream, draft)
        assert line.lost == 3
        assert [e.version for e in await log.events(task="T-1")] == [1, 2, 3, 4]
        await log.close()


@pytest.mark.proves("S5", "M4")
async def test_a_server_that_dies_in_the_middle_leaves_no_guess_and_goes_on_when_it_is_back(tmp_path: Path) -> None:
    """Killed with SIGKILL under load: whoever was told `Written` finds it, and unknown is the only other answer."""
    with new_server() as server:
        server.sql("CREATE DATABASE j")
        log = await SqliteLog.open(
            tmp_path / "journal.db", write=True, clock=StandingClock(), new_id=lambda: "ab" * 16,
            upstream=PostgresUpstream(Server(server.dsn("j"), timeout_s=5)),
        )  # fmt: skip
        try:
            kept: set[str] = set()
            failed: list[BaseException] = []

            async def open_some(name: str) -> None:
                for n in range(40):
                    try:
                        await written(log, Stream(f"{name}-{n}"), opened())
                        kept.add(f"{name}-{n}")
                    except JournalError as error:
                        failed.append(error)

            work = [asyncio.create_task(open_some(f"T-{n}")) for n in range(8)]
            await until(lambda: _grown(log, 60))
            await asyncio.to_thread(server.kill)
            await asyncio.gather(*work)
            await asyncio.to_thread(server.start)
            assert failed and {type(e) for e in failed} <= {CommitUnknownError, StoreUnavailableError}
            stream = await written(log, Stream("after"), opened())
            assert stream.version == 1 and log.broken is None
            stored = {e.task for e in await every_event(log)}
            assert kept <= stored
            on_server = server.sql("SELECT task FROM journal_events WHERE position > 1 ORDER BY position", "j").split()
            assert on_server == [e.task for e in await every_event(log)][1:]
        finally:
            await log.close()


async def _grown(log: EventLog, position: int) -> bool:
    return (await log.head())[0] >= position


@pytest.mark.proves("S7", "M4")
async def test_a_server_that_is_away_refuses_appends_and_still_lets_us_write_beside_the_log(
    host: Host, postgres: Postgres, database: str
) -> None:
    name = database.rpartition("/")[2]
    async with wire(postgres.port) as line:
        log = await host(dsn=f"postgresql://owner@127.0.0.1:{line.port}/{name}")
    gone = log.append(Unit(Stream("T-1"), (opened(),)))
    cursor = Side("INSERT INTO journal_cursors VALUES (?, ?, ?)", ("outbox", 1, 5))
    answers = await asyncio.gather(gone, log.side(cursor), return_exceptions=True)
    assert isinstance(answers[0], (StoreUnavailableError, CommitUnknownError))
    assert not isinstance(answers[1], BaseException)
    assert await log.query("SELECT name FROM journal_cursors") == [("outbox",)]
    assert (await log.read("T-1")).version == 0


@pytest.mark.proves("M4")
async def test_serialization_failures_are_tried_again_whole_before_anybody_hears_of_them(
    host: Host, postgres: Postgres, database: str
) -> None:
    """With this default an append that waited for the counter while it changed is given up by the server (40001)."""
    postgres.sql(f"ALTER DATABASE {database.rpartition('/')[2]} SET default_transaction_isolation = serializable")
    log, other = await host(), await asyncpg.connect(database)
    for n in range(3):
        async with other.transaction():
            await other.execute("SELECT journal_lock()")
            call = asyncio.create_task(log.append(Unit(Stream(f"T-{n}"), (opened(),))))
            await until(lambda: _waits(other))
        assert isinstance(await call, Written)
    await other.close()


async def _waits(db: asyncpg.Connection) -> bool:
    """Somebody waits for a lock that we hold."""
    return bool(await db.fetchval("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock')"))


@pytest.mark.proves("S5", "M4")
async def test_an_append_that_never_reached_the_server_stays_unknown_and_is_not_sent_again(
    host: Host, postgres: Postgres, database: str
) -> None:
    """Absent is not "no": it could still be on its way. Whoever asks next finds out."""
    name = database.rpartition("/")[2]
    async with wire(postgres.port) as line:
        log = await host(dsn=f"postgresql://owner@127.0.0.1:{line.port}/{name}")
        await written(log, Stream("T-1"), opened())
        line.lose_the_request(b"T-lost")
        with pytest.raises(CommitUnknownError):
            await written(log, Stream("T-lost"), opened())
        assert (await log.read("T-lost")).version == 0
        assert (await written(log, Stream("T-lost"), opened())).version == 1
        assert [e.task for e in await every_event(log)] == ["", "T-1", "T-lost"]
        await log.close()


@pytest.mark.proves("V8", "M4", "A2")
async def test_a_server_that_lost_its_end_stops_every_host_that_knows_better(host: Host, postgres: Postgres) -> None:
    """What an asynchronous standby lacks when it is promoted, made by going on in an older copy of the database."""
    log = await host("one")
    stream = await written(log, Stream("T-1"), opened())
    await log.close()
    name = f"older{next(NUMBERS)}"
    postgres.sql(f"CREATE DATABASE {name} TEMPLATE {log_database(log)}")
    try:
        log = await host("one")
        await written(log, stream, acquired(plan("merge_pr")), intended("merge_pr"))
        await log.close()

        with pytest.raises(DamagedError, match="lacks events 3 to 4"):
            await host("one", dsn=postgres.dsn(name))
        other = await host("two", dsn=postgres.dsn(name))  # knows no better, and cannot
        other_past = await written(other, stream, acquired(plan("merge_pr"), run="another"), intended("merge_pr"))
        await written(other, other_past, Draft(Applied("apply"), 1, 1, "worker", "merge_pr", 1))
        with pytest.raises(DamagedError, match="lacks events 3 to 4"):
            await host("one", dsn=postgres.dsn(name))
        await other.close()
    finally:
        postgres.sql(f"DROP DATABASE {name} WITH (FORCE)")


def log_database(log: SqliteLog) -> str:
    writer = log.writer
    assert writer is not None
    return str(writer._upstream.shown).rpartition("/")[2]  # type: ignore[attr-defined]


@pytest.mark.proves("V8", "M4")
async def test_a_host_whose_server_loses_its_end_while_it_runs_stops_at_its_next_append(
    host: Host, postgres: Postgres, database: str
) -> None:
    log = await host()
    stream = await written(log, Stream("T-1"), opened())
    assert stream.version == 1
    name = database.rpartition("/")[2]
    postgres.sql(
        "ALTER TABLE journal_events DISABLE TRIGGER journal_events_stay; "
        "DELETE FROM journal_events WHERE position = 2; "
        "UPDATE journal_head SET position = 1, hash = (SELECT hash FROM journal_events); "
        "ALTER TABLE journal_events ENABLE ALWAYS TRIGGER journal_events_stay",
        name,
    )
    for _ in range(2):
        with pytest.raises(DamagedError, match="lacks events 2 to 2"):
            await written(log, Stream("T-2"), opened())
    assert isinstance(log.broken, DamagedError)


@pytest.mark.proves("M4", "V8")
async def test_a_host_that_runs_while_another_begins_a_new_incarnation_must_start_again(host: Host) -> None:
    """Its epochs would go on below the floor."""
    one, two = await host(), await host()
    begun = Draft(IncarnationStarted(50, "a server"), actor="restore")
    assert isinstance(await one.append(Unit(Stream("", version=1), (begun,))), Written)
    with pytest.raises(StoreUnavailableError, match="start this service again"):
        await written(two, Stream("T-1"), opened())
    assert two.broken is not None


@pytest.mark.proves("M4")
async def test_a_copy_that_was_lost_is_made_anew_with_its_views(host: Host, tmp_path: Path) -> None:
    log = await host("one")
    stream = await written(log, Stream("T-1"), opened())
    await written(log, stream, acquired(plan("merge_pr", lane="l")), intended("merge_pr", lane="l"))
    events, views = await every_event(log), await log.query("SELECT * FROM journal_view_tasks")
    await log.close()
    for file in (tmp_path / "one").glob("journal.db*"):
        if file.is_file():
            file.unlink()
    again = await host("one")
    assert await every_event(again) == events
    assert await again.query("SELECT * FROM journal_view_tasks") == views
    second = await written(again, Stream("T-2"), opened())
    second = await written(again, second, acquired(plan("merge_pr", lane="l")))
    assert await again.append(Unit(second, (intended("merge_pr", lane="l"),))) == Taken("T-1")


@pytest.mark.proves("M4", "S3")
async def test_a_copy_is_never_appended_to_alone_and_a_journal_of_its_own_never_follows(
    host: Host, tmp_path: Path
) -> None:
    log = await host("one")
    await log.close()
    with pytest.raises(StoreUnavailableError, match="copy of a log on a server"):
        await SqliteLog.open(
            tmp_path / "one" / "journal.db", write=True, clock=StandingClock(), new_id=lambda: "cd" * 16
        )
    (tmp_path / "own").mkdir()
    own = await SqliteLog.open(
        tmp_path / "own" / "journal.db", write=True, clock=StandingClock(), new_id=lambda: "cd" * 16
    )
    await own.close()
    with pytest.raises(StoreUnavailableError, match="a journal of its own"):
        await host("own")
    assert threading.active_count() < 20


@pytest.mark.proves("M4", "R93")
async def test_a_writer_past_a_stale_copy_is_refused_by_the_server_and_follows(host: Host, tmp_path: Path) -> None:
    """The copy says what it said yesterday; nothing may be decided from that alone."""
    one = await host("one")
    stream = await written(one, Stream("T-1"), opened())
    await one.close()
    stale = {f.name: f.read_bytes() for f in (tmp_path / "one").glob("journal.db*") if f.is_file()}
    two = await host("two")
    await written(two, stream, acquired(plan("merge_pr")))
    for name, content in stale.items():
        (tmp_path / "one" / name).write_bytes(content)
    again = await host("one")
    assert (await again.read("T-1")).version == 2
    assert await again.append(Unit(stream, (acquired(plan("merge_pr"), run="late"),))) == Moved(2)


@pytest.mark.proves("M4")
async def test_the_copy_holds_the_servers_rows_byte_for_byte(host: Host, database: str, tmp_path: Path) -> None:
    log = await host("one")
    stream = await written(log, Stream("T-1"), opened())
    seen = (("text", "ä€😀\u0001\t\\ '\""), ("big", 2**62), ("none", ""))
    stream = await written(log, stream, acquired(plan("merge_pr")), intended("merge_pr"))
    await written(log, stream, Draft(Applied("apply", seen), 1, 1, "worker", "merge_pr", 1))
    db = await asyncpg.connect(database)
    theirs = [tuple(row) for row in await db.fetch("SELECT * FROM journal_events ORDER BY position")]
    await db.close()
    with closing(sqlite3.connect(f"file:{tmp_path}/one/journal.db?mode=ro", uri=True)) as copy:
        assert copy.execute("SELECT * FROM journal_events ORDER BY position").fetchall() == theirs
