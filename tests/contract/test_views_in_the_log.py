"""The views where they live: in the file, in the writer's transaction, beside a million finished tasks."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from journal.journal import NewTask
from journal.log.connection import open_reader
from journal.log.schema import statements
from projections.as_of import position_at
from projections.base import Question, answer, ask, checkpoints
from projections.events import events_after, events_of
from projections.lookup import place_of
from projections.ownership import held_tasks, parked_tasks
from projections.queue import all_tasks, due_tasks, next_look, one_task, open_tasks, snapshot, stage_counts
from projections.row import COLUMNS
from projections.stays import ancestors, fork, stays_at
from projections.tasks import TasksView
from tests.contract.http_service import RealService, a_service


def dump(path: Path) -> dict[str, list[Any]]:
    db = open_reader(path)
    select = "SELECT * FROM {} ORDER BY 1, 2"
    try:
        made = [sql for (sql,) in db.execute("SELECT sql FROM sqlite_schema WHERE tbl_name LIKE 'journal_view_%'")]
        assert {statement.rstrip(";") for statement in statements(TasksView.script)} <= set(made)
        return {table: db.execute(select.format(table)).fetchall() for table in TasksView.tables}
    finally:
        db.close()


async def some_work(service: RealService) -> None:
    journal = service.journal
    assert journal is not None
    for n in range(5):
        await journal.open_task(NewTask(f"T-{n}", "acme/widgets", "f"), actor="operator")
    for n in range(4):
        for _ in range(n):
            await journal.advance(f"T-{n}", actor="worker")


@pytest.mark.proves("L1", "R95")
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE journal_projections SET position = position + 1000",
        "UPDATE journal_projections SET hash = zeroblob(32)",
        "UPDATE journal_projections SET version = version + 1",
        "DELETE FROM journal_projections",
        "DROP TABLE journal_view_tasks",
        "DELETE FROM journal_view_tasks; UPDATE journal_projections SET position = 0, hash = zeroblob(32)",
    ],
)
async def test_a_view_of_another_log_or_version_is_rebuilt_to_the_same_bytes_at_opening(
    tmp_path: Path, damage: str
) -> None:
    async with a_service(tmp_path) as service:
        await some_work(service)
    path = tmp_path / "journal.db"
    before = dump(path)
    assert before["journal_view_tasks"]
    db = sqlite3.connect(path, isolation_level=None)
    db.executescript(damage)
    db.close()
    async with a_service(tmp_path):
        pass
    assert dump(path) == before


@pytest.mark.proves("L1")
async def test_views_are_of_the_same_transaction_as_the_log(tmp_path: Path) -> None:
    async with a_service(tmp_path) as service:
        await some_work(service)
        for view in await ask(service.reader, checkpoints()):
            assert view.lag == 0


# -- finished tasks cost a queue nothing ------------------------------------------------------------------------------


def with_done(done: int, live: int = 20) -> sqlite3.Connection:
    """View tables as they stand after many tasks: only some are open."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    for statement in statements(TasksView.script):
        db.execute(statement)
    db.execute("CREATE TABLE journal_events (position INTEGER PRIMARY KEY, at INTEGER NOT NULL)")
    db.execute("CREATE TABLE journal_counters (name TEXT, actor TEXT, task TEXT, count INTEGER, last_at INTEGER)")
    row = dict.fromkeys(COLUMNS, 0) | dict.fromkeys(
        ("repo", "branch", "base", "head", "hold", "run", "actor", "instance", "host", "from_stage", "to_stage", "step",
         "lane", "reason", "alert", "memory"), "")  # fmt: skip
    ended = {"stage": "done", "status": "done", "hold": "done", "open": 0}
    free = {"stage": "review", "status": "free", "hold": "", "open": 1}
    insert = f"INSERT INTO journal_view_tasks VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608
    for n in range(1, done + live + 1):
        # The open ones lie in the middle of the finished ones, as the oldest waiting task does.
        own = free if done // 2 < n <= done // 2 + live else ended
        values = row | own | {"opened": n, "task": f"T-{n}", "repo": "acme/widgets", "stage_position": n}
        db.execute(insert, [values[c] for c in COLUMNS])
    db.execute("INSERT INTO journal_view_stages VALUES ('review', ?, 0), ('done', 0, ?)", (live, done))
    return db


def work(db: sqlite3.Connection, question: Question[Any]) -> int:
    """Instructions of SQLite's machine that a question takes: a measure without noise."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    db.set_progress_handler(count, 1)
    answer(db, question)
    db.set_progress_handler(None, 1)
    return steps


CHEAP: dict[str, Question[Any]] = {
    "snapshot": snapshot(1, 10),
    "snapshot of a repository": snapshot(1, 10, repo="acme/other"),
    "open": open_tasks(10),
    "due": due_tasks(1, 10),
    "due in some stages": due_tasks(1, 10, stages=("review",)),
    "next look": next_look(1),
    "held": held_tasks(),
    "parked": parked_tasks(),
    "counts": stage_counts(),
    "one": one_task("T-7"),
    "place": place_of("T-7"),
    "all": all_tasks(10),
    "all parked": all_tasks(10, status="parked"),
    "all in a stage": all_tasks(10, stage="development"),
    "all of a repository": all_tasks(10, repo="acme/other"),
}


@pytest.mark.proves("NFR-5", "O6")
@pytest.mark.parametrize("name", CHEAP)
def test_finished_tasks_cost_a_question_nothing(name: str) -> None:
    """The same instructions, give or take a level of a tree, beside 100 finished tasks and beside 5,000."""
    few, many = work(with_done(100), CHEAP[name]), work(with_done(5_000), CHEAP[name])
    assert many <= few + 20


def test_looking_back_costs_the_same_at_any_length_of_history() -> None:
    """Stays are asked for at their own ancestors only; a scan would take 50 times the work."""

    def history(stays: int) -> sqlite3.Connection:
        db = with_done(10)
        ended = [(3 * n, 3 * n + 3, fork(3 * n, 3 * n + 2)) for n in range(1, stays)]
        db.executemany("INSERT INTO journal_view_stays VALUES (1, ?, ?, ?, 'review')", ended)
        return db

    few, many = work(history(100), stays_at(150)), work(history(5_000), stays_at(7_500))
    assert many <= few * 1.5


def test_a_stay_hangs_at_exactly_one_ancestor_of_every_position_it_covers() -> None:
    for first in range(1, 40):
        for last in range(first, 40):
            node = fork(first, last)
            assert first <= node <= last
            for position in range(1, 45):
                found = [n for n in ancestors(position, 63) if n == node]
                assert len(found) == 1 or not first <= position <= last


def test_a_time_is_found_by_halving() -> None:
    def log(events: int) -> sqlite3.Connection:
        db = with_done(1)
        db.executemany("INSERT INTO journal_events VALUES (?, ?)", [(n, n * 10) for n in range(1, events)])
        return db

    assert answer(log(1000), position_at(5_005)) == 500
    assert work(log(20_000), position_at(5_005)) <= work(log(1_000), position_at(5_005)) * 2


async def test_events_are_read_by_index_only(tmp_path: Path) -> None:
    async with a_service(tmp_path) as service:
        for question in (events_of("T-1", 3, 10), events_after(3, 10), events_after(3, 10, "T-1")):
            plan = await service.reader.query("EXPLAIN QUERY PLAN " + question.sql, question.parameters)
            assert not [step for *_, step in plan if step.startswith("SCAN journal_events")]
