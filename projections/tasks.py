"""
The view of tasks: one row each, kept in the writer's transaction, the open ones found by a partial index (L1, P8).

Done tasks stay in the table and out of every index that a queue reads, so a million of them cost it nothing.
"""

# Statements are made of this module's own constants; every value is bound.
# ruff: noqa: S608

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from journal.events import Acquired, Event
from journal.words import Cause
from projections import stays
from projections.row import COLUMNS, TaskRow, load, store

CACHED_ROWS = 4096
"""Rows kept between batches; one that is not there is read back, whatever its history."""

_TYPES = {
    "opened": "INTEGER PRIMARY KEY",
    "task": "TEXT NOT NULL UNIQUE",
}
_TEXTS = frozenset(
    {"repo", "branch", "base", "head", "stage", "status", "hold", "run", "actor", "instance", "host", "from_stage",
     "to_stage", "step", "lane", "reason", "alert", "plan", "memory"}
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
CREATE TABLE journal_view_stages (
    stage TEXT PRIMARY KEY, open INTEGER NOT NULL, ended INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE journal_view_reclaims (
    cause TEXT PRIMARY KEY, count INTEGER NOT NULL, last_us INTEGER NOT NULL, last_task TEXT NOT NULL
) STRICT, WITHOUT ROWID;
"""

_SELECT = f"SELECT {', '.join(COLUMNS)} FROM journal_view_tasks WHERE task = ?"
_CHANGING = [c for c in COLUMNS if c not in ("opened", "task", "repo", "branch", "base", "pr", "opened_us")]
_UPSERT = (
    f"INSERT INTO journal_view_tasks VALUES ({', '.join('?' * len(COLUMNS))}) ON CONFLICT (opened) DO UPDATE SET "
    + ", ".join(f"{c} = excluded.{c}" for c in _CHANGING)
)
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
    version = 1
    tables = ("journal_view_tasks", "journal_view_stages", "journal_view_reclaims", "journal_view_stays")
    script = SCRIPT

    def __init__(self) -> None:
        self._rows: dict[str, TaskRow] = {}

    def apply(self, db: sqlite3.Connection, events: Sequence[Event]) -> None:
        """Take in events in order: one row a task, whatever the number of its events."""
        before: dict[str, tuple[str, bool]] = {}
        reclaims: list[tuple[str, int, str]] = []
        begun: list[tuple[int, int, str]] = []
        ended: list[tuple[int, int, int, int]] = []
        for event in events:
            if not (task := event.task):
                continue
            row = self._rows.get(task) or self._load(db, task)
            if task not in before:
                before[task] = (row.state.stage, row.open)
            stayed = row.stay
            if not row.take(event):
                continue
            if isinstance(body := event.draft.body, Acquired) and body.cause is not Cause.NONE:
                reclaims.append((body.cause.value, event.at, task))
            if stayed != (stay := row.stay):
                if stayed:
                    ended.append((event.position, stays.fork(stayed, event.position - 1), row.opened, stayed))
                if stay:
                    begun.append((row.opened, stay, row.state.stage))
        db.executemany(_UPSERT, [store(self._rows[task]) for task in before])
        db.executemany(_COUNT_STAGE, self._moves(before))
        db.executemany(_COUNT_RECLAIM, reclaims)
        db.executemany(stays.BEGIN, begun)
        db.executemany(stays.END, ended)
        self._forget(before)

    def reset(self) -> None:
        self._rows.clear()

    def _load(self, db: sqlite3.Connection, task: str) -> TaskRow:
        stored: tuple[Any, ...] | None = db.execute(_SELECT, (task,)).fetchone()
        row = self._rows[task] = load(stored) if stored else TaskRow(task)
        return row

    def _moves(self, before: dict[str, tuple[str, bool]]) -> list[tuple[str, int, int]]:
        """What changes in the number of tasks per stage."""
        moves: list[tuple[str, int, int]] = []
        for task, (stage, was_open) in before.items():
            row = self._rows[task]
            if (stage, was_open) == (row.state.stage, row.open):
                continue
            if stage:
                moves.append((stage, -was_open, -(not was_open)))
            moves.append((row.state.stage, int(row.open), int(not row.open)))
        return moves

    def _forget(self, touched: dict[str, tuple[str, bool]]) -> None:
        for task in touched:
            if not self._rows[task].open:
                del self._rows[task]
        while len(self._rows) > CACHED_ROWS:
            del self._rows[next(iter(self._rows))]
