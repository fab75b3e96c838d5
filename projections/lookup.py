"""Finding tasks by what the outside knows of them, and where one task stands, for actors that then read the stream."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from projections.base import Question

FOUND = 200
"""At most this many tasks answer one notice."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a task stands; a hint, as every view."""

    task: str
    repo: str
    stage: str
    hold: str  # "", parked, paused, canceled, done
    owned: bool
    begun: bool
    cancel: bool
    entered: int  # position at which it entered the stage
    entered_us: int
    look_us: int  # when the next look is due; 0 = at once
    version: int


_COLUMNS = "task, repo, stage, hold, run <> '', begun, cancel, stage_position, stage_since_us, look_us, version"


def _place(*row: object) -> Place:
    task, repo, stage, hold, owned, begun, cancel, *numbers = row
    return Place(task, repo, stage, hold, bool(owned), bool(begun), bool(cancel), *numbers)  # type: ignore[arg-type]


def place_of(task: str) -> Question[Place | None]:
    """Where a task stands; None if no event names it."""
    sql = f"SELECT {_COLUMNS} FROM journal_view_tasks WHERE task = ?"  # noqa: S608  (names of columns only)
    return Question(sql, (task,), lambda rows: _place(*rows[0]) if rows else None)


def open_places(after: int, limit: int) -> Question[tuple[Place, ...]]:
    """
    Open tasks, those on hold too, by stage entry.

    Args:
        after: `entered` of the last one seen; 0 = from the beginning.
        limit: At most this many.
    """
    sql = (
        f"SELECT {_COLUMNS} FROM journal_view_tasks WHERE open = 1 AND stage_position > ? "  # noqa: S608  (columns)
        "ORDER BY stage_position LIMIT ?"
    )
    return Question(sql, (after, limit), lambda rows: tuple(_place(*row) for row in rows))


def owned_places(limit: int) -> Question[tuple[Place, ...]]:
    """Tasks that a run owned when the journal last heard, longest first."""
    sql = f"SELECT {_COLUMNS} FROM journal_view_tasks WHERE run <> '' ORDER BY acquired_us LIMIT ?"  # noqa: S608  (columns)
    return Question(sql, (limit,), lambda rows: tuple(_place(*row) for row in rows))


def without_job(stages: Sequence[str], now_us: int, limit: int) -> Question[tuple[Place, ...]]:
    """
    Free tasks whose stage has work and whose entry has no job that waits, runs or is done; oldest entry first.

    Args:
        stages: Stages with work.
        now_us: Wall time, for looks that are due.
        limit: At most this many. Those with a job are not among them, so a long line hides nobody.
    """
    sql = (
        f"SELECT {_COLUMNS} FROM journal_view_tasks WHERE hold = '' AND run = '' AND begun = 0 AND cancel = 0 "  # noqa: S608  (columns)
        "AND look_us <= ? AND stage IN (SELECT value FROM json_each(?)) AND NOT EXISTS (SELECT 1 FROM journal_jobs j "
        "WHERE j.entered = stage_position AND j.state IN ('queued', 'running', 'done')) "
        "ORDER BY stage_position LIMIT ?"
    )
    given = (now_us, json.dumps(list(stages)), limit)
    return Question(sql, given, lambda rows: tuple(_place(*row) for row in rows))


def about(repo: str, branch: str, pr: int, head: str) -> Question[tuple[str, ...]]:
    """
    Open tasks that a notice about a repository may concern, newest first.

    Args:
        repo: The repository.
        branch: A change's own branch, or the base branch that moved.
        pr: Number of the pull request; 0 = the notice names none.
        head: A change's head; "" = the notice names none.
    """
    sql = (
        "SELECT task FROM journal_view_tasks WHERE repo = ? AND open = 1 AND ((pr = ? AND pr > 0) OR branch = ? OR "
        "(head = ? AND head <> '') OR (base = ? AND look_us > 0)) ORDER BY opened DESC LIMIT ?"
    )
    return Question(sql, (repo, pr, branch, head, branch, FOUND), lambda rows: tuple(row[0] for row in rows))


def recently_ended(since_us: int, limit: int) -> Question[tuple[str, ...]]:
    """Tasks of the newest openings that ended after a moment, for an auditor that looks at the world once more."""
    sql = (
        "SELECT task FROM (SELECT task, open, changed_us FROM journal_view_tasks ORDER BY opened DESC LIMIT ?) "
        "WHERE open = 0 AND changed_us >= ?"
    )
    return Question(sql, (limit, since_us), lambda rows: tuple(row[0] for row in rows))
