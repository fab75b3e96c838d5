"""Reports whose scenario belongs to no other suite, played once each with real files, processes and signals."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import journal.advance
from journal import Journal, advance_stage
from journal.clock import this_process
from journal.events import Acquired
from journal.journal import NewTask
from journal.ownership import Locks
from journal.ports import Answer, Call, Reply
from journal.results import Advanced, Deferred, Done, Freed, Refused, Unavailable
from journal.words import Kind, Opening
from projections import all_views
from recovery.verify import verify
from tests.builders import FileStep, pipeline, step
from tests.conftest import missing

ROOT = Path(__file__).parents[2]
NOBODY = 65534


async def opened(folder: Path, steps: dict[str, FileStep], **more: object) -> Journal:
    """A journal over two exclusive steps with T-1 open in its first stage."""
    definition = pipeline(*(step(name) for name in steps), gates=more.get("gates", ()))  # type: ignore[arg-type]
    journal = await Journal.open(folder / "journal.db", pipeline=definition, steps=steps, **more)  # type: ignore[arg-type]
    if not (await journal.log.read("T-1")).version:
        await journal.open_task(NewTask("T-1", "acme/widgets", "feature/1", stage="analysis"), actor="operator")
    return journal


@dataclass
class Slow(FileStep):
    """A far side that takes its time."""

    called: asyncio.Event = field(default_factory=asyncio.Event)
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def apply(self, call: Call) -> Reply:
        self.called.set()
        await self.goes_on.wait()
        return await super().apply(call)


@dataclass
class SlowGate:
    """A set-up that takes long: it is asked before the first event of the term."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self, call: Call) -> Answer:
        self.asked.set()
        await self.goes_on.wait()
        return Answer(Opening.OPEN)


# -- who is alive ------------------------------------------------------------------------------------------------------

PROGRAM = """
import os, sys
from pathlib import Path
from journal.clock import this_process
from journal.ownership import Locks
me = this_process("instance-2")
{before}
try:
    lock = Locks(Path(sys.argv[1]), me).take_task("T-1", "worker", "run-2")
    print("free" if lock else "held", flush=True)
except PermissionError:
    print("cannot tell", flush=True)
sys.stdin.read()
"""


def looks(db: Path, *, before: str = "", prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """A process that asks for the task, and keeps it while it lives."""
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", PROGRAM.format(before=before), str(db)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that every user may write."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    yield folder / "journal.db"
    shutil.rmtree(folder)


@pytest.mark.proves("R34", "E5")
def test_a_task_that_another_user_holds_is_not_free_and_what_may_not_be_asked_is_no_answer(shared: Path) -> None:
    """Nobody sends signal 0 and reads "permission denied" as dead; whoever may not open the lock learns nothing."""
    if os.getuid():
        missing("root, to become another user")
    ours, as_nobody = Locks(shared, this_process("instance-1")), f"os.setuid({NOBODY})"
    with looks(shared, before=as_nobody) as holder:
        assert said(holder) == "free"
        assert ours.take_task("T-1", "reaper", "run-1") is None
        holder.kill()
    lock = ours.take_task("T-1", "reaper", "run-1")
    assert lock is not None
    ours.tasks_path().chmod(0o600)
    os.chown(ours.tasks_path(), 0, 0)
    with looks(shared, before=as_nobody) as other:
        assert said(other) == "cannot tell"
        other.kill()
    lock.release()


@pytest.mark.proves("R33", "TR-6")
def test_an_owner_seen_from_a_container_with_a_younger_procfs_is_alive(tmp_path: Path) -> None:
    """No boot id, start time or process number is asked: there they all differ, and the lock does not."""
    if shutil.which("unshare") is None:
        missing("unshare")
    ours = Locks(tmp_path / "journal.db", this_process("instance-1"))
    lock = ours.take_task("T-1", "worker", "run-1")
    assert lock is not None
    within = ("unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--")
    with looks(tmp_path / "journal.db", prefix=within) as observer:
        assert said(observer) == "held"
        observer.kill()
    lock.release()


# -- leases ------------------------------------------------------------------------------------------------------------


@pytest.mark.proves("R41", "FR-6")
async def test_who_loses_the_task_in_the_middle_of_a_step_makes_no_further_call(tmp_path: Path) -> None:
    first, second = Slow(tmp_path), FileStep(tmp_path)
    journal = await opened(tmp_path, {"coverage": first, "merge_pr": second})
    run = asyncio.create_task(advance_stage(journal, "T-1"))
    await first.called.wait()
    assert isinstance(await journal.release("T-1", reason="it hangs"), Freed)
    first.goes_on.set()
    assert isinstance(await run, Unavailable)
    assert second.calls("T-1/1/merge_pr") == []
    await journal.close()


@pytest.mark.proves("R42", "R39")
async def test_a_set_up_that_takes_long_loses_no_task(tmp_path: Path) -> None:
    """The lock is taken before anything else and needs no renewal."""
    far, gate = FileStep(tmp_path), SlowGate()
    journal = await opened(tmp_path, {"merge_pr": far}, gates={"coverage": gate})
    run = asyncio.create_task(advance_stage(journal, "T-1"))
    await gate.asked.wait()
    assert isinstance(await advance_stage(journal, "T-1", actor="reaper"), Deferred)
    gate.goes_on.set()
    assert isinstance(await run, Advanced)
    assert len(far.calls("T-1/1/merge_pr")) == 1
    await journal.close()


@pytest.mark.proves("R46", "TR-2")
async def test_a_task_that_is_paused_and_resumed_by_the_next_process_goes_on_at_once(tmp_path: Path) -> None:
    slow = Slow(tmp_path)
    journal = await opened(tmp_path, {"merge_pr": slow})
    run = asyncio.create_task(advance_stage(journal, "T-1"))
    await slow.called.wait()
    assert isinstance(await journal.pause("T-1", reason="lunch"), Done)
    await journal.close()
    await run
    journal = await opened(tmp_path, {"merge_pr": FileStep(tmp_path)})
    assert isinstance(await advance_stage(journal, "T-1"), Refused)
    assert isinstance(await journal.resume("T-1", reason="back"), Done)
    assert isinstance(await advance_stage(journal, "T-1"), Advanced)
    await journal.close()


class Gone(BaseException):
    """The process is killed."""


@dataclass
class Killed(FileStep):
    """A far side in whose call the process dies."""

    async def apply(self, call: Call) -> Reply:
        raise Gone


@dataclass(frozen=True)
class SameName:
    """Every process has the name of the one before."""

    def instance(self) -> str:
        return "0" * 32


@pytest.mark.proves("R125", "E5")
async def test_a_successor_of_the_same_name_keeps_no_dead_owner_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even if its run has the dead one's number: the lock tells them apart, and the epoch."""
    first = await opened(tmp_path, {"merge_pr": Killed(tmp_path)}, ids=SameName())
    with pytest.raises(Gone):
        await advance_stage(first, "T-1")
    dead = (await first.stream("T-1")).state.owner
    assert dead
    await first.close()
    far = FileStep(tmp_path)
    monkeypatch.setattr(journal.advance, "_numbers", itertools.count(int(dead.rpartition(".")[2])))
    second = await opened(tmp_path, {"merge_pr": far}, ids=SameName())
    assert isinstance(await advance_stage(second, "T-1", actor="reaper"), Advanced)
    terms = [e.draft.body for e in await second.events("T-1") if e.kind is Kind.ACQUIRED]
    assert [(t.owner.run, t.before) for t in terms if isinstance(t, Acquired)] == [(dead, ""), (dead, dead)]
    assert len(far.calls("T-1/1/merge_pr")) == 1
    await second.close()


@pytest.mark.proves("R129", "R104")
async def test_a_lost_a_cancelled_and_a_superseded_run_are_told_apart_and_only_the_lost_one_goes_on(
    tmp_path: Path,
) -> None:
    far = FileStep(tmp_path)
    journal = await opened(tmp_path, {"merge_pr": Killed(tmp_path)})
    for task in ("LOST", "CANCELED", "PUSHED"):
        wanted = NewTask(task, "acme/widgets", f"feature/{task}", head="a" * 40, stage="analysis")
        await journal.open_task(wanted, actor="operator")
    with pytest.raises(Gone):
        await advance_stage(journal, "LOST")
    assert isinstance(await journal.cancel("CANCELED", reason="no more"), Done)
    assert isinstance(await journal.change_head("PUSHED", head="b" * 40, actor="webhook"), Done)
    await journal.close()
    journal = await opened(tmp_path, {"merge_pr": far})
    assert isinstance(await advance_stage(journal, "LOST"), Advanced)
    assert isinstance(await advance_stage(journal, "CANCELED"), Refused)
    assert isinstance(await advance_stage(journal, "PUSHED"), Advanced)
    told = {task: {e.kind for e in await journal.events(task)} for task in ("LOST", "CANCELED", "PUSHED")}
    ends = {Kind.CANCELED, Kind.HEAD_CHANGED}
    assert (told["LOST"] & ends, told["CANCELED"] & ends, told["PUSHED"] & ends) == (
        set(),
        {Kind.CANCELED},
        {Kind.HEAD_CHANGED},
    )
    assert far.calls("PUSHED/1/merge_pr") == [] and len(far.calls("PUSHED/2/merge_pr")) == 1
    await journal.close()


@pytest.mark.proves("R130", "V7")
async def test_what_a_person_took_back_after_the_end_is_not_put_there_again(tmp_path: Path) -> None:
    far = FileStep(tmp_path)
    journal = await opened(tmp_path, {"deploy": far})
    assert isinstance(await advance_stage(journal, "T-1"), Advanced)
    await journal.close()
    far.effect("T-1/1/deploy").unlink()
    journal = await opened(tmp_path, {"deploy": far})
    for actor in ("startup", "reconciler", "reaper", "worker"):
        assert isinstance(await advance_stage(journal, "T-1", actor=actor), Refused)
    assert len(far.calls("T-1/1/deploy")) == 1 and not far.effect("T-1/1/deploy").exists()
    await journal.close()


@pytest.mark.proves("R47", "L5")
async def test_no_time_is_stored_as_text(tmp_path: Path) -> None:
    """Text sorts a whole second behind its own fractions; integers do not."""
    journal = await opened(tmp_path, {"merge_pr": FileStep(tmp_path)}, projections=all_views())
    await journal.close()
    with closing(sqlite3.connect(tmp_path / "journal.db")) as db:
        tables = [name for name, strict in db.execute("SELECT name, strict FROM pragma_table_list") if strict]
        times = {
            f"{table}.{column}": kind
            for table in tables
            for _, column, kind, *_ in db.execute(f"PRAGMA table_info({table})")
            if column == "at" or column.endswith(("_us", "_ms", "_s"))
        }
    assert len(times) > 10
    assert set(times.values()) == {"INTEGER"}, times


# -- the database ------------------------------------------------------------------------------------------------------


@pytest.mark.proves("R79")
async def test_a_reader_that_holds_a_snapshot_delays_no_start(tmp_path: Path) -> None:
    """Starting needs no checkpoint, and neither does closing."""
    await (await opened(tmp_path, {"merge_pr": FileStep(tmp_path)})).close()
    with closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        before = reader.execute("SELECT max(position) FROM journal_events").fetchone()
        journal = await opened(tmp_path, {"merge_pr": FileStep(tmp_path)})
        assert isinstance(await advance_stage(journal, "T-1"), Advanced)
        await journal.close()
        assert reader.execute("SELECT max(position) FROM journal_events").fetchone() == before
        reader.execute("COMMIT")
        assert verify(reader).intact


FORKS = """
import asyncio, os, signal, sys, threading
from pathlib import Path
from tests.contract.test_what_broke_for_others import FileStep, advance_stage, opened

async def in_the_child(journal):
    print("child:", await journal.pause("T-1", reason="from a fork"), flush=True)

async def main():
    folder = Path(sys.argv[1])
    journal = await opened(folder, {"merge_pr": FileStep(folder)})
    child = os.fork()
    if not child:
        signal.alarm(60)
        # A loop of its own: closing the inherited one would take its descriptors away from the parent.
        own = threading.Thread(target=asyncio.run, args=(in_the_child(journal),))
        own.start()
        own.join()
        os._exit(0)
    os.waitpid(child, 0)
    print("parent:", type(await advance_stage(journal, "T-1")).__name__, flush=True)
    await journal.close()

asyncio.run(main())
"""


@pytest.mark.proves("R82", "T9")
def test_a_journal_carried_over_a_fork_is_refused_in_the_child_and_whole_in_the_parent(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FORKS, str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    child = next(line for line in ran.stdout.splitlines() if line.startswith("child:"))
    assert "carried over a fork" in child and "Done" not in child, ran.stdout
    assert "parent: Advanced" in ran.stdout, (ran.stdout, ran.stderr)
    with closing(sqlite3.connect(tmp_path / "journal.db")) as db:
        assert verify(db).intact


@pytest.mark.proves("R89")
async def test_who_reads_a_history_slowly_keeps_no_write_ahead_log_from_being_reused(tmp_path: Path) -> None:
    """Each page is a read of its own; a snapshot held open, as the second half does, lets the file grow."""
    journal = await opened(tmp_path, {"merge_pr": FileStep(tmp_path)}, projections=all_views())
    wal = tmp_path / "journal.db-wal"

    async def writes(n: int) -> int:
        at = 0
        for _ in range(n):
            await journal.pause("T-1", reason="x" * 500)
            at += len(await journal.events("T-1", after=at, limit=1))  # the slow client takes its next line
            await journal.resume("T-1", reason="y" * 500)
        return wal.stat().st_size

    bounded = await writes(250)
    with closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as holds:
        holds.execute("BEGIN")
        holds.execute("SELECT count(*) FROM journal_events").fetchone()
        unbounded = await writes(250)
        holds.execute("ROLLBACK")
    await journal.close()
    assert bounded < 6_000_000 < unbounded
