"""
The worker's queue: one job per task and stage entry, for edges whose stage has work to be done first (DESIGN 8).

The queue is no truth about effects: losing it costs work, never safety (PROTOCOL 8). Every write repeats the condition
it was decided from, the run that owns the job included, so that of two reapers one wins (FR-3) and a late verdict about
an earlier run changes nothing (R40, R49, R127). Whether a running job lives is told by the kernel alone: its lock is
inherited by its process, so a restart of ours neither loses it nor starts it twice.
"""

# Statements are made of this module's own constants; every value is bound.
# ruff: noqa: S608

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import quote

from journal.log.port import EventLog
from journal.log.unit import Side
from journal.names import shown
from journal.ownership import Locks
from journal.ports import Clock

SAID_LIMIT = 2000
"""Characters of a job's last words that are kept."""

MAX_LOSSES = 10
"""
Times a job may be found lost before it counts as failed: one that kills its service each time must not go on for ever.

A restart on request is no loss, and neither kind uses up an attempt (R43, R126).
"""

LONGEST_BACKOFF_S = 3600.0


class JobState(StrEnum):
    """Where a job is; the last three are ends."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    DROPPED = "dropped"  # the task left the stage; nobody waits for it


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it was read; only good for a write that compares."""

    id: int
    task: str
    repo: str
    stage: str
    entered: int  # position at which the task entered the stage: a rollback or a new head makes another job
    state: JobState
    attempts: int  # runs that ended in failure
    losses: int  # runs that nobody saw the end of
    due_us: int
    run: str  # of the run that has it; never used twice
    version: int  # failed: the task's version when it failed
    said: str


_COLUMNS = "id, task, repo, stage, entered, state, attempts, losses, due_us, run, version, said"
_SELECT = f"SELECT {_COLUMNS} FROM journal_jobs"
_MINE = "WHERE id = ? AND state = ? AND run = ?"


def backoff_s(attempts: int, first_s: float) -> float:
    """Seconds until the next try after so many failures: doubles, up to an hour."""
    return min(first_s * 2.0 ** min(max(attempts - 1, 0), 20), LONGEST_BACKOFF_S)


def lock_path(locks: Locks, task: str) -> Path:
    """One for all jobs of a task: what is left of an older one keeps a new one waiting."""
    return locks.folder / "jobs" / f"{quote(task.lower(), safe='')}.lock"


class Jobs:
    """The table, as compare-and-swap writes."""

    def __init__(self, log: EventLog, clock: Clock) -> None:
        self._log, self._clock = log, clock

    # -- reading ------------------------------------------------------------------------------------------------------

    async def claimable(self, stages: Iterable[str], limit: int) -> Sequence[Job]:
        """Queued jobs that are due, oldest first: from this table alone, no network, no view (NFR-5, TR-9)."""
        # A few of each repository and stage: a long line of one must not hide the others.
        sql = (
            f"SELECT {_COLUMNS} FROM (SELECT *, row_number() OVER (PARTITION BY repo, stage ORDER BY id) AS place "
            "FROM journal_jobs WHERE state = 'queued' AND due_us <= ? "
            "AND stage IN (SELECT value FROM json_each(?))) WHERE place <= 8 ORDER BY id LIMIT ?"
        )
        return await self._jobs(sql, (self._clock.now_us(), json.dumps(sorted(stages)), limit))

    async def in_state(self, state: JobState, *, after: int = 0, limit: int = 500) -> Sequence[Job]:
        """Jobs in a state, by id."""
        return await self._jobs(f"{_SELECT} WHERE state = ? AND id > ? ORDER BY id LIMIT ?", (state, after, limit))

    async def by_entry(self, entries: Iterable[int]) -> Mapping[int, Job]:
        """The jobs of stage entries, by the position of the entry."""
        sql = f"{_SELECT} WHERE entered IN (SELECT value FROM json_each(?))"
        return {job.entered: job for job in await self._jobs(sql, (json.dumps(list(entries)),))}

    async def counts(self) -> Mapping[str, int]:
        """Jobs waiting and running."""
        rows = await self._log.query(
            "SELECT state, count(*) FROM journal_jobs WHERE state IN ('queued', 'running') GROUP BY state"
        )
        return {str(state): int(count) for state, count in rows}

    async def _jobs(self, sql: str, parameters: tuple[Any, ...]) -> Sequence[Job]:
        return [_job(row) for row in await self._log.query(sql, parameters)]

    # -- writing ------------------------------------------------------------------------------------------------------

    async def queue(self, task: str, repo: str, stage: str, entered: int) -> bool:
        """Put a job into the queue, once per stage entry; says whether it is new."""
        now = self._clock.now_us()
        return await self._write(
            "INSERT OR IGNORE INTO journal_jobs (task, repo, stage, entered, state, attempts, losses, due_us, run, "
            "version, changed_us, said) VALUES (?, ?, ?, ?, 'queued', 0, 0, ?, '', 0, ?, '')",
            (task, repo, stage, entered, now, now),
        )

    async def start(self, job: Job, run: str, *, per_repository: int) -> Job | None:
        """
        Claim a queued job for a run; None if it is no longer queued or its repository has enough running.

        The caller holds the job's lock, so a running job whose lock is free is one that was lost.
        """
        changed = await self._log.side(
            Side(
                f"UPDATE journal_jobs SET state = 'running', run = ?, changed_us = ? {_MINE} AND "
                "(SELECT count(*) FROM journal_jobs r WHERE r.state = 'running' AND r.repo = journal_jobs.repo "
                f"AND r.stage = journal_jobs.stage) < ? RETURNING {_COLUMNS}",
                (run, self._clock.now_us(), job.id, JobState.QUEUED, job.run, per_repository),
            )
        )
        return _job(changed.rows[0]) if changed.rows else None

    async def end(self, job: Job, state: JobState, said: str = "", *, version: int = 0) -> bool:
        """End a job; False if somebody else had taken it out of the state it was read in."""
        failed = int(state is JobState.FAILED and job.state is JobState.RUNNING)
        return await self._write(
            "UPDATE journal_jobs SET state = ?, said = ?, version = ?, attempts = attempts + ?, changed_us = ? "
            f"{_MINE}",
            (state, _said(said), version, failed, self._clock.now_us(), job.id, job.state, job.run),
        )

    async def again(
        self, job: Job, *, failed: int = 0, lost: int = 0, after_s: float = 0, said: str = "", fresh: bool = False
    ) -> bool:
        """
        Put a job back into the queue.

        Args:
            job: As it was read.
            failed: Runs to be charged as failed.
            lost: Runs that nobody saw the end of; they are not charged as failed.
            after_s: Seconds until it is due.
            said: Why.
            fresh: Forget what was charged: a person wants it tried again.
        """
        now = self._clock.now_us()
        return await self._write(
            "UPDATE journal_jobs SET state = 'queued', attempts = iif(?, 0, attempts + ?), "
            "losses = iif(?, 0, losses + ?), "
            f"due_us = ?, changed_us = ?, said = ? {_MINE}",
            (fresh, failed, fresh, lost, now + int(after_s * 1e6), now, _said(said), job.id, job.state, job.run),
        )

    async def _write(self, statement: str, parameters: tuple[Any, ...]) -> bool:
        return (await self._log.side(Side(statement, parameters))).count == 1


def _said(text: str) -> str:
    return shown(text, SAID_LIMIT)


def _job(row: Sequence[Any]) -> Job:
    values = list(row)
    values[5] = JobState(values[5])
    return Job(*values)
