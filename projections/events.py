"""Questions about events themselves, answered as JSON by SQLite: nothing is decoded on the way to a reader (P9)."""

# Statements are made of this module's own constants; every value is bound.
# ruff: noqa: S608

from __future__ import annotations

from dataclasses import dataclass

from projections.base import Question, Rows

EVENT_JSON = (
    "json_object('position', position, 'task', task, 'version', version, 'generation', generation, 'epoch', epoch, "
    "'kind', kind, 'step', step, 'attempt', attempt, 'key', key, 'actor', actor, 'at', at, 'schema', schema, "
    "'body', json(body), 'hash', lower(hex(hash)), 'prev_hash', lower(hex(prev_hash)))"
)
"""An event as JSON, in the words of the table's columns."""


@dataclass(frozen=True, slots=True)
class Told:
    """One event on its way to a listener."""

    position: int
    kind: str
    json: bytes


def events_of(task: str, after: int, limit: int) -> Question[tuple[bytes, int]]:
    """A task's events after a version: a JSON array, and the last version in it (0 = none)."""
    sql = (
        f"SELECT json_group_array(json(item)), coalesce(max(version), 0) FROM (SELECT {EVENT_JSON} AS item, version "
        "FROM journal_events WHERE task = ? AND version > ? ORDER BY version LIMIT ?)"
    )
    return Question(sql, (task, after, limit), lambda rows: (rows[0][0].encode(), rows[0][1]))


def events_after(position: int, limit: int, task: str = "") -> Question[tuple[Told, ...]]:
    """Events of the log, or of one task, after a position."""
    of_task = "AND task = ? " if task else ""
    sql = (
        f"SELECT position, kind, {EVENT_JSON} FROM journal_events WHERE position > ? {of_task}ORDER BY position LIMIT ?"
    )
    given = (position, task, limit) if task else (position, limit)
    return Question(sql, given, _told)


def _told(rows: Rows) -> tuple[Told, ...]:
    return tuple(Told(position, kind, text.encode()) for position, kind, text in rows)


def head() -> Question[int]:
    """Position of the last event."""
    return Question("SELECT coalesce(max(position), 0) FROM journal_events", (), lambda rows: int(rows[0][0]))


def time_of(position: int) -> Question[int]:
    """When the event at a position was written, microseconds since 1970; 0 = there is none."""
    sql = "SELECT coalesce((SELECT at FROM journal_events WHERE position = ?), 0)"
    return Question(sql, (position,), lambda rows: int(rows[0][0]))


def decisions_after(position: int) -> Question[tuple[int, dict[tuple[str, str, str], int]]]:
    """The head, and how often which decision was made behind a position: by row of the table, fact and verdict."""
    sql = (
        "SELECT (SELECT coalesce(max(position), 0) FROM journal_events), json_extract(body, '$.row'), "
        "json_extract(body, '$.fact'), json_extract(body, '$.verdict'), count(*) FROM journal_events "
        "WHERE position > ? AND kind = 'observed' GROUP BY 2, 3, 4 "
        "UNION ALL SELECT coalesce(max(position), 0), '', '', '', 0 FROM journal_events"
    )

    def shape(rows: Rows) -> tuple[int, dict[tuple[str, str, str], int]]:
        return int(rows[-1][0]), {(str(r[1]), str(r[2]), str(r[3])): int(r[4]) for r in rows[:-1]}

    return Question(sql, (position,), shape)
