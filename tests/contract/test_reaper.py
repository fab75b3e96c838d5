"""The reaper over real locks and processes: who lives is deferred to, who is gone is replaced at once (FR-3, TR-1)."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from journal.events import Parked
from journal.locks import Holder, LockFile, TaskLock, is_held
from journal.ownership import Locks
from journal.ports import Call, Reply
from journal.words import Cause, Kind, Outcome
from recovery.jobs import MAX_LOSSES, JobState, lock_path
from recovery.reaper import Reaper
from tests.acting import NOTE, Desk, desk, lives, notes, python, three_stages
from tests.builders import FileStep, StandingClock, perform


def reaper(d: Desk, **more: object) -> Reaper:
    return Reaper(d.journal, d.jobs, submit=d.submit, timeouts_s={"work": 5.0}, **more)  # type: ignore[arg-type]


async def reap(r: Reaper, rounds: int = 1) -> None:
    for _ in range(rounds):
        await r.round()
        await r.runs.idle()


@dataclass
class StuckStep(FileStep):
    """Performs its effect, then hangs once: the owner neither dies nor goes on."""

    began: asyncio.Event = field(default_factory=asyncio.Event)

    async def apply(self, call: Call) -> Reply:
        perform(self.folder, call.key, call.fence)
        if not self.began.is_set():
            self.began.set()
            await asyncio.Event().wait()
        return Reply(Outcome.APPLIED)


@pytest.mark.proves("FR-3", "TR-1", "TR-2", "R51")
async def test_an_owner_that_is_gone_is_replaced_in_one_look_and_the_effect_stays_one(tmp_path: Path) -> None:
    async with desk(tmp_path, three_stages(ship="manual"), step=StuckStep) as d:
        await d.open("T-1", stage="ship")
        owner = asyncio.create_task(d.journal.advance("T-1", actor="worker"))
        assert isinstance(d.step, StuckStep)
        await d.step.began.wait()
        owner.cancel()  # the coroutine ends, the process lives: no restart will ever look at it
        await asyncio.gather(owner, return_exceptions=True)
        before = (await d.acquired("T-1")).owner
        await reap(reaper(d))
        assert await d.stage("T-1") == "done"
        took = await d.acquired("T-1")
        assert (took.before, took.cause) == (before.run, Cause.GONE)
        assert d.step.calls("T-1/1/merge_pr") == ["1.1"]
        applied = await d.events("T-1", Kind.APPLIED)
        assert [e.draft.actor for e in applied] == ["reaper"]


@pytest.mark.proves("FR-3", "R48", "R50", "TR-10")
async def test_a_living_owner_is_deferred_to_and_counted_once_however_often_it_is_met(tmp_path: Path) -> None:
    async with desk(tmp_path, three_stages(ship="manual"), step=StuckStep) as d:
        await d.open("T-1", stage="ship")
        owner = asyncio.create_task(d.journal.advance("T-1", actor="worker"))
        assert isinstance(d.step, StuckStep)
        await d.step.began.wait()
        events = len(await d.events("T-1"))
        await reap(reaper(d), rounds=5)
        assert (d.asked, len(await d.events("T-1"))) == ([], events)
        assert await d.counted("deferred", "reaper") == 1
        owner.cancel()
        await asyncio.gather(owner, return_exceptions=True)


@pytest.mark.proves("R53")
async def test_what_startup_has_in_its_queue_is_left_to_it(tmp_path: Path) -> None:
    async with desk(tmp_path, three_stages(ship="manual"), step=StuckStep) as d:
        await d.open("T-1", stage="ship")
        owner = asyncio.create_task(d.journal.advance("T-1", actor="worker"))
        assert isinstance(d.step, StuckStep)
        await d.step.began.wait()
        owner.cancel()
        await asyncio.gather(owner, return_exceptions=True)
        waiting = {"T-1"}
        r = reaper(d, left_to_startup=waiting.__contains__)
        await reap(r)
        assert d.asked == []
        waiting.clear()
        await reap(r)
        assert d.asked == [("T-1", "reaper", "")]


HOLDER = "import time; print('held', flush=True); time.sleep(60)"


@contextmanager
def held_by_a_process(
    d: Desk, lock: LockFile | TaskLock | None, record: Path, *, for_s: int, named: bool
) -> Iterator[int]:
    """A process of its own group, left behind by another one, holds a lock since long ago; it is named, or nothing."""
    assert lock is not None
    process = subprocess.Popen(python(HOLDER), pass_fds=(lock.fd,), start_new_session=True, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        lock.child_started(process.pid)
        lock.release()  # our descriptor only
        now = d.journal.locks.holder("worker", run="stuck")
        groups = (process.pid,) if named else ()
        holder = replace(now, held_since_s=now.held_since_s - for_s, groups=groups, instance="of-another-process")
        record.write_text(json.dumps({f: getattr(holder, f) for f in Holder.__slots__}))
        yield process.pid
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.proves("FR-3", "TR-1", "TR-7", "NFR-6", "O3")
async def test_whoever_hangs_between_lock_and_journal_is_ended_past_the_budget_and_the_task_goes_on(
    tmp_path: Path,
) -> None:
    async with desk(tmp_path, three_stages(ship="auto")) as d:
        await d.open("T-1", stage="ship")
        with task_held_by_a_process(d, for_s=5300, named=True):
            await reap(reaper(d))
            assert d.asked == []  # not overdue yet
        with task_held_by_a_process(d, for_s=5401, named=True) as group:
            await reap(reaper(d))
            assert not lives(group)
        assert await d.stage("T-1") == "done"
        assert isinstance(d.step, FileStep)
        assert d.step.calls("T-1/1/merge_pr") == ["1.1"]
        assert [e.draft.actor for e in await d.events("T-1", Kind.ACQUIRED)] == ["reaper"]


@pytest.mark.proves("FR-3", "TR-1", "O5")
async def test_a_lock_that_does_not_come_free_parks_the_task_once_and_drives_nothing(tmp_path: Path) -> None:
    async with desk(tmp_path, three_stages(ship="auto"), clock=StandingClock()) as d:
        await d.open("T-1", stage="ship")
        with task_held_by_a_process(d, for_s=5401, named=False) as group:
            r = reaper(d)
            await reap(r, rounds=3)
            assert lives(group)  # nothing names it, so nothing of it is touched
            state = (await d.journal.stream("T-1")).state
            assert (state.hold, state.owner) == ("parked", "")
            (parked,) = await d.events("T-1", Kind.PARKED)
            assert isinstance(parked.draft.body, Parked)
            assert "held past its budget" in parked.draft.body.reason
            assert isinstance(d.step, FileStep)
            assert d.step.calls("T-1/1/merge_pr") == []


@pytest.mark.proves("FR-3", "TR-7", "R51")
async def test_a_hung_run_of_this_process_is_cancelled_past_the_budget_with_the_cause_on_record(tmp_path: Path) -> None:
    async with desk(tmp_path, three_stages(ship="manual"), step=StuckStep) as d:
        await d.open("T-1", stage="ship")
        owner = asyncio.create_task(d.journal.advance("T-1", actor="worker"))
        assert isinstance(d.step, StuckStep)
        await d.step.began.wait()
        age(d, "T-1", 5401)
        await reap(reaper(d))
        assert type(await owner).__name__ == "Unavailable"
        took = await d.acquired("T-1")
        assert (took.cause, await d.stage("T-1")) == (Cause.BUDGET, "done")
        assert d.step.calls("T-1/1/merge_pr") == ["1.1"]


def age(d: Desk, task: str, by_s: int) -> None:
    """Let the lock have been taken so much earlier."""
    lock = d.journal.locks._ours[task.lower()]
    lock.holder = replace(lock.holder, held_since_s=lock.holder.held_since_s - by_s)


def task_held_by_a_process(d: Desk, *, for_s: int, named: bool) -> AbstractContextManager[int]:
    """As another service on the same folder left it."""
    locks = Locks(d.journal.log.path, d.journal.me)
    lock = locks.take_task("T-1", "worker", "stuck")
    return held_by_a_process(d, lock, locks.record_path("T-1"), for_s=for_s, named=named)


# -- jobs -----------------------------------------------------------------------------------------------------------


async def lost_job(d: Desk, run: str = "gone.job1") -> None:
    """A job that is running as far as the table knows, and whose lock nobody holds."""
    (job,) = await d.jobs.claimable(["work"], 10)
    assert await d.jobs.start(job, run, per_repository=1)


@pytest.mark.proves("FR-3", "R49", "R50")
async def test_of_several_reapers_one_puts_a_lost_job_back_and_it_is_lost_once(tmp_path: Path) -> None:
    async with desk(tmp_path) as d:
        await d.jobs.queue("T-1", "acme/widgets", "work", 1)
        await lost_job(d)
        await asyncio.gather(*(reaper(d).round() for _ in range(5)))
        await reap(reaper(d), rounds=2)
        (job,) = await d.jobs.in_state(JobState.QUEUED)
        assert (job.losses, job.attempts) == (1, 0)
        assert await d.counted("job_lost", "reaper") == 1


@pytest.mark.proves("R49", "R127")
async def test_a_reaper_that_was_stopped_between_look_and_write_changes_no_finished_job(tmp_path: Path) -> None:
    async with desk(tmp_path) as d:
        await d.jobs.queue("T-1", "acme/widgets", "work", 1)
        await lost_job(d)
        (looked_at,) = await d.jobs.in_state(JobState.RUNNING)
        assert await d.jobs.end(looked_at, JobState.DONE)  # the worker finishes meanwhile
        await reaper(d)._lost(looked_at)
        (job,) = await d.jobs.in_state(JobState.DONE)
        assert (job.losses, await d.counted("job_lost", "reaper")) == (0, 0)


@pytest.mark.proves("R55", "O2")
async def test_a_job_that_is_lost_every_time_fails_in_the_end_and_leaves_the_queue(tmp_path: Path) -> None:
    async with desk(tmp_path, clock=StandingClock()) as d:
        await d.open("T-1")
        await d.open("T-2")
        worker = d.worker(*python(NOTE), str(tmp_path / "ran"))
        await d.jobs.queue("T-1", "acme/widgets", "work", 2)
        for n in range(MAX_LOSSES):
            clock = d.journal.clock
            assert isinstance(clock, StandingClock)
            clock.us += 3600_000_000
            await lost_job(d, f"gone.job{n}")
            await reap(reaper(d))
        assert (await d.job("T-1")).state is JobState.FAILED
        await worker.round()
        await worker.idle()
        await worker.round()
        await worker.idle()
        assert (await d.journal.stream("T-1")).state.hold == "parked"
        assert await d.stage("T-2") == "ship"
        assert notes(tmp_path / "ran") == 1


@pytest.mark.proves("R37", "FR-3")
async def test_a_job_that_outlived_its_service_is_left_alone_until_its_time_is_up(tmp_path: Path) -> None:
    async with desk(tmp_path) as d:
        await d.jobs.queue("T-1", "acme/widgets", "work", 1)
        await lost_job(d)
        path = lock_path(d.journal.locks, "T-1")
        with held_by_a_process(d, LockFile.take(path), path, for_s=60, named=True) as group:
            await reap(reaper(d), rounds=3)
            assert lives(group)
            assert len(await d.jobs.in_state(JobState.RUNNING)) == 1
        with held_by_a_process(
            d, LockFile.take(path), path, for_s=66, named=True
        ) as group:  # its 5 s and a minute's grace are over
            await reap(reaper(d))
            for _ in range(400):
                if not is_held(path):
                    break
                await asyncio.sleep(0.005)  # the kernel takes a moment between the kill and the lock
            assert not lives(group)
            await reap(reaper(d))
        (job,) = await d.jobs.in_state(JobState.QUEUED)
        assert job.losses == 1
