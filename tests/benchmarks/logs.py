"""
Long logs, made quickly: whole lives of tasks, placed and chained by the product's own code, in large transactions.

While a file is made it has no index, no trigger and no flush; it gets the product's own ones before anybody measures.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from journal.clock import SystemClock, SystemIds
from journal.events import Acquired, Applied, Draft, Event, Intended, Opened, Owner, Released, StageMoved
from journal.log.rows import INSERT, place, to_row
from journal.log.schema import GUARDS, migrate
from journal.log.writer import Writer
from journal.plan import EdgePlan, StepPlan, intern_plan
from journal.projection import store_checkpoints
from journal.words import Ending, Guard, evidence
from projections import all_views
from tests.benchmarks.scenery import commit_of

OPEN = 200
"""Tasks that are not over, in every file."""

EVENTS_A_TASK = 10
_TOGETHER = 20_000  # events in one transaction
_OWNER = Owner("0123456789ab.1", "0123456789abcdef0123456789abcdef", "host-1", 4711, "", 99)
_PLAN = intern_plan(
    EdgePlan(
        "analysis",
        "done",
        tuple(StepPlan(name, Guard.EXCLUSIVE) for name in ("merge_pr", "ratchet", "rebuild")),
        final=True,
    )
)
_LOOKS = dict(
    evidence(base="main", behind=0, checks="all of 14 passed", remote="origin", source="a fresh fetch, then cat-file")
)


def name_of(number: int) -> str:
    """Id of a task in the file; the last `OPEN` ones are open."""
    return f"OLD-{number}"


def make_log(path: Path, tasks: int) -> None:
    """A journal with so many tasks of ten events each, all but the last 200 done, views included."""
    Writer(path, clock=SystemClock(), new_id=SystemIds().instance, projections=all_views())._db.close()
    db = sqlite3.connect(path, isolation_level=None)
    for pragma in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -200000", "locking_mode = EXCLUSIVE"):
        db.execute(f"PRAGMA {pragma}")
    kept = db.execute("SELECT type, name, sql FROM sqlite_schema WHERE tbl_name = 'journal_events'").fetchall()
    guards = [guard for guard in kept if guard[1] in GUARDS]
    for kind, name, _ in guards:
        db.execute(f"DROP {kind} {name}")
    _fill(db, tasks)
    db.execute("BEGIN")
    for _, _, sql in guards:
        db.execute(sql)
    db.execute("COMMIT")
    migrate(db)
    db.close()


def _fill(db: sqlite3.Connection, tasks: int) -> None:
    views = all_views()
    position, before = db.execute("SELECT position, hash FROM journal_events").fetchone()
    facts, at = _facts(tasks), 1_790_000_000_000_000
    while some := list(islice(facts, _TOGETHER)):
        events: list[Event] = []
        for task, version, draft in some:
            position += 1
            at += 1000
            event = place(task, draft, position=position, version=version, at=at, prev_hash=before, basis=position - 1)
            before = event.hash
            events.append(event)
        db.execute("BEGIN")
        db.executemany(INSERT, map(to_row, events))
        for view in views:
            view.apply(db, events)
        store_checkpoints(db, views, events[-1])
        db.execute("COMMIT")


def _facts(tasks: int) -> Iterator[tuple[str, int, Draft]]:
    """Task, version and what happened: as many tasks as are open at the end are opened first, then go their way."""
    for first in range(0, tasks, OPEN):
        lives = [_life(n, done=n < tasks - OPEN) for n in range(first, min(first + OPEN, tasks))]
        yield from ((task, 1, drafts[0]) for task, drafts in lives)
        for task, drafts in lives:
            yield from ((task, version, draft) for version, draft in enumerate(drafts[1:], 2))


def _life(number: int, *, done: bool) -> tuple[str, Sequence[Draft]]:
    task = name_of(number)
    head = commit_of(task)
    opened = Draft(
        Opened("acme/widgets", f"feature/{task.lower()}", "main", head, number, "analysis"), 0, 1, "operator"
    )
    return task, [opened, *(_edge(task, head) if done else ())]


def _edge(task: str, head: str) -> Iterator[Draft]:
    yield Draft(Acquired(_OWNER, _PLAN), 1, 1, "worker")
    for step in _PLAN.steps:
        seen = evidence(head=head, key=f"{task}/1/{step.name}", **_LOOKS)
        yield Draft(Intended(step.guard, True, "", 300_000, seen), 1, 1, "worker", step.name, 1)
        applied = Applied("apply", evidence(commit=head, cites=f"123456:{head}{head[:24]}", **dict(seen)))
        yield Draft(applied, 1, 1, "worker", step.name, 1)
    yield Draft(StageMoved("analysis", "done", final=True), 1, 1, "worker")
    yield Draft(Released(Ending.ADVANCED), 1, 1, "worker")


class Logs:
    """The files of one run, each made once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, events: int) -> Path:
        """A file of about so many events."""
        path = self._folder / f"log-{events}.db"
        if not path.exists():
            make_log(path, max(events // EVENTS_A_TASK, OPEN + 1))
        return path
