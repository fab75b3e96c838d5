from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.chain import GENESIS
from journal.errors import DamagedError
from journal.events import Acquired, Canceled, Draft, Event, Opened, Rejected, Released
from journal.log.rows import INSERT, as_far_as_known, place, to_row
from journal.log.schema import migrate, statements
from journal.projection import catch_up
from journal.state import TaskState
from journal.stream import Stream, fold_stream
from journal.words import Hold
from projections.as_of import position_at, queue_at_offline
from projections.base import answer
from projections.differences import difference_offline
from projections.events import events_of
from projections.ownership import held_tasks, parked_tasks, reclaims
from projections.queue import all_tasks, due_tasks, ended_count, next_look, one_task, open_tasks, snapshot, stage_counts
from projections.tasks import TasksView, stored_rows
from tests.property.histories import TASKS, History, histories


def database() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None)
    migrate(db)
    for statement in statements(TasksView.script):
        db.execute(statement)
    return db


def with_events(events: Sequence[Event], batches: Iterable[Sequence[Event]] | None = None) -> sqlite3.Connection:
    """A database with these events, taken in by the view in these batches."""
    db, view = database(), TasksView()
    db.executemany(INSERT, [to_row(e) for e in events])
    for batch in [events] if batches is None else batches:
        view.apply(db, batch)
    return db


def dump(db: sqlite3.Connection) -> dict[str, list[Any]]:
    select = "SELECT * FROM {} ORDER BY 1, 2"
    return {table: db.execute(select.format(table)).fetchall() for table in TasksView.tables}


def streams(events: Sequence[Event]) -> dict[str, Stream]:
    by_task: dict[str, list[Event]] = {}
    for e in events:
        if e.task:
            by_task.setdefault(e.task, []).append(e)
    return {task: fold_stream(task, own) for task, own in by_task.items()}


def is_open(s: TaskState) -> bool:
    return s.hold not in (Hold.DONE, Hold.CANCELED)


# -- laws -------------------------------------------------------------------------------------------------------------


@pytest.mark.proves("L1", "I24")
@given(histories(), st.lists(st.integers(1, 9), max_size=40))
def test_where_batches_and_checkpoints_lie_leaves_no_trace(history: History, sizes: list[int]) -> None:
    """Any cuts, and a view that forgets its cache at each: the tables hold the same bytes as after one replay."""
    events, cut, db, at = history.events, iter(sizes), database(), 0
    while at < len(events):
        size = next(cut, 5)
        TasksView().apply(db, events[at : at + size])  # a new view remembers nothing: it continues from the tables
        at += size
    assert dump(db) == dump(with_events(events))


@pytest.mark.proves("L1", "R94")
@given(histories())
def test_a_view_made_anew_without_what_left_no_trace_holds_the_same_bytes(history: History) -> None:
    """The oracle is the fold of every event; attempts of tasks that have ended are not even read."""
    db = with_events(history.events)
    kept = dump(db)
    catch_up(db, [TasksView()], rebuild=True)
    assert dump(db) == kept
    TasksView().apply(db, history.events)  # every row knows how far it reaches
    assert dump(db) == kept


def a_canceled_task(late: Draft) -> list[Event]:
    opened = Draft(Opened("acme/a", "f", "main", "", 1, "review"), 0, 1, "operator")
    events: list[Event] = []
    for version, draft in enumerate((opened, late, Draft(Canceled("enough"), 0, 1), late), 1):
        before = events[-1].hash if events else GENESIS
        events.append(place("T-1", draft, position=version, version=version, at=1, prev_hash=before, basis=0))
    return events


@pytest.mark.proves("R94")
def test_an_outcome_that_no_rule_allows_after_the_end_is_taken_in_by_a_view_made_anew() -> None:
    """No writer writes it; were it in a log, the next event would still find the row at its version."""
    db = with_events(a_canceled_task(Draft(Rejected(), 0, 1, "w", "merge")))
    kept = dump(db)
    catch_up(db, [TasksView()], rebuild=True)
    assert dump(db) == kept


@pytest.mark.proves("L4")
def test_an_outcome_of_a_newer_version_holds_its_task_in_a_view_made_anew_too() -> None:
    """Whatever its kind: what came after it is not understood here, so the task has not ended here either."""
    events = a_canceled_task(Draft(Rejected(), 0, 1, "w", "merge"))[:3]
    rows = [(*row[:6], 99 if row[5] == "rejected" else row[6], *row[7:]) for row in map(to_row, events)]
    db = database()
    db.executemany(INSERT, rows)
    TasksView().apply(db, [as_far_as_known(row) for row in rows])
    kept = dump(db)
    catch_up(db, [TasksView()], rebuild=True)
    assert dump(db) == kept
    assert json.loads(answer(db, one_task("T-1")))["status"] == "parked"


@pytest.mark.proves("R94")
@given(histories(30), st.integers(0, 30))
def test_events_that_were_taken_already_change_nothing_and_a_gap_is_refused(history: History, cut: int) -> None:
    events = history.events
    once = dump(with_events(events))
    assert dump(with_events(events, [events, events, events[cut:]])) == once
    own = [e for e in events if e.task == TASKS[0]]
    if len(own) >= 3:
        db, view = database(), TasksView()
        view.apply(db, own[:1])
        with pytest.raises(DamagedError, match="rebuild"):
            view.apply(db, own[2:])


# -- the oracle: the core's own fold ----------------------------------------------------------------------------------


@pytest.mark.proves("L1", "I24", "FR-6")
@given(histories())
def test_a_stored_row_is_what_the_cores_fold_says(history: History) -> None:
    db = with_events(history.events)
    told = streams(history.events)
    stored = stored_rows(db, told)
    assert [(len(told),)] == db.execute("SELECT count(*) FROM journal_view_tasks").fetchall()
    assert stored.keys() == told.keys()
    for task, stream in told.items():
        row, state = stored[task], stream.state
        if is_open(state):
            assert row.state == state
        else:
            kept = {name: getattr(state, name) for name in ("stage", "generation", "epoch", "owner", "hold", "cancel")}
            assert row.state == TaskState(**kept)
        assert (row.version, row.head, row.repo) == (stream.version, stream.subject.head, stream.subject.repo)
        assert row.owner.run == state.owner
        data = json.loads(answer(db, one_task(task)))
        look = look_of([e for e in history.events if e.task == task])
        assert (row.look_us, data["look_us"]) == (look, look)
        assert data["status"] == status_of(stream, look)
        assert data["in_doubt"] is state.open
        entered = [e for e in history.events if e.task == task and e.kind in ENTERING][-1]
        assert (data["stage_position"], data["stage_since_us"]) == (entered.position, entered.at)


ENTERING = ("opened", "stage_moved", "head_changed", "reopened")


def look_of(events: Sequence[Event]) -> int:
    """When the next look is due: said by the last release, forgotten when somebody looks or a person asks."""
    look = 0
    for e in events:
        if isinstance(body := e.draft.body, Released):
            look = e.at + 1000 * body.look_ms if body.look_ms else 0
        elif e.kind in ("acquired", "head_changed", "reopened", "settled", "resumed"):
            look = 0
    return look


def status_of(stream: Stream, look: int) -> str:
    s = stream.state
    if s.hold is not Hold.NONE:
        return s.hold.value
    handed = s.plan is not None and s.plan.source == s.stage == "deploy"
    if handed and ("deploy_init" in s.closed or "deploy_init" in dict(s.intents)):
        return "handed_over"
    if s.owner:
        return "owned"
    return "waiting" if look else "free"


@pytest.mark.proves("FR-6", "O6")
@given(histories())
def test_counts_holders_and_parked_are_what_a_full_scan_finds(history: History) -> None:
    db, told = with_events(history.events), streams(history.events)
    opens = {t: s for t, s in told.items() if is_open(s.state)}
    counts: dict[str, int] = {}
    for s in opens.values():
        counts[s.state.stage] = counts.get(s.state.stage, 0) + 1
    assert answer(db, stage_counts()) == counts
    assert answer(db, ended_count()) == len(told) - len(opens)
    assert {h.task for h in answer(db, held_tasks())} == {t for t, s in told.items() if s.state.owner}
    assert {p.task for p in answer(db, parked_tasks())} == {t for t, s in told.items() if s.state.hold is Hold.PARKED}
    causes = [e.draft.body.cause.value for e in history.events if isinstance(e.draft.body, Acquired)]
    assert answer(db, reclaims()) == {c: causes.count(c) for c in ("gone", "budget", "operator")}
    whole = answer(db, snapshot(history.at, 10))
    assert json.loads(whole.counts) == counts
    assert {t["task"] for t in json.loads(whole.page.tasks)} == opens.keys()
    assert whole.position == len(history.events)


@pytest.mark.proves("O1", "O2")
@given(histories())
def test_every_open_task_without_a_hold_is_due_now_or_at_its_look(history: History) -> None:
    """None is forgotten and none is driven early; order is stage entry."""
    db, told = with_events(history.events), streams(history.events)
    driven = {t for t, s in told.items() if s.state.hold is Hold.NONE}
    now, later = history.at, history.at + 10_000_000
    early = answer(db, due_tasks(now, 10))
    late = answer(db, due_tasks(later, 10))
    assert {d.task for d in late} == driven
    assert {d.task for d in early} <= driven
    assert [d.stage_position for d in late] == sorted(d.stage_position for d in late)
    for due in early:
        assert due.look_us <= now
    for due in late:
        assert due.task in {d.task for d in answer(db, due_tasks(due.look_us, 10))}
        assert not due.look_us or due.task not in {d.task for d in answer(db, due_tasks(due.look_us - 1, 10))}
    waiting = [d.look_us for d in late if d.look_us > now]
    assert answer(db, next_look(now)) == (min(waiting) if waiting else 0)
    for due in late:
        state = told[due.task].state
        assert (due.owned, due.begun) == (bool(state.owner), state.begun)
    chosen = answer(db, due_tasks(later, 10, stages=("review",)))
    assert {d.task for d in late if d.stage == "review" or d.owned or d.begun} <= {d.task for d in chosen}
    assert {d.task for d in chosen if not (d.owned or d.begun or d.look_us)} <= {
        d.task for d in late if d.stage == "review"
    }


# -- looking back -----------------------------------------------------------------------------------------------------


@given(histories(40))
def test_the_queue_as_of_any_position_is_the_queue_of_that_prefix(history: History) -> None:
    db, growing, view = with_events(history.events), database(), TasksView()
    assert queue_at_offline(db, 0, limit=10).tasks == ()
    for event in history.events:
        view.apply(growing, [event])
        page = queue_at_offline(db, event.position, limit=10)
        then = answer(growing, open_tasks(10))
        assert [json.loads(t) for t in page.tasks] == json.loads(then.tasks)
        assert page.counts == answer(growing, stage_counts())


@given(histories(40), st.integers(0, 40), st.integers(0, 40))
def test_what_differs_between_two_points_is_what_their_queues_say(history: History, one: int, other: int) -> None:
    db, (earlier, later) = with_events(history.events), sorted((one, other))
    found = difference_offline(db, one, other, limit=100)

    def standing(position: int) -> dict[str, tuple[str, str]]:
        page = [json.loads(task) for task in queue_at_offline(db, position, limit=100).tasks]
        return {task["task"]: (task["stage"], task["status"]) for task in page}

    was, now = standing(earlier), standing(later)
    expected = {
        task: "opened" if task not in was else "ended" if task not in now
        else "moved" if was[task][0] != now[task][0] else "changed"
        for task in was.keys() | now.keys() if was.get(task) != now.get(task)
    }  # fmt: skip
    assert {c.task: c.change for c in found.changes} == expected
    for change in found.changes:
        assert (change.before, change.after) == (" ".join(was.get(change.task, ())), " ".join(now.get(change.task, ())))
    assert (found.earlier, found.later, found.left_out) == (earlier, later, 0)


@given(histories(40), st.integers(-1, 5_000_000))
def test_a_time_is_the_last_position_not_later(history: History, offset: int) -> None:
    db = with_events(history.events)
    at = history.events[0].at + offset
    expected = sum(e.at <= at for e in history.events)
    assert answer(db, position_at(at)) == expected


@given(histories(40), st.integers(1, 3))
def test_pages_meet_without_gap_or_overlap(history: History, size: int) -> None:
    db = with_events(history.events)
    for listed in (open_tasks, all_tasks):
        whole = json.loads(answer(db, listed(100)).tasks)
        parts, cursor = [], 0
        while True:
            page = answer(db, listed(size, cursor))
            parts += json.loads(page.tasks)
            if not (cursor := page.cursor):
                break
        assert parts == whole


@given(histories(40))
def test_events_as_json_are_the_rows_of_the_table(history: History) -> None:
    db = with_events(history.events)
    for task in TASKS:
        own = [e for e in history.events if e.task == task]
        text, last = answer(db, events_of(task, 0, 1000))
        told = json.loads(text)
        assert [(t["position"], t["hash"], t["body"]) for t in told] == [
            (e.position, e.hash.hex(), json.loads(e.body_text)) for e in own
        ]
        assert last == len(own)
