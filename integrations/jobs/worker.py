"""
Runs the jobs: claims without a network, one lock per task that the job's process inherits, ends them within a second.

What fails for one job never stops the next one: claiming fails open, since a job has no effect that cannot be repeated,
and the advance that follows it fails closed (FR-7, TR-9).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from integrations.jobs.config import JobConfig, facts, fill
from journal import Journal
from journal.children import Exit, child_env, run_child
from journal.errors import InvalidInputError, JournalError
from journal.events import Event
from journal.locks import LockFile
from journal.words import Kind
from projections.base import ask
from projections.lookup import Place, place_of, without_job
from recovery.jobs import Job, Jobs, JobState, backoff_s, lock_path
from recovery.park import park

logger = structlog.get_logger(__name__)

SCAN_S = 1.0
"""The periodic scan: no lost hint costs more."""

SCANNED = 200
"""Tasks without a job, and queued jobs, looked at in one round."""

OUTPUT_LIMIT = 64 << 10
"""Bytes of each output stream of a job that are kept."""

Advance = Callable[[str, str], Awaitable[object]]
"""(task, expected stage): takes the edge once the job is done; never raises."""

_numbers = itertools.count(1)


@dataclass(slots=True)
class _Running:
    job: Job
    work: asyncio.Task[None]
    stale: str = ""  # why nobody waits for it any more
    over: bool = False  # the work is done and its end is written; the slot is kept until the edge is taken


class JobWorker:
    """A duty of the service: queues a job for each task that entered a stage with work, and runs them in its slots."""

    def __init__(
        self, journal: Journal, jobs: Jobs, configs: Mapping[str, JobConfig], *, slots: int, advance: Advance
    ) -> None:
        """
        Prepare to work.

        Args:
            journal: An open journal that drives.
            jobs: The queue.
            configs: By stage.
            slots: Jobs running at once.
            advance: Takes a task's edge when its job is done.
        """
        self._journal, self._jobs, self._configs = journal, jobs, configs
        self._slots, self._advance = slots, advance
        self._running: dict[int, _Running] = {}
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._closing = False

    @property
    def running(self) -> int:
        """Jobs that run now."""
        return len(self._running)

    def on_events(self, events: Sequence[Event]) -> None:
        """Called in the writer's thread after each commit."""
        if any(e.kind in _HINTS for e in events):
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake.set)

    async def serve(self) -> None:
        """Work until cancelled; then what runs is ended, and goes back into the queue without being charged (R126)."""
        if not self._configs:
            return
        self._closing = False
        try:
            while True:
                self._wake.clear()
                await self.round()
                with suppress(TimeoutError):
                    async with asyncio.timeout(SCAN_S):
                        await self._wake.wait()
        finally:
            await self.stop()

    async def round(self) -> None:
        """End what nobody waits for, queue what is new, start what fits."""
        await self._end_stale()
        await self._queue_new()
        for job in await self._jobs.claimable(self._configs, SCANNED):
            if len(self._running) >= self._slots:
                return
            try:
                await self._claim(job)
            except (JournalError, OSError):
                logger.warning("job_not_claimed", task=job.task, stage=job.stage, exc_info=True)

    async def stop(self) -> None:
        """End what runs and put it back into the queue, uncharged."""
        self._closing = True
        await self._end(list(self._running.values()), "the service stops")

    async def idle(self) -> None:
        """Wait until what runs has ended."""
        await asyncio.gather(*(running.work for running in self._running.values()), return_exceptions=True)

    # -- the queue ----------------------------------------------------------------------------------------------------

    async def _queue_new(self) -> None:
        log = self._journal.log
        wanted = await ask(log, without_job(tuple(self._configs), self._journal.clock.now_us(), SCANNED))
        jobs = await self._jobs.by_entry(place.entered for place in wanted)
        for place in wanted:
            if not self._journal.tools.hosts.minds(place.task):
                continue  # each host has its own queue: one of them works on a task
            try:
                await self._queue(place, jobs.get(place.entered))
            except JournalError:
                logger.warning("job_not_queued", task=place.task, stage=place.stage, exc_info=True)

    async def _queue(self, place: Place, job: Job | None) -> None:
        if job is None:
            await self._jobs.queue(place.task, place.repo, place.stage, place.entered)
        elif job.state is JobState.FAILED:
            await self._after_failure(job)
        elif job.state is JobState.DROPPED:
            await self._jobs.again(job, fresh=True)  # it was paused or canceled, and is wanted again

    async def _after_failure(self, job: Job) -> None:
        """The task is free although its job failed: a person freed it, or we died before it was parked."""
        parked = [e for e in await self._journal.events(job.task, after=job.version) if e.kind is Kind.PARKED]
        if parked:
            await self._jobs.again(job, fresh=True)
        else:
            reason = f"job {job.stage} failed: {job.said}"
            result = await park(self._journal, job.task, expect=job.stage, reason=reason, actor="worker")
            logger.warning("job_failed", task=job.task, stage=job.stage, said=job.said, result=type(result).__name__)

    async def _claim(self, job: Job) -> None:
        """Lock first, then the compare-and-swap: a running job whose lock is free is a lost one at any moment."""
        if not self._journal.tools.hosts.minds(job.task) or not await self._wanted(job):
            return
        lock = LockFile.take(lock_path(self._journal.locks, job.task))
        if lock is None:
            return  # its process, or an older job's, still lives
        try:
            run = f"{self._journal.me.instance[:12]}.job{next(_numbers)}"
            lock.write(self._journal.locks.holder("job", run=run))
            config = self._configs[job.stage]
            started = await self._jobs.start(job, run, per_repository=config.per_repository)
        except BaseException:
            lock.release()
            raise
        if started is None:
            lock.release()
            return
        work = asyncio.create_task(self._run(started, config, lock), name=f"job {job.task} {job.stage}")
        self._running[job.id] = _Running(started, work)

    async def _wanted(self, job: Job) -> bool:
        """Whether the task still waits for it. If that cannot be told, the job is run: it does no harm (TR-9)."""
        try:
            place = await ask(self._journal.log, place_of(job.task))
            if self._journal.locks.is_held(job.task):
                return False
        except (JournalError, OSError):
            logger.warning("job_claimed_blindly", task=job.task, stage=job.stage, exc_info=True)
            return True
        if why := _stale(job, place):
            await self._jobs.end(job, JobState.DROPPED, why)
        return not why

    # -- running ------------------------------------------------------------------------------------------------------

    async def _run(self, job: Job, config: JobConfig, lock: LockFile) -> None:
        done = False
        try:
            done = await self._work(job, config, lock)
        except asyncio.CancelledError:
            await self._cut_off(job)
        except (JournalError, OSError):
            # Its state stays `running` and its lock falls free: the reaper finds it lost.
            logger.warning("job_outcome_unwritten", task=job.task, stage=job.stage, exc_info=True)
        finally:
            self._running[job.id].over = True
            lock.release()
        try:
            if done and not self._closing:
                await self._advance(job.task, job.stage)
        finally:
            self._running.pop(job.id, None)
            self._wake.set()

    async def _work(self, job: Job, config: JobConfig, lock: LockFile) -> bool:
        logger.info("job_started", task=job.task, stage=job.stage, run=job.run)
        why = await self._outcome(job, config, lock)
        logger.info("job_ended", task=job.task, stage=job.stage, run=job.run, failed=why)
        if not why:
            return await self._jobs.end(job, JobState.DONE)
        if job.attempts >= config.retries:
            version = (await self._journal.log.read(job.task)).version
            await self._jobs.end(job, JobState.FAILED, why, version=version)
        else:
            await self._jobs.again(job, failed=1, after_s=backoff_s(job.attempts + 1, config.backoff_s), said=why)
        return False

    async def _outcome(self, job: Job, config: JobConfig, lock: LockFile) -> str:
        """Run the command; says why it failed, "" = it did its work."""
        known = facts((await self._journal.stream(job.task)).subject, job.stage)
        try:
            argv = fill(config.command, known)
            env = child_env(config.env, **{f"JOURNAL_{name.upper()}": value for name, value in known.items()})
            ended = await run_child(
                argv, budget_s=config.timeout_s, term=lock, env=env, cwd=config.cwd, keep=OUTPUT_LIMIT
            )
        except (OSError, InvalidInputError) as error:
            return f"not started: {error}"
        return _failure(ended, config)

    async def _cut_off(self, job: Job) -> None:
        """Ended by us: because nobody waits for it, or because we stop, which is not its fault."""
        running = self._running.get(job.id)
        why = running.stale if running else ""
        with suppress(JournalError):
            if why and not self._closing:
                await self._jobs.end(job, JobState.DROPPED, why)
            else:
                await self._jobs.again(job, said="the service stopped")

    async def _end_stale(self) -> None:
        stale = []
        for running in list(self._running.values()):
            with suppress(JournalError):
                running.stale = _stale(running.job, await ask(self._journal.log, place_of(running.job.task)))
            if running.stale and not running.over:
                stale.append(running)
        await self._end(stale, "nobody waits for it")

    async def _end(self, which: Sequence[_Running], why: str) -> None:
        for running in which:
            logger.info("job_cut_off", task=running.job.task, stage=running.job.stage, why=running.stale or why)
            running.work.cancel()
        await asyncio.gather(*(running.work for running in which), return_exceptions=True)


_HINTS = frozenset({
    Kind.OPENED, Kind.STAGE_MOVED, Kind.HEAD_CHANGED, Kind.REOPENED, Kind.PAUSED, Kind.RESUMED, Kind.CANCEL_REQUESTED,
    Kind.CANCELED, Kind.PARKED, Kind.SETTLED,
})  # fmt: skip


def _stale(job: Job, place: Place | None) -> str:
    """Why nobody waits for a job any more; "" = somebody does."""
    if place is None:
        return "the task is unknown"
    if place.hold or place.cancel:
        return f"the task is {place.hold or 'to be canceled'}"
    return "" if place.entered == job.entered else f"the task is in {place.stage} by now"


def _failure(ended: Exit, config: JobConfig) -> str:
    if ended.timed_out:
        return f"no end within {config.timeout_s:g} s; {ended.tail}"
    return f"exit {ended.code}: {ended.tail}" if ended.code else ""
