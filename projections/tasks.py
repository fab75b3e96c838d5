"""
The view of tasks: one row each, kept in the writer's transaction, the open ones found by a partial index (L1, P8).

Done tasks stay in the table and out of every index that a queue reads, so a million of them cost it nothing.
"""

# Statements are made of this module's own constants; every value is bound.
# ruff: noqa: S608

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import repeat

import orjson

from journal.events import Acquired, Canceled, HeadChanged, Opened, Reopened, StageMoved
from journal.plan import EdgePlan, plan_from_text, plan_text
from journal.projection import Past
from journal.state import TaskState
from journal.words import Cause
from projections import stays
from projections.as_of import row_of
from projections.row import ATTEMPTING, COLUMNS, MEMORY, QUIET, TaskRow, load, store, store_quiet

MOVING = frozenset({Opened, StageMoved, HeadChanged, Reopened, Canceled})
"""Bodies after which a task may be in another stage, or open no longer."""

CACHED_ROWS = 4096
"""Rows kept between batches; one that is not there is read back, whatever its history."""

_TYPES = {
    "opened": "INTEGER PRIMARY KEY",
    "task": "TEXT NOT NULL UNIQUE",
}
_TEXTS = frozenset(
    {"repo", "branch", "base", "head", "stage", "status", "hold", "run", "actor", "instance", "host", "from_stage",
     "to_stage", "step", "lane", "reason", "alert", "memory"}
)  # fmt: skip

_TABLE = ",\n    ".join(f"{c} {_TYPES.get(c, 'TEXT NOT NULL' if c in _TEXTS else 'INTEGER NOT NULL')}" for c in COLUMNS)

SCRIPT = f"""
{stays.SCRIPT}
CREATE TABLE journal_view_tasks (
    {_TABLE}
) STRICT;
CREATE INDEX journal_view_tasks_open ON journal_view_tasks (stage_position) WHERE open = 1;
CREATE INDEX journal_view_tasks_due ON journal_view_tasks (stage_position) WHERE hold = '';
CREATE INDEX journal_view_tasks_owned ON journal_view_tasks (acquired_us) WHERE run <> '';
CREATE INDEX journal_view_tasks_parked ON journal_view_tasks (parked_us) WHERE hold = 'parked';
CREATE INDEX journal_view_tasks_by_repo ON journal_view_tasks (repo, opened);
CREATE INDEX journal_view_tasks_by_stage ON journal_view_tasks (stage, opened);
CREATE TABLE journal_view_plans (opened INTEGER PRIMARY KEY, plan TEXT NOT NULL) STRICT;
CREATE TABLE journal_view_stages (
    stage TEXT PRIMARY KEY, open INTEGER NOT NULL, ended INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE journal_view_reclaims (
    cause TEXT PRIMARY KEY, count INTEGER NOT NULL, last_us INTEGER NOT NULL, last_task TEXT NOT NULL
) STRICT, WITHOUT ROWID;
"""

_SELECT = (
    f"SELECT {', '.join(f't.{c}' for c in COLUMNS)}, coalesce(p.plan, '') FROM json_each(?) "
    "CROSS JOIN journal_view_tasks AS t ON t.task = value LEFT JOIN journal_view_plans AS p ON p.opened = t.opened"
)
_CHANGING = [c for c in COLUMNS if c not in ("opened", "task", "repo", "branch", "base", "pr", "opened_us")]
_UPSERT = (
    f"INSERT INTO journal_view_tasks VALUES ({', '.join('?' * len(COLUMNS))}) ON CONFLICT (opened) DO UPDATE SET "
    + ", ".join(f"{c} = excluded.{c}" for c in _CHANGING)
)
_UPDATE_QUIET = f"UPDATE journal_view_tasks SET {', '.join(f'{c} = ?' for c in QUIET)} WHERE opened = ?"
_UNFINISHED = (
    "SELECT task FROM journal_view_tasks AS t WHERE open = 1 OR EXISTS "
    "(SELECT 1 FROM journal_events AS e WHERE e.task = t.task AND e.version = t.version + 1)"
)
_PLAN = "INSERT OR REPLACE INTO journal_view_plans VALUES (?, ?)"
_NO_PLAN = "DELETE FROM journal_view_plans WHERE opened = ?"
_COUNT_STAGE = (
    "INSERT INTO journal_view_stages VALUES (?, ?, ?) ON CONFLICT (stage) DO UPDATE SET "
    "open = open + excluded.open, ended = ended + excluded.ended"
)
_COUNT_RECLAIM = (
    "INSERT INTO journal_view_reclaims VALUES (?, 1, ?, ?) ON CONFLICT (cause) DO UPDATE SET "
    "count = count + 1, last_us = excluded.last_us, last_task = excluded.last_task"
)


class TasksView:
    """`Projection`: tasks, their stays, how many are in which stage, how often a term was reclaimed."""

    name = "tasks"
    version = zlib.crc32(f"2 {SCRIPT} {MEMORY}".encode())  # other tables, or more to remember: it is rebuilt
    tables = (
        "journal_view_tasks",
        "journal_view_plans",
        "journal_view_stages",
        "journal_view_reclaims",
        "journal_view_stays",
    )
    script = SCRIPT
    passing = frozenset(body.kind for body in ATTEMPTING)

    def __init__(self) -> None:
        self._rows: dict[str, TaskRow] = {}

    def apply(self, db: sqlite3.Connection, events: Sequence[Past], states: Sequence[TaskState] = ()) -> None:
        """Take in events in order: one row a task, whatever the number of its events."""
        self._take_in(db, events, states)

    def sketch(self, db: sqlite3.Connection, events: Sequence[Past]) -> None:
        """Take in what is left when attempts and their outcomes are left out: rows of what is over, stays, counts."""
        self._take_in(db, events, (), gaps=True)

    def mend(self, db: sqlite3.Connection, past_of: Callable[[str], Iterable[Past]]) -> None:
        """Rows of tasks that are open, or whose last event was left out, from all their events."""
        self.reset()
        tasks = db.execute(_UNFINISHED).fetchall()
        db.executemany(_UPSERT, (store(row_of(task, past_of(task))) for (task,) in tasks))

    def _take_in(
        self, db: sqlite3.Connection, events: Sequence[Past], states: Sequence[TaskState], *, gaps: bool = False
    ) -> None:
        self._load(db, events)
        quiet: dict[str, TaskRow] = {}
        whole: dict[str, TaskRow] = {}  # the ones whose other columns may have changed, too
        changes = _Changes()
        for event, state in zip(events, states or repeat(None), strict=False):
            if not (task := event.task):
                continue
            row, body = self._rows[task], event.draft.body
            if gaps:
                row.version = event.version - 1
            if type(body) in ATTEMPTING:
                if row.take(event, state):
                    quiet[task] = row
                continue
            before, stay, was_open = row.state, row.stay, row.open
            if not row.take(event, state):
                continue
            whole[task] = row
            if row.state.plan is not before.plan:
                changes.plans[row.opened] = row.state.plan
            if type(body) in MOVING:
                changes.moved(row, event.position, stay, before.stage, was_open)
            elif isinstance(body, Acquired) and body.cause is not Cause.NONE:
                changes.reclaims.append((body.cause.value, event.at, task))
        if whole:
            db.executemany(_UPSERT, [store(row) for row in whole.values()])
        if quiet := {task: row for task, row in quiet.items() if task not in whole}:
            db.executemany(_UPDATE_QUIET, [store_quiet(row) for row in quiet.values()])
        changes.write(db)
        self._forget(whole)

    def reset(self) -> None:
        self._rows.clear()

    def _load(self, db: sqlite3.Connection, events: Sequence[Past]) -> None:
        """Have a row of every task: those that are not remembered are asked for at once."""
        tasks = {event.task for event in events}.difference(self._rows, ("",))
        if tasks:
            self._rows |= {task: TaskRow(task) for task in tasks}
            self._rows |= stored_rows(db, tasks)

    def _forget(self, changed: Mapping[str, TaskRow]) -> None:
        for task, row in changed.items():
            if not row.open:
                del self._rows[task]
        while len(self._rows) > CACHED_ROWS:
            del self._rows[next(iter(self._rows))]


def stored_rows(db: sqlite3.Connection, tasks: Iterable[str]) -> dict[str, TaskRow]:
    """The rows of these tasks, as far as there are any."""
    found = db.execute(_SELECT, (orjson.dumps([*tasks]).decode(),))
    rows = [load(stored, plan_from_text(plan) if plan else None) for *stored, plan in found]
    return {row.task: row for row in rows}


_plan_text = lru_cache(maxsize=4096)(plan_text)


class _Changes:
    """
    What a batch changes beside the rows of tasks.

    Event by event, not only first and last: where a batch ends must leave no trace in the tables.
    """

    def __init__(self) -> None:
        self.plans: dict[int, EdgePlan | None] = {}  # of these tasks, by their opening; None = it needs none any more
        self.reclaims: list[tuple[str, int, str]] = []
        self._counts: dict[str, tuple[int, int]] = {}  # stage -> how many more are open, are ended
        self._begun: dict[tuple[int, int], str] = {}  # (opened, from) -> stage, of stays that run after the batch
        self._over: list[tuple[int, int, int, int, str]] = []  # begun and ended within the batch
        self._ended: list[tuple[int, int, int, int]] = []

    def moved(self, row: TaskRow, position: int, stay: int, stage: str, was_open: bool) -> None:
        """A task may have entered or left a stage, or been opened or ended."""
        if row.stay == stay and row.open == was_open:
            return
        if stage:
            self._count(stage, -was_open, -(not was_open))
        self._count(row.state.stage, int(row.open), int(not row.open))
        if stay:
            self._left(row.opened, stay, position)
        if row.stay:
            self._begun[row.opened, row.stay] = row.state.stage

    def _left(self, opened: int, stay: int, position: int) -> None:
        node = stays.fork(stay, position - 1)
        if (stage := self._begun.pop((opened, stay), None)) is not None:
            self._over.append((opened, stay, position, node, stage))
        else:
            self._ended.append((position, node, opened, stay))

    def _count(self, stage: str, opened: int, ended: int) -> None:
        before = self._counts.get(stage, (0, 0))
        self._counts[stage] = (before[0] + opened, before[1] + ended)

    def write(self, db: sqlite3.Connection) -> None:
        for sql, values in (
            (_PLAN, [(opened, _plan_text(plan)) for opened, plan in self.plans.items() if plan is not None]),
            (_NO_PLAN, [(opened,) for opened, plan in self.plans.items() if plan is None]),
            (_COUNT_STAGE, [(stage, *more) for stage, more in self._counts.items()]),
            (_COUNT_RECLAIM, self.reclaims),
            (stays.BEGIN, [(opened, stay, 0, 0, stage) for (opened, stay), stage in self._begun.items()] + self._over),
            (stays.END, self._ended),
        ):
            if values:  # most batches move nothing; an empty statement is not free
                db.executemany(sql, values)
