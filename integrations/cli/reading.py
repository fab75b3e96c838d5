"""Reading a journal for an audit: one task's events, its story and what is wrong with its part, all from evidence."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from journal.errors import JournalError, UnknownTaskError
from journal.events import Event
from journal.log.rows import from_row
from journal.log.schema import COLUMNS
from journal.names import shown
from projections.history import Story, tell
from projections.row import TaskRow
from recovery.chain import Findings
from recovery.verify import verify_task

_OF_TASK = f"SELECT {COLUMNS} FROM journal_events WHERE task = ? AND position <= ? ORDER BY version"  # noqa: S608


@dataclass(frozen=True, slots=True)
class Audit:
    """One task as its events tell it."""

    row: TaskRow
    story: Story
    events: tuple[Event, ...]
    findings: Findings
    deferrals: dict[str, int]  # by actor, counted beside the log
    head: int


def _not_there(db: sqlite3.Connection, task: str, upto: int) -> JournalError:
    """No event up to a position names the task: was it opened later, or never?"""
    sql = "SELECT min(position) FROM journal_events WHERE task = ? AND task <> ''"  # the log's own stream is no task
    (opened,) = db.execute(sql, (task,)).fetchone()
    return UnknownTaskError(task=shown(task), opened=opened if opened is not None and opened > upto else 0)


def audit(db: sqlite3.Connection, task: str, upto: int) -> Audit:
    """
    Read and check one task's part.

    Args:
        db: A connection from `open_evidence`.
        task: Its id, spelled as it was opened.
        upto: The last position to take in.

    Raises:
        UnknownTaskError: No event up to there names it.
    """
    if not task:
        raise UnknownTaskError(task="''")
    findings = verify_task(db, task)
    row, events = TaskRow(task), []
    for stored in db.execute(_OF_TASK, (task, upto)):
        try:
            event = from_row(stored)
            row.take(event)
        except (JournalError, ValueError, TypeError, KeyError):
            break  # told by the findings; a story with a hole in it would be a false one
        events.append(event)
    if not events and not findings.total:
        raise _not_there(db, task, upto)
    counted = db.execute(
        "SELECT actor, count FROM journal_counters WHERE name = 'deferred' AND task = ? ORDER BY actor", (task,)
    ).fetchall()
    head = db.execute("SELECT coalesce(max(position), 0) FROM journal_events").fetchone()[0]
    return Audit(row, tell(events), tuple(events), findings, dict(counted), head)
