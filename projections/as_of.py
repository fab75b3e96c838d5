"""
The queue as of an earlier point: who was open then comes from the stays, what each looked like from its own events.

The cost is that of the tasks that were open, whatever the length of the log.
"""

# Statements are made of the modules' own constants; every value is bound.

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import orjson

from journal.events import Event
from journal.log.rows import as_far_as_known
from journal.log.schema import COLUMNS
from journal.projection import RECALLED, Past, recall
from projections.base import Question, Reader, answer, ask
from projections.row import TaskRow, row_data
from projections.stays import Stay, stays_at


@dataclass(frozen=True, slots=True)
class PageAt:
    """Part of the queue as it was."""

    position: int
    counts: dict[str, int]  # open tasks per stage, of the whole queue
    tasks: tuple[bytes, ...]  # each a JSON object, as `queue.TASK_JSON` makes it
    cursor: int  # where the next page begins; 0 = this was the last


async def queue_at(reader: Reader, position: int, *, limit: int, cursor: int = 0, repo: str = "") -> PageAt:
    """
    Open tasks as of a position, oldest stage entry first.

    Args:
        reader: The log.
        position: Everything up to it, it included, had happened.
        limit: At most this many tasks.
        cursor: `PageAt.cursor` of the page before; 0 = from the beginning.
        repo: Of this repository only; empty = all.
    """
    everywhere = await ask(reader, stays_at(position))
    stays = _of(everywhere, repo)
    chosen = _chosen(stays, limit, cursor)
    streams = [await ask(reader, past_until(stay[0], position)) for stay in chosen]
    return _page(position, stays, chosen, streams, limit)


def queue_at_offline(db: sqlite3.Connection, position: int, *, limit: int, cursor: int = 0, repo: str = "") -> PageAt:
    """`queue_at` over a plain connection."""
    everywhere = answer(db, stays_at(position))
    stays = _of(everywhere, repo)
    chosen = _chosen(stays, limit, cursor)
    streams = [answer(db, past_until(stay[0], position)) for stay in chosen]
    return _page(position, stays, chosen, streams, limit)


def events_until(task: str, position: int) -> Question[tuple[Event, ...]]:
    """A task's events up to a position, in order."""
    sql = f"SELECT {COLUMNS} {_UNTIL}"
    return Question(sql, (task, position), lambda rows: tuple(as_far_as_known(row) for row in rows))


def past_until(task: str, position: int) -> Question[tuple[Past, ...]]:
    """`events_until`, as far as a fold asks."""
    sql = f"SELECT {RECALLED} {_UNTIL}"
    return Question(sql, (task, position), lambda rows: tuple(map(recall, rows)))


_UNTIL = "FROM journal_events WHERE task = ? AND position <= ? ORDER BY version"


def position_at(at_us: int) -> Question[int]:
    """
    The last position whose event is not later than a time; 0 = nothing had happened yet.

    Found by halving, so a clock that was set back makes it a neighbour of what it should be, never an error.
    """
    sql = """
        WITH RECURSIVE halving(low, high) AS (
            SELECT 0, coalesce(max(position), 0) FROM journal_events
            UNION ALL
            SELECT iif(at <= ?, position, low), iif(at <= ?, high, position - 1)
            FROM halving JOIN journal_events ON position = (low + high + 1) / 2 WHERE low < high
        )
        SELECT low FROM halving WHERE low = high
    """
    return Question(sql, (at_us, at_us), lambda rows: int(rows[0][0]))


def _of(stays: Sequence[Stay], repo: str) -> list[Stay]:
    return [stay for stay in stays if not repo or stay[1] == repo]


def _chosen(stays: Sequence[Stay], limit: int, cursor: int) -> list[Stay]:
    return [stay for stay in stays if stay[3] > cursor][:limit]


def _page(
    position: int, stays: Sequence[Stay], chosen: Sequence[Stay], streams: Sequence[Sequence[Past]], limit: int
) -> PageAt:
    counts = Counter(stage for _, _, stage, _ in stays)
    tasks = tuple(orjson.dumps(row_data(row_of(stay[0], events))) for stay, events in zip(chosen, streams, strict=True))
    cursor = chosen[-1][3] if len(chosen) == limit else 0
    return PageAt(position, dict(sorted(counts.items())), tasks, cursor)


def row_of(task: str, events: Iterable[Past]) -> TaskRow:
    """A task's row, folded from its first event."""
    row = TaskRow(task)
    for event in events:
        row.take(event)
    return row
