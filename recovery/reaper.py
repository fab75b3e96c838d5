"""
The reaper: takes up what nobody drives, and ends what is driven for too long (FR-3, DESIGN 5).

It looks at locks, never at clocks of others or at heartbeats: a lock that is free while the journal names an owner
means that the term is over, whatever ended it, and the next run takes over at once. Every verdict is the engine's: the
reaper only asks for a run, under its own name, and the events of that run say what was found (R51).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from journal.children import kill_group
from journal.errors import JournalError
from journal.journal import Journal
from journal.locks import LockFile, read_holder
from journal.ownership import held_for_s, same_ids
from projections.base import ask
from projections.lookup import open_places, owned_places
from recovery.jobs import MAX_LOSSES, Job, Jobs, JobState, backoff_s, lock_path
from recovery.runs import Runs, Submit

logger = structlog.get_logger(__name__)

SCAN_S = 1.0
"""Between two looks at owned tasks and running jobs: the bound within which a gone owner is replaced."""

SWEEP_S = 30.0
"""Between two looks at the locks of all open tasks: a process may hang before it acquired anything (O3)."""

LISTED = 500
"""Tasks or jobs read at once."""

AT_ONCE = 4
"""Runs of the reaper's own at the same time; the rest waits for the next look."""

JOB_GRACE_S = 60.0
"""Beyond its time limit, before a job that outlived its service is ended."""


class Reaper:
    """A duty of the service."""

    def __init__(
        self,
        journal: Journal,
        jobs: Jobs,
        *,
        submit: Submit,
        timeouts_s: Mapping[str, float],
        left_to_startup: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """
        Prepare to look.

        Args:
            journal: An open journal that drives.
            jobs: The worker's queue.
            submit: Asks for a run.
            timeouts_s: Seconds a stage's job may take.
            left_to_startup: A task that was found at the start and waits in the normal queue, with its limits (R53).
        """
        self._left_to_startup = left_to_startup
        self._journal, self._jobs, self._timeouts_s = journal, jobs, timeouts_s
        self.runs = Runs("reaper", submit, at_once=AT_ONCE)
        self._met: dict[str, str] = {}  # task -> run of the living owner that was deferred to and counted
        self._swept_s = 0.0

    async def serve(self) -> None:
        """Look until cancelled; what was begun is then cancelled too and leaves what a crash would leave."""
        clock = self._journal.clock
        try:
            while True:
                await self.round()
                await clock.sleep(SCAN_S)
        finally:
            await self.runs.end()

    async def round(self) -> None:
        """One look at owned tasks and running jobs, now and then at every open task."""
        await self._look_at_owners()
        await self._look_at_jobs()
        now_s = self._journal.clock.monotonic_s()
        if now_s - self._swept_s >= SWEEP_S:
            self._swept_s = now_s
            await self._sweep()

    # -- owners -------------------------------------------------------------------------------------------------------

    async def _look_at_owners(self) -> None:
        met: dict[str, str] = {}
        for place in await ask(self._journal.log, owned_places(LISTED)):
            if not self._journal.locks.is_held(place.task):
                if self._left_to_startup(place.task):
                    continue
                if not await self._journal.mine(await self._journal.log.read(place.task)):
                    continue  # it lives on another host, or is another's to take up
                self.runs.start(place.task, "owner gone")
                continue
            holder = self._journal.locks.holder_of(place.task)
            if held_for_s(holder) > self._journal.tools.max_running_s:
                self.runs.start(place.task, "overdue")
                continue
            if self._met.get(place.task) != holder.run:
                # Alive: deferred to, and counted once per term, not once per look (R48).
                self._journal.log.count("deferred", "reaper", place.task)
            met[place.task] = holder.run
        self._met = met

    async def _sweep(self) -> None:
        """Locks held too long by whoever hangs between the lock and `acquired`."""
        after, limit_s = 0, self._journal.tools.max_running_s
        while places := await ask(self._journal.log, open_places(after, LISTED)):
            after = places[-1].entered
            for place in places:
                locks = self._journal.locks
                if not place.hold and locks.is_held(place.task) and held_for_s(locks.holder_of(place.task)) > limit_s:
                    self.runs.start(place.task, "overdue")

    # -- jobs ---------------------------------------------------------------------------------------------------------

    async def _look_at_jobs(self) -> None:
        for job in await self._jobs.in_state(JobState.RUNNING, limit=LISTED):
            try:
                await self._look_at_job(job)
            except (JournalError, OSError):
                logger.warning("job_not_reaped", task=job.task, stage=job.stage, exc_info=True)

    async def _look_at_job(self, job: Job) -> None:
        """Its process holds its lock. While it lives it is left alone, even if its service is long gone."""
        path = lock_path(self._journal.locks, job.task)
        lock = LockFile.take(path)
        if lock is None:
            self._end_overdue(job)
            return
        try:
            await self._lost(job)
        finally:
            lock.release()

    async def _lost(self, job: Job) -> None:
        """One reaper wins: the write repeats the run that was found lost, and a run is lost only once (R49, R50)."""
        said = f"run {job.run} ended unseen"
        if job.losses + 1 >= MAX_LOSSES:
            version = (await self._journal.log.read(job.task)).version
            won = await self._jobs.end(job, JobState.FAILED, f"{said}, for the {MAX_LOSSES}th time", version=version)
        else:
            won = await self._jobs.again(job, lost=1, after_s=backoff_s(job.losses + 1, 1.0) - 1, said=said)
        if won:
            self._journal.log.count("job_lost", "reaper", job.task)
            logger.warning("job_lost", task=job.task, stage=job.stage, run=job.run, losses=job.losses + 1)

    def _end_overdue(self, job: Job) -> None:
        """A job that outlived its service has nobody left who minds its time limit."""
        holder = read_holder(lock_path(self._journal.locks, job.task))
        limit_s = self._timeouts_s.get(job.stage, 0) + JOB_GRACE_S
        if holder.instance == self._journal.me.instance or held_for_s(holder) <= limit_s:
            return
        if same_ids(holder, self._journal.me):
            for group in holder.groups:
                logger.warning("job_ended", task=job.task, stage=job.stage, group=group, held_s=held_for_s(holder))
                kill_group(group)
