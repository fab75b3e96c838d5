"""
The contract of `EventLog`, run on every implementation: whole units by compare-and-swap, each caller answered alone.

Real files, real threads, a real server. A new store joins by adding itself to `store`.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from journal.codec import BODY_LIMIT
from journal.errors import (
    InadmissibleError,
    InvalidInputError,
    JournalError,
    NotWriterError,
    StoreUnavailableError,
    TaskExistsError,
)
from journal.events import Applied, Draft, Event, HazardFound, Opened, Released, StageMoved
from journal.log.port import EventLog
from journal.log.postgres.connect import Server
from journal.log.postgres.upstream import PostgresUpstream
from journal.log.rows import Redact
from journal.log.sqlite import SqliteLog
from journal.log.unit import Answer, Moved, Taken, Unit, Written
from journal.stream import Stream, fold_stream
from journal.words import Ending, Hold, Kind
from tests.builders import OPENED, StandingClock, acquired, intended, opened, plan

SECRET = 'pa"ss\\word-1'
Store = Callable[[Path], Awaitable[EventLog]]
"""Opens the log of a folder; again, if it was there already."""


OPEN: list[EventLog] = []


@pytest.fixture(autouse=True)
async def nothing_left_open() -> AsyncIterator[None]:
    """A test that fails half-way must not leave a thread behind that keeps the whole run from ending."""
    yield
    while OPEN:
        await OPEN.pop().close()


async def sqlite_log(folder: Path, *, write: bool = True) -> SqliteLog:
    log = await SqliteLog.open(
        folder / "journal.db",
        write=write,
        clock=StandingClock(),
        new_id=lambda: "ab" * 16,
        redact=Redact([SECRET]),
    )
    OPEN.append(log)
    return log


async def sqlite_store(folder: Path) -> EventLog:
    return await sqlite_log(folder)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> Store:
    """Every claim about the port is checked on each engine."""
    if request.param == "sqlite":
        return sqlite_store
    dsn: str = request.getfixturevalue("database")

    async def postgres_store(folder: Path) -> EventLog:
        log = await SqliteLog.open(
            folder / "journal.db",
            write=True,
            clock=StandingClock(),
            new_id=lambda: "ab" * 16,
            redact=Redact([SECRET]),
            upstream=PostgresUpstream(Server(dsn)),
        )
        OPEN.append(log)
        return log

    return postgres_store


@pytest.fixture
async def log(store: Store, tmp_path: Path) -> AsyncIterator[EventLog]:
    opened_log = await store(tmp_path)
    yield opened_log
    await opened_log.close()


async def begin(log: EventLog, task: str) -> Stream:
    """Open a task and return its stream."""
    return await written(log, Stream(task), opened())


async def written(log: EventLog, stream: Stream, *drafts: Draft) -> Stream:
    answer = await log.append(Unit(stream, drafts))
    assert isinstance(answer, Written)
    return answer.stream


async def every_event(log: EventLog) -> Sequence[Event]:
    return await log.events(limit=100_000)


@pytest.mark.proves("L1", "FR-1", "NFR-4")
async def test_what_was_appended_is_read_back_by_another_process_and_after_a_restart(
    store: Store, tmp_path: Path
) -> None:
    log = await store(tmp_path)
    stream = await begin(log, "T-1")
    stream = await written(log, stream, acquired(plan("merge_pr")), intended("merge_pr"))
    head = await log.head()
    await log.close()

    again = await store(tmp_path)
    assert await again.read("T-1") == stream
    assert await again.head() == head
    assert again.journal_id == log.journal_id
    await again.close()


@pytest.mark.proves("NFR-4")
async def test_many_streams_read_by_few_questions_are_what_each_of_them_is_by_itself(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = await store(tmp_path)
    for number in range(7):
        stream = await begin(log, f"T-{number}")
        if number % 3:
            stream = await written(log, stream, acquired(plan("merge_pr")), intended("merge_pr"))
    await log.close()

    monkeypatch.setattr("journal.log.sqlite.PAGE", 5)  # ends within a stream
    monkeypatch.setattr("journal.log.sqlite.STREAMS_AT_ONCE", 3)
    again = await store(tmp_path)
    wanted = ["T-6", "T-2", "T-none", "T-1", "T-0", "T-4", "T-2", "T-5", "T-3"]
    await again.read("T-4")
    found = await again.read_all(wanted)
    assert [stream.version for stream in found] == [1, 3, 0, 3, 1, 3, 3, 3, 1]
    assert list(found) == [await again.read(task) for task in wanted]
    assert list(await again.read_all(wanted)) == list(found)  # what is kept by now
    assert list(await again.read_all([])) == []
    await written(again, found[1], Draft(Released(Ending.WAITING), found[1].state.epoch, 1, "worker"))
    assert (await again.read_all(["T-2"]))[0].version == 4
    await again.close()


@pytest.mark.proves("L2", "I1", "I2", "A1", "R93")
async def test_positions_and_versions_are_dense_and_every_event_is_linked_to_the_one_before(log: EventLog) -> None:
    first, second = await begin(log, "T-1"), await begin(log, "T-2")
    await written(log, first, acquired(plan("merge_pr")), intended("merge_pr"))
    await written(log, second, acquired(plan("merge_pr")))

    events = await every_event(log)
    assert [e.position for e in events] == list(range(1, len(events) + 1))
    assert [e.version for e in events if e.task == "T-1"] == [1, 2, 3]
    assert [e.version for e in events if e.task == "T-2"] == [1, 2]
    assert all(after.prev_hash == before.hash for before, after in pairwise(events))
    assert await log.head() == (events[-1].position, events[-1].hash.hex())


@pytest.mark.proves("L3", "FR-2", "R93")
async def test_of_two_who_write_from_one_version_one_wins_and_the_other_writes_nothing(log: EventLog) -> None:
    stream = await begin(log, "T-1")
    units = [Unit(stream, (acquired(plan("merge_pr"), run=f"run-{n}"), intended("merge_pr"))) for n in range(20)]
    answers = await asyncio.gather(*(log.append(unit) for unit in units))

    assert [type(a) for a in answers].count(Written) == 1
    assert {a.version for a in answers if isinstance(a, Moved)} == {3}
    assert [e.kind for e in await log.events(task="T-1")] == [Kind.OPENED, Kind.ACQUIRED, Kind.INTENDED]
    winner = next(a for a in answers if isinstance(a, Written))
    assert (await log.read("T-1")).state.owner == winner.stream.state.owner


@pytest.mark.proves("L3")
async def test_who_writes_from_an_old_version_is_told_the_new_one(log: EventLog) -> None:
    old = await begin(log, "T-1")
    await written(log, old, acquired(plan("merge_pr")))
    assert await log.append(Unit(old, (acquired(plan("merge_pr"), run="late"),))) == Moved(2)
    assert (await log.read("T-1")).version == 2


@pytest.mark.proves("S7")
async def test_a_member_that_is_refused_hurts_no_other(log: EventLog) -> None:
    streams = [await begin(log, f"T-{n}") for n in range(6)]
    bad = Draft(Applied("apply"), 0, 1, "worker", "merge_pr", 1)  # nobody owns the task
    units = [Unit(s, (bad,) if n % 2 else (acquired(plan("merge_pr")),)) for n, s in enumerate(streams)]
    answers = await asyncio.gather(*(log.append(unit) for unit in units), return_exceptions=True)

    assert [type(a) for a in answers] == [Written, InadmissibleError] * 3
    assert [(await log.read(f"T-{n}")).version for n in range(6)] == [2, 1] * 3


@pytest.mark.proves("S7", "L7")
async def test_a_member_that_only_the_table_refuses_hurts_no_other(log: EventLog) -> None:
    """A caller that lies about its stream passes `admit`; the table stops it, and it alone."""
    stream = await begin(log, "T-1")
    stream = await written(log, stream, acquired(plan("merge_pr")), intended("merge_pr"))
    others = [await begin(log, f"N-{n}") for n in range(4)]
    fold = Stream("T-1", stream.version, (await begin(log, "X-1")).state)  # says: never acquired
    units = [Unit(s, (acquired(plan("merge_pr")),)) for s in (*others, fold)]
    answers = await asyncio.gather(*(log.append(u) for u in units), return_exceptions=True)

    assert [type(a) for a in answers] == [Written] * 4 + [InadmissibleError]
    assert (await log.read("T-1")).version == stream.version
    assert log.broken is None


@pytest.mark.proves("L3", "P0")
async def test_nothing_comes_before_opened_and_no_unit_is_empty(log: EventLog) -> None:
    with pytest.raises(InadmissibleError, match="before opened"):
        await log.append(Unit(Stream("T-1"), (acquired(plan("merge_pr")),)))
    with pytest.raises(InadmissibleError, match="without events"):
        await log.append(Unit(Stream("T-1"), ()))
    assert (await log.read("T-1")).version == 0


@pytest.mark.proves("S3")
@pytest.mark.parametrize("again", ["T-1", "t-1"])
async def test_an_id_is_taken_once_ignoring_case(log: EventLog, again: str) -> None:
    await begin(log, "T-1")
    answer = await asyncio.gather(log.append(Unit(Stream(again), (opened(),))), return_exceptions=True)
    assert isinstance(answer[0], (TaskExistsError, Moved))
    with pytest.raises(TaskExistsError):
        await log.append(Unit(Stream("t-1"), (opened(),)))
    with pytest.raises(TaskExistsError):  # who pretends to know the version is not believed either
        await log.append(Unit(Stream("T-1", version=1), (opened(),)))
    assert len(await every_event(log)) == 2


@pytest.mark.proves("S3", "S7")
async def test_ids_that_differ_in_case_only_exclude_each_other_within_one_batch(log: EventLog) -> None:
    answers = await asyncio.gather(
        *(log.append(Unit(Stream(t), (opened(),))) for t in ("A-1", "a-1", "A-2")), return_exceptions=True
    )
    assert [type(a) for a in answers] == [Written, TaskExistsError, Written]


@pytest.mark.proves("E2", "E13", "I8")
async def test_a_lane_holds_one_open_intent_until_its_task_moves_on(log: EventLog) -> None:
    lane = "merge:acme/widgets/main"
    edge = plan("merge_pr", lane=lane)
    first, second = [await written(log, await begin(log, t), acquired(edge)) for t in ("T-1", "T-2")]
    first = await written(log, first, intended("merge_pr", lane=lane))
    blocked = Unit(second, (intended("merge_pr", lane=lane),))

    assert await log.append(blocked) == Taken("T-1")
    assert (await log.read("T-2")).version == 2

    seen = Draft(Applied("apply"), 1, 1, "worker", "merge_pr", 1)
    moved = Draft(StageMoved("deploy-staging", "deploy", final=True), 1, 1, "worker")
    await written(log, first, seen, moved, Draft(Released(Ending.ADVANCED), 1, 1, "worker"))
    assert isinstance(await log.append(blocked), Written)


@pytest.mark.proves("E13", "I8")
async def test_two_that_reach_for_a_lane_in_one_batch_do_not_both_get_it(log: EventLog) -> None:
    lane = "deploy:production"
    edge = plan("merge_pr", lane=lane)
    streams = [await written(log, await begin(log, f"T-{n}"), acquired(edge)) for n in range(5)]
    answers = await asyncio.gather(*(log.append(Unit(s, (intended("merge_pr", lane=lane),))) for s in streams))
    assert [type(a) for a in answers] == [Written] + [Taken] * 4


@pytest.mark.proves("E13")
async def test_a_lane_is_still_held_after_a_restart(store: Store, tmp_path: Path) -> None:
    lane, edge = "deploy:production", plan("merge_pr", lane="deploy:production")
    log = await store(tmp_path)
    await written(log, await begin(log, "T-1"), acquired(edge), intended("merge_pr", lane=lane))
    second = await written(log, await begin(log, "T-2"), acquired(edge))
    await log.close()

    again = await store(tmp_path)
    assert await again.append(Unit(second, (intended("merge_pr", lane=lane),))) == Taken("T-1")
    await again.close()


@pytest.mark.proves("S7", "R80")
async def test_cancelling_a_caller_never_tears_a_unit_and_leaves_no_stale_reading(log: EventLog) -> None:
    """Whoever reads after the cancelled call has ended sees the unit whole, or not at all and never will."""
    for n in range(30):
        stream = await begin(log, f"T-{n}")
        unit = Unit(stream, (acquired(plan("merge_pr")), intended("merge_pr")))
        call = asyncio.create_task(log.append(unit))
        for _ in range(n % 4):
            await asyncio.sleep(0)
        call.cancel()
        ended = await asyncio.gather(call, return_exceptions=True)
        assert isinstance(ended[0], (asyncio.CancelledError, Written))

        after = await log.read(f"T-{n}")
        assert after.version in (1, 3)
        again = (
            await log.append(Unit(after, (Draft(Released(Ending.LOST), after.state.epoch, 1, "worker"),)))
            if (after.version == 3)
            else Written(after, ())
        )
        assert isinstance(again, Written)  # what was read is what is there


@pytest.mark.proves("R81")
async def test_closing_answers_everybody_and_nobody_who_comes_later_waits(store: Store, tmp_path: Path) -> None:
    log = await store(tmp_path)
    calls = [asyncio.create_task(log.append(Unit(Stream(f"T-{n}"), (opened(),)))) for n in range(50)]
    await asyncio.sleep(0)
    await asyncio.gather(log.close(), log.close())
    answers = await asyncio.gather(*calls, return_exceptions=True)
    kept = sum(isinstance(a, Written) for a in answers)
    assert all(isinstance(a, (Written, StoreUnavailableError)) for a in answers)

    for _ in range(2):
        with pytest.raises(StoreUnavailableError, match="closed"):
            await log.append(Unit(Stream("late"), (opened(),)))
    with pytest.raises(StoreUnavailableError):
        await log.events()

    again = await store(tmp_path)
    assert len(await every_event(again)) == kept + 1
    await again.close()


@pytest.mark.proves("L1")
async def test_events_are_read_page_by_page_by_task_and_by_position(log: EventLog) -> None:
    for n in range(5):
        await written(log, await begin(log, f"T-{n}"), acquired(plan("merge_pr")), intended("merge_pr"))
    whole = await every_event(log)

    paged: list[Event] = []
    while page := await log.events(after=paged[-1].position if paged else 0, limit=4):
        assert len(page) <= 4
        paged.extend(page)
    assert paged == list(whole)

    mine = await log.events(task="T-3")
    assert [e.kind for e in mine] == [Kind.OPENED, Kind.ACQUIRED, Kind.INTENDED]
    assert await log.events(task="T-3", after=2) == mine[2:]
    assert await log.events(task="T-3", limit=1) == mine[:1]
    assert await log.events(task="t-3") == []
    assert fold_stream("T-3", mine) == await log.read("T-3")


@pytest.mark.proves("L3")
async def test_a_stream_is_read_whole_however_many_pages_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that is not full was the last one; one that is may have another behind it, or nothing."""
    monkeypatch.setattr("journal.log.sqlite.PAGE", 2)
    log = await sqlite_log(tmp_path)
    streams = [await begin(log, f"T-{length}") for length in range(1, 6)]
    for number, stream in enumerate(streams):
        for _ in range(number):
            streams[number] = await written(log, streams[number], Draft(HazardFound("odd"), 0, 1))
        assert streams[number].version == stream.version + number
    await log.close()
    again = await sqlite_log(tmp_path)
    assert [await again.read(stream.task) for stream in streams] == streams


@pytest.mark.proves("L6")
async def test_a_secret_is_never_stored_however_it_is_written(log: EventLog, tmp_path: Path) -> None:
    stream = await written(log, await begin(log, "T-1"), acquired(plan("merge_pr")), intended("merge_pr"))
    seen = (("error", f"401 for https://x:{SECRET}@host"), ("word", SECRET))
    stream = await written(log, stream, Draft(Applied("apply", seen), 1, 1, "worker", "merge_pr", 1))

    assert dict(stream.outcomes["merge_pr"]) == {"error": "401 for https://x:[redacted]@host", "word": "[redacted]"}
    assert await log.read("T-1") == fold_stream("T-1", await log.events(task="T-1")) == stream
    await log.close()
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert b"word-1" not in file.read_bytes()


@pytest.mark.proves("L6", "TR-9")
@pytest.mark.parametrize(
    ("seen", "why"),
    [
        ((("text", "x" * BODY_LIMIT),), "the limit is 65536"),
        ((("name", "caf\udce9"),), "not encodable"),
        ((("ratio", 0.5),), "type float"),
        ((("list", ["a"]),), "type list"),
        ((("path", Path("/x")),), "Path"),
        ((("number", 2**63),), "64 bits"),
        (((7, "x"), ((), "y")), "type tuple"),
    ],
    ids=["too large", "a lone surrogate", "a float", "a list", "an object", "a wide integer", "a name that is no text"],
)
async def test_what_could_not_be_read_back_is_refused_alone_before_it_is_stored(
    log: EventLog, seen: tuple[tuple[str, object], ...], why: str
) -> None:
    stream = await written(log, await begin(log, "T-1"), acquired(plan("merge_pr")), intended("merge_pr"))
    odd = Unit(stream, (Draft(Applied("apply", seen), 1, 1, "worker", "merge_pr", 1),))  # type: ignore[arg-type]
    answers = await asyncio.gather(log.append(odd), begin(log, "T-2"), return_exceptions=True)

    assert isinstance(answers[0], InvalidInputError)
    assert why in str(answers[0])
    assert isinstance(answers[1], Stream)
    assert await log.read("T-1") == stream


@pytest.mark.proves("O3", "FR-3", "FR-5")
async def test_deferrals_are_counted_per_actor_and_task_and_are_no_events(log: EventLog) -> None:
    await begin(log, "T-1")
    for _ in range(3):
        log.count("deferred", "reaper", "T-1")
    log.count("deferred", "webhook", "T-1")
    await begin(log, "T-2")  # answered after whatever was put before it

    rows = await log.query("SELECT name, actor, task, count FROM journal_counters ORDER BY actor")
    assert [tuple(r) for r in rows] == [("deferred", "reaper", "T-1", 3), ("deferred", "webhook", "T-1", 1)]
    assert len(await every_event(log)) == 3


@pytest.mark.proves("I12", "I13")
async def test_a_stage_move_names_the_outcome_it_rests_on(log: EventLog) -> None:
    stream = await written(log, await begin(log, "T-1"), acquired(plan("merge_pr")), intended("merge_pr"))
    moved = Draft(StageMoved("deploy-staging", "deploy", final=True, because=999), 1, 1, "worker")
    await written(
        log,
        stream,
        Draft(Applied("apply"), 1, 1, "worker", "merge_pr", 1),
        moved,
        Draft(Released(Ending.ADVANCED), 1, 1, "worker"),
    )
    events = await log.events(task="T-1")
    applied = next(e for e in events if e.kind is Kind.APPLIED)
    move = next(e.draft.body for e in events if e.kind is Kind.STAGE_MOVED)
    assert isinstance(move, StageMoved)
    assert move.because == applied.position


# -- SQLite only ----------------------------------------------------------------------------------------------------


@pytest.mark.proves("S7")
async def test_a_hundred_concurrent_appends_share_a_few_commits(tmp_path: Path) -> None:
    log = await sqlite_log(tmp_path)
    assert log.writer is not None
    before = log.writer.batches
    await asyncio.gather(*(log.append(Unit(Stream(f"T-{n}"), (opened(),))) for n in range(100)))
    assert 1 <= log.writer.batches - before <= 10
    assert log.writer.events == 100
    await log.close()


@pytest.mark.proves("S7")
async def test_a_listener_hears_what_is_durable_and_its_bug_is_its_own(tmp_path: Path) -> None:
    log = await sqlite_log(tmp_path)
    assert log.writer is not None
    heard: list[int] = []

    def listen(events: Sequence[Event]) -> None:
        heard.extend(e.position for e in events)
        raise RuntimeError("a bug in a listener")

    log.writer.on_events = listen
    assert isinstance(await log.append(Unit(Stream("T-1"), (opened(),))), Written)
    assert isinstance(await log.append(Unit(Stream("T-2"), (opened(),))), Written)
    await log.close()  # joins the thread
    assert heard == [2, 3]


@pytest.mark.proves("S4")
async def test_a_log_without_a_writer_reads_and_refuses_to_append(tmp_path: Path) -> None:
    writer = await sqlite_log(tmp_path)
    reader = await sqlite_log(tmp_path, write=False)
    await writer.append(Unit(Stream("T-1"), (opened(),)))

    assert (await reader.read("T-1")).version == 1
    assert reader.journal_id == writer.journal_id != ""
    with pytest.raises(NotWriterError):
        await reader.append(Unit(Stream("T-2"), (opened(),)))
    await reader.close()
    await writer.close()


@pytest.mark.proves("S4", "L7")
async def test_a_second_writer_past_the_lock_stops_the_first_for_good(tmp_path: Path) -> None:
    """The lock makes this impossible; if it happens all the same, the chain must not fork."""
    log = await sqlite_log(tmp_path)
    other = await sqlite_log(tmp_path)
    await other.append(Unit(Stream("T-1"), (opened(),)))
    answers = await asyncio.gather(
        *(log.append(Unit(Stream(f"N-{n}"), (opened(),))) for n in range(3)), return_exceptions=True
    )
    assert all(isinstance(a, JournalError) for a in answers)
    assert "somebody else wrote" in str(log.broken)
    assert [e.task for e in await other.events()] == ["", "T-1"]
    await other.close()
    await log.close()


@pytest.mark.proves("S2", "R77", "R78")
async def test_a_foreign_write_lock_delays_an_append_and_never_the_event_loop(tmp_path: Path) -> None:
    log = await sqlite_log(tmp_path)
    with closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as foreign:
        foreign.execute("BEGIN IMMEDIATE")
        call = asyncio.create_task(log.append(Unit(Stream("T-1"), (opened(),))))
        for _ in range(20):  # the loop turns and readers read while the writer waits
            await log.events()
        assert not call.done()
        foreign.execute("ROLLBACK")
    assert isinstance(await call, Written)
    await log.close()


@pytest.mark.proves("L4", "X1")
async def test_an_unknown_kind_and_a_newer_shape_are_not_guessed_at(tmp_path: Path) -> None:
    log = await sqlite_log(tmp_path)
    await log.append(Unit(Stream("T-1"), (opened(),)))
    await log.close()
    with closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as db:
        db.execute(
            "INSERT INTO journal_events SELECT 3, 'T-1', 2, 1, 0, 'teleported', 1, '', 0, '', 'x', '{}', body_hash, 5, "
            "hash, hash FROM journal_events WHERE position = 2"
        )
    again = await sqlite_log(tmp_path)
    stream = await again.read("T-1")
    assert (stream.state.hold, stream.state.unread) == (Hold.PARKED, True) and "teleported" in stream.reason
    with pytest.raises(JournalError, match="newer version"):
        await again.append(Unit(stream, (acquired(plan("merge_pr")),)))
    await again.close()


@pytest.mark.proves("L5")
async def test_the_order_of_the_log_owes_nothing_to_the_clock(tmp_path: Path) -> None:
    clock = StandingClock()
    log = await SqliteLog.open(tmp_path / "journal.db", write=True, clock=clock, new_id=lambda: "ab" * 16)
    OPEN.append(log)
    for n, jump in enumerate((0, 86_400_000_000, -172_800_000_000, 5)):
        clock.us += jump
        await log.append(Unit(Stream(f"T-{n}"), (Draft(Opened(*_values()), generation=1, actor="operator"),)))
    events = await log.events()
    assert [e.task for e in events] == ["", "T-0", "T-1", "T-2", "T-3"]
    assert sorted(e.at for e in events) != [e.at for e in events]
    await log.close()


def _values() -> tuple[str, str, str, str, int, str]:
    return OPENED.repo, OPENED.branch, OPENED.base, OPENED.head, OPENED.pr, OPENED.stage


@pytest.mark.proves("S7", "R80", "TR-2")
async def test_a_cancelled_caller_learns_of_it_only_when_its_unit_is_decided(tmp_path: Path) -> None:
    """Else whoever takes the task next reads a stream that is about to move under it."""
    log = await sqlite_log(tmp_path)
    stream = await begin(log, "T-1")
    with closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as foreign:
        foreign.execute("BEGIN IMMEDIATE")  # the writer waits, so the unit stays undecided as long as we like
        call = asyncio.create_task(log.append(Unit(stream, (acquired(plan("merge_pr")), intended("merge_pr")))))
        await log.events()
        call.cancel()
        await log.events()
        assert not call.done()
        foreign.execute("ROLLBACK")
    assert isinstance((await asyncio.gather(call, return_exceptions=True))[0], asyncio.CancelledError)
    assert (await log.read("T-1")).version == 3
    await log.close()


@pytest.mark.proves("R73", "NFR-4")
async def test_whoever_has_seen_an_event_reads_no_stream_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by killing a service in bad weather: a publisher woken by a commit showed the stage before it, for ever."""
    log = await sqlite_log(tmp_path)
    stream = await begin(log, "T-1")
    assert log.writer is not None
    committed, told, append = asyncio.Event(), asyncio.Event(), log.writer.append

    async def slow(unit: Unit) -> Answer:
        answer = await append(unit)
        committed.set()
        await told.wait()  # a busy loop: the commit is there, and its caller has not been told
        return answer

    monkeypatch.setattr(log.writer, "append", slow)
    writing = asyncio.create_task(log.append(Unit(stream, (acquired(plan("merge_pr")),))))
    await committed.wait()
    seen = (await log.events(after=0))[-1]
    assert (await log.read("T-1")).version == seen.version == stream.version + 1
    told.set()
    assert isinstance(await writing, Written)
    assert (await log.read("T-1")).version == seen.version
