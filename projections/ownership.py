"""Questions about ownership: who holds what, what was reclaimed and why, who deferred, what is parked (FR-6)."""

from __future__ import annotations

from dataclasses import dataclass

from journal.words import Cause
from projections.base import Question, Rows


@dataclass(frozen=True, slots=True)
class Held:
    """A task that somebody owns, as far as the journal knows."""

    task: str
    epoch: int
    from_stage: str
    to_stage: str
    step: str
    run: str
    actor: str
    instance: str
    host: str
    pid: int
    acquired_us: int
    lane: str
    in_doubt: bool  # as SQLite has it: 0 or 1


@dataclass(frozen=True, slots=True)
class ParkedTask:
    """A task left to a person."""

    task: str
    repo: str
    stage: str
    reason: str
    since_us: int
    alert: str


def held_tasks(limit: int = 1000) -> Question[tuple[Held, ...]]:
    """Owned tasks, the longest held first."""
    sql = (
        "SELECT task, epoch, from_stage, to_stage, step, run, actor, instance, host, pid, acquired_us, lane, in_doubt "
        "FROM journal_view_tasks WHERE run <> '' ORDER BY acquired_us, opened LIMIT ?"
    )
    return Question(sql, (limit,), lambda rows: tuple(Held(*row) for row in rows))


def parked_tasks(limit: int = 1000) -> Question[tuple[ParkedTask, ...]]:
    """Parked tasks, the oldest first."""
    sql = (
        "SELECT task, repo, stage, reason, parked_us, alert FROM journal_view_tasks WHERE hold = 'parked' "
        "ORDER BY parked_us, opened LIMIT ?"
    )
    return Question(sql, (limit,), lambda rows: tuple(ParkedTask(*row) for row in rows))


def reclaims() -> Question[dict[str, int]]:
    """Terms that were taken over, by cause; every cause is there."""
    none = {cause.value: 0 for cause in Cause if cause is not Cause.NONE}
    sql = "SELECT cause, count FROM journal_view_reclaims"
    return Question(sql, (), lambda rows: none | _pairs(rows))


def deferrals() -> Question[dict[str, int]]:
    """How often each actor found a task held and left it alone. Counted, no events: lost with the side table."""
    sql = "SELECT actor, sum(count) FROM journal_counters WHERE name = 'deferred' GROUP BY actor ORDER BY actor"
    return Question(sql, (), _pairs)


def _pairs(rows: Rows) -> dict[str, int]:
    return {row[0]: row[1] for row in rows}
