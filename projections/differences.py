"""
What became of the queue between two points: tasks that were opened, ended, moved or changed (`queue --diff`).

Which tasks differ is asked of the stays and of their events in between, whatever the size of either queue; only the
events of those that may differ are read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import orjson

from journal.projection import Past
from projections.as_of import past_until
from projections.base import Question, Reader, answer, ask
from projections.row import TaskRow
from projections.stays import Stay, stays_at


@dataclass(frozen=True, slots=True)
class Change:
    """One task that was open at one of the points at least, and was not the same at both."""

    task: str
    change: str  # opened, ended, moved (to another stage), changed (its status)
    before: str  # stage and status; empty = not open
    after: str


@dataclass(frozen=True, slots=True)
class Difference:
    """From the earlier point to the later one."""

    earlier: int
    later: int
    changes: tuple[Change, ...]
    left_out: int  # tasks with events in between that were not looked at, since there were more than the limit


async def difference(reader: Reader, one: int, other: int, *, limit: int, repo: str = "") -> Difference:
    """
    What differs between two positions, by task.

    Args:
        reader: The log.
        one: A position.
        other: Another one; which of the two is named first does not matter.
        limit: Look at this many tasks at most.
        repo: Of this repository only; empty = all.
    """
    earlier, later = sorted((one, other))
    before, after = await ask(reader, stays_at(earlier)), await ask(reader, stays_at(later))
    tasks = await ask(reader, touched(_either(before, after, repo), earlier, later))
    streams = [await ask(reader, past_until(task, later)) for task in tasks[:limit]]
    return _difference(earlier, later, tasks, streams)


def difference_offline(db: sqlite3.Connection, one: int, other: int, *, limit: int, repo: str = "") -> Difference:
    """`difference` over a plain connection."""
    earlier, later = sorted((one, other))
    before, after = answer(db, stays_at(earlier)), answer(db, stays_at(later))
    tasks = answer(db, touched(_either(before, after, repo), earlier, later))
    streams = [answer(db, past_until(task, later)) for task in tasks[:limit]]
    return _difference(earlier, later, tasks, streams)


def touched(tasks: Sequence[str], earlier: int, later: int) -> Question[tuple[str, ...]]:
    """Those of the tasks that have an event behind one position and up to another: nothing else can differ."""
    sql = (
        "SELECT value FROM json_each(?) WHERE EXISTS (SELECT 1 FROM journal_events "
        "WHERE task = value AND position > ? AND position <= ?) ORDER BY key"
    )
    return Question(sql, (orjson.dumps(tasks).decode(), earlier, later), lambda rows: tuple(row[0] for row in rows))


def _either(before: Sequence[Stay], after: Sequence[Stay], repo: str) -> list[str]:
    return sorted({task for stays in (before, after) for task, of, _, _ in stays if not repo or of == repo})


def _difference(earlier: int, later: int, tasks: Sequence[str], streams: Sequence[Sequence[Past]]) -> Difference:
    looked_at = zip(tasks, streams, strict=False)  # as many streams as the limit allowed
    changes = tuple(change for task, events in looked_at for change in _change(task, events, earlier))
    return Difference(earlier, later, changes, len(tasks) - len(streams))


def _change(task: str, events: Sequence[Past], earlier: int) -> Iterator[Change]:
    row, was, stage = TaskRow(task), "", ""
    for event in events:
        row.take(event)
        if event.position <= earlier:
            was, stage = _standing(row), row.state.stage
    now = _standing(row)
    if was != now:
        moved = was and now and stage != row.state.stage
        change = "opened" if not was else "ended" if not now else "moved" if moved else "changed"
        yield Change(task, change, was, now)


def _standing(row: TaskRow) -> str:
    return f"{row.state.stage} {row.status}" if row.open else ""
