"""The worker's queue with real processes: what ran is counted in files, outside of the journal (DESIGN 8, TR-9)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from integrations.settings import load
from integrations.wiring import build
from journal.errors import InvalidInputError
from journal.locks import LockFile
from journal.results import Done
from journal.words import Kind
from recovery.jobs import JobState, lock_path
from tests.acting import NOTE, Desk, desk, lives, notes, python, three_stages

WAITS = "import os, sys, time; os.write(os.open(sys.argv[1], 1089, 0o600), b'x'); time.sleep(60)"


async def until(true_of: Callable[[], object], what: str) -> None:
    """Wait for something outside, by looking; far longer than it takes."""
    for _ in range(2000):
        if true_of():
            return
        await asyncio.sleep(0.005)
    raise AssertionError(what)


async def work_off(d: Desk, *command: str, rounds: int = 3, **more: Any) -> None:
    worker = d.worker(*command, **more)
    for _ in range(rounds):
        await worker.round()
        await worker.idle()


@pytest.mark.proves("FR-2", "NFR-5")
async def test_a_finished_job_takes_its_edge_from_the_expected_stage_and_ran_once(tmp_path: Path) -> None:
    async with desk(tmp_path) as d:
        await d.open("T-1")
        await work_off(d, *python(NOTE), str(tmp_path / "ran"))
        assert (await d.stage("T-1"), notes(tmp_path / "ran")) == ("ship", 1)
        assert d.asked == [("T-1", "worker", "work")]
        (moved,) = await d.events("T-1", Kind.STAGE_MOVED)
        assert moved.draft.actor == "worker"


@pytest.mark.proves("R48", "FR-3")
async def test_a_job_that_is_found_due_forty_times_while_it_runs_is_started_once(tmp_path: Path) -> None:
    async with desk(tmp_path) as d:
        await d.open("T-1")
        worker = d.worker(*python(WAITS), str(tmp_path / "ran"))
        other = d.worker(*python(WAITS), str(tmp_path / "ran"))
        await worker.round()
        await until(lambda: notes(tmp_path / "ran"), "the job starts")
        for _ in range(40):
            await worker.round()
            await other.round()
        assert (notes(tmp_path / "ran"), worker.running, other.running) == (1, 1, 0)
        await worker.stop()


@pytest.mark.proves("R37", "R128")
async def test_no_job_starts_beside_what_is_left_of_an_earlier_one_of_its_task(tmp_path: Path) -> None:
    async with desk(tmp_path) as d:
        await d.open("T-1")
        left = LockFile.take(lock_path(d.journal.locks, "T-1"))  # as its process would hold it
        assert left is not None
        await work_off(d, *python(NOTE), str(tmp_path / "ran"))
        assert (notes(tmp_path / "ran"), (await d.job("T-1")).state) == (0, JobState.QUEUED)
        left.release()
        await work_off(d, *python(NOTE), str(tmp_path / "ran"))
        assert notes(tmp_path / "ran") == 1


@pytest.mark.proves("R45", "O2", "O5")
async def test_a_job_that_keeps_failing_is_tried_its_times_and_then_parks_the_task(tmp_path: Path) -> None:
    async with desk(tmp_path) as d:
        await d.open("T-1")
        fails = python(f"{NOTE}; print('no such tool', file=sys.stderr); sys.exit(3)")
        await work_off(d, *fails, str(tmp_path / "ran"), retries=2, rounds=6)
        state = (await d.journal.stream("T-1")).state
        assert (state.hold, state.stage, notes(tmp_path / "ran")) == ("parked", "work", 3)
        (parked,) = await d.events("T-1", Kind.PARKED)
        assert "exit 3: no such tool" in parked.body_text
        # A person frees it: the job begins anew, with all its tries.
        assert isinstance(await d.journal.resume("T-1", reason="tool installed"), Done)
        await work_off(d, *python(NOTE), str(tmp_path / "ran"))
        assert (await d.stage("T-1"), notes(tmp_path / "ran")) == ("ship", 4)


@pytest.mark.proves("R104")
@pytest.mark.parametrize("verb", ["cancel", "pause"])
async def test_a_job_that_nobody_waits_for_is_gone_with_its_group_within_a_second(tmp_path: Path, verb: str) -> None:
    stubborn = (
        "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); child = os.fork(); "
        "open(sys.argv[1] + ('.child' if not child else '.parent'), 'w').write(str(os.getpid())); "
        "os.rename(sys.argv[1] + ('.child' if not child else '.parent'), sys.argv[1] + ('1' if not child else '2')); "
        "time.sleep(60)"
    )
    async with desk(tmp_path) as d:
        await d.open("T-1")
        worker = d.worker(*python(stubborn), str(tmp_path / "pid"))
        assert d.journal.log.writer is not None
        d.journal.log.writer.on_events = worker.on_events
        serving = asyncio.create_task(worker.serve())
        await until(lambda: all((tmp_path / f"pid{n}").exists() for n in "12"), "both processes run")
        pids = [int((tmp_path / f"pid{n}").read_text()) for n in "12"]
        assert isinstance(await getattr(d.journal, verb)("T-1", reason="not now"), Done)
        began = time.monotonic()
        await until(lambda: not any(lives(pid) for pid in pids), "both end")
        assert time.monotonic() - began < 1.0
        await until(lambda: not worker.running, "the worker is done with it")
        assert (await d.job("T-1")).state is JobState.DROPPED
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        if verb == "pause":
            await d.journal.resume("T-1", reason="now")
            await work_off(d, *python(NOTE), str(tmp_path / "ran"))
            assert (await d.stage("T-1"), notes(tmp_path / "ran")) == ("ship", 1)


@pytest.mark.proves("R126", "R43")
async def test_a_restart_on_the_last_allowed_try_uses_none_up(tmp_path: Path) -> None:
    async with desk(tmp_path) as d:
        await d.open("T-1")
        for n in range(1, 4):
            worker = d.worker(*python(WAITS), str(tmp_path / "ran"), retries=0)
            await worker.round()
            await until(lambda: notes(tmp_path / "ran") == n, "the job starts")  # noqa: B023  (awaited at once)
            await worker.stop()  # as SIGTERM does
            job = await d.job("T-1")
            assert (job.state, job.attempts, job.losses) == (JobState.QUEUED, 0, 0)
        await work_off(d, *python(NOTE), str(tmp_path / "ran"), retries=0)
        assert await d.stage("T-1") == "ship"


@pytest.mark.proves("R40", "R49", "R127")
async def test_a_late_verdict_about_a_run_that_was_replaced_changes_nothing(tmp_path: Path) -> None:
    async with desk(tmp_path) as d:
        await d.jobs.queue("T-1", "acme/widgets", "work", 1)
        (job,) = await d.jobs.claimable(["work"], 10)
        first = await d.jobs.start(job, "run-1", per_repository=1)
        assert first is not None
        assert await d.jobs.again(first, lost=1)
        (job,) = await d.jobs.claimable(["work"], 10)
        second = await d.jobs.start(job, "run-2", per_repository=1)
        assert second is not None
        assert not await d.jobs.end(first, JobState.DONE)
        assert not await d.jobs.end(first, JobState.FAILED, "late")
        assert not await d.jobs.again(first, lost=1)
        (now,) = await d.jobs.in_state(JobState.RUNNING)
        assert (now.run, now.losses) == ("run-2", 1)
        assert await d.jobs.end(second, JobState.DONE)
        assert not await d.jobs.again(second, lost=1)  # done is done


@pytest.mark.proves("TR-9")
async def test_a_repository_with_a_long_line_runs_its_limit_and_starves_no_other(tmp_path: Path) -> None:
    async with desk(tmp_path) as d:
        for n in range(250):
            await d.open(f"L-{n}", repo="acme/long")
        await d.open("S-1", repo="acme/short")
        worker = d.worker(*python(WAITS), str(tmp_path / "ran"), slots=8, per_repository=2)
        await worker.round()
        assert worker.running == 2  # 200 tasks are looked at in one round, all of the long line
        await worker.round()
        running = [job.repo for job in await d.jobs.in_state(JobState.RUNNING)]
        assert sorted(running) == ["acme/long", "acme/long", "acme/short"]
        await worker.stop()


@pytest.mark.proves("TR-9", "FR-7")
async def test_one_task_whose_ownership_cannot_be_told_stops_nobody_else(tmp_path: Path) -> None:
    async with desk(tmp_path) as d:
        for task in ("T-1", "T-2", "T-3"):
            await d.open(task)
        lock_path(d.journal.locks, "T-1").mkdir(parents=True)  # its job can never be locked
        await work_off(d, *python(NOTE), str(tmp_path / "{task}"), per_repository=9)
        assert [notes(tmp_path / task) for task in ("T-1", "T-2", "T-3")] == [0, 1, 1]
        assert await d.stage("T-3") == await d.stage("T-2") == "ship"


@pytest.mark.proves("TR-9", "E5")
async def test_where_nobody_can_be_asked_who_owns_a_task_jobs_run_and_no_stage_moves(tmp_path: Path) -> None:
    async with desk(tmp_path) as d:
        await d.open("T-1")
        tasks = d.journal.locks.tasks_path()
        tasks.unlink(missing_ok=True)
        tasks.mkdir(parents=True)
        await work_off(d, *python(NOTE), str(tmp_path / "{task}"))
        assert notes(tmp_path / "T-1") == 1
        assert await d.stage("T-1") == "work"  # the advance fails closed


@pytest.mark.proves("R96")
async def test_what_a_job_says_is_cut_and_what_it_may_take_is_bounded(tmp_path: Path) -> None:
    async with desk(tmp_path) as d:
        await d.open("T-1")
        loud = python("import sys; sys.stderr.write('noise ' * 2_000_000); sys.stderr.flush(); sys.exit(1)")
        await work_off(d, *loud, retries=5, rounds=1)
        job = await d.job("T-1")
        assert (job.state, job.attempts) == (JobState.QUEUED, 1)
        assert 0 < len(job.said) <= 2000
        slow = python("import time; time.sleep(60)")
        began = time.monotonic()
        await work_off(d, *slow, retries=5, rounds=1, timeout_s=0.3)
        assert time.monotonic() - began < 10
        assert "no end within 0.3 s" in (await d.job("T-1")).said


@pytest.mark.proves("R100")
async def test_a_job_is_told_its_task_and_data_never_becomes_a_program_or_shell(tmp_path: Path) -> None:
    async with desk(tmp_path) as d:
        await d.open("T-1", branch="x;touch${IFS}y", head="a" * 40)
        code = "import json, os, sys; json.dump([sys.argv[2:], os.environ['JOURNAL_BRANCH']], open(sys.argv[1], 'w'))"
        await work_off(d, *python(code), str(tmp_path / "told"), "{task}", "{branch}", "{head}")
        expected = '[["T-1", "x;touch${IFS}y", "' + "a" * 40 + '"], "x;touch${IFS}y"]'
        assert (tmp_path / "told").read_text() == expected


@pytest.mark.proves("R128")
async def test_a_job_whose_task_went_elsewhere_is_dropped_and_a_new_entry_gets_its_own(tmp_path: Path) -> None:
    async with desk(tmp_path, three_stages()) as d:
        await d.open("T-1")
        worker = d.worker(*python(NOTE), str(tmp_path / "ran"))
        await d.jobs.queue("T-1", "acme/widgets", "work", 999)  # of an earlier entry
        await worker.round()
        await worker.idle()
        rows = await d.journal.log.query("SELECT entered = 999, state FROM journal_jobs ORDER BY id")
        assert [tuple(row) for row in rows] == [(1, "dropped"), (0, "done")]
        assert notes(tmp_path / "ran") == 1


@pytest.mark.proves("NFR-8")
@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('[jobs.review]\ncommand = ["true", "{secret}"]', "unknown placeholder {secret}"),
        ('[jobs.review]\ncommand = ["{task}"]', "program's own name"),
        ("[jobs.review]\ncommand = []", "command"),
        ('[jobs.review]\ncommand = ["true"]\nretrys = 3', "retrys"),
        ('[jobs.testing]\ncommand = ["true"]', "no edge with `advance = \"job\"` leaves stage 'testing'"),
    ],
)
def test_a_job_that_cannot_work_is_refused_at_load_with_its_key(tmp_path: Path, table: str, says: str) -> None:
    stages = ("review", "testing", "done")
    edges = '[[pipeline.edges]]\nfrom = "review"\nto = "testing"\nadvance = "job"\n'
    edges += '[[pipeline.edges]]\nfrom = "testing"\nto = "done"\n'
    text = f"[pipeline]\nstages = {list(stages)}\non_new_head = 'review'\n{edges}{table}\n[steps]\n[gates]\n"
    file = tmp_path / "journal.toml"
    file.write_text(text)
    with pytest.raises(InvalidInputError, match=r"jobs\.") as refused:
        build(load(file))
    assert says in str(refused.value)


async def test_the_program_that_is_missing_is_named(tmp_path: Path) -> None:
    async with desk(tmp_path) as d:
        await d.open("T-1")
        await work_off(d, str(tmp_path / "nothing"), retries=0, rounds=2)
        assert "not started: " in (await d.journal.stream("T-1")).reason
