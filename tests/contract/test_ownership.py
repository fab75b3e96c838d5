"""
Locks as the only liveness: real flocks, real processes, real signals (E5, F6, O4; reports R27-R38).

No test waits on time: a process says on its output that it is where the test needs it, and a lock is asked for anew.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from journal import Journal
from journal.clock import this_process
from journal.errors import NotWriterError
from journal.events import Owner
from journal.locks import LockFile, is_held, read_holder
from journal.ownership import Locks, held_for_s, same_ids
from tests.builders import pipeline

ROOT = Path(__file__).parents[2]
ME = Owner("", "instance-1", "host", os.getpid(), "boot-1", 7)


@pytest.fixture
def locks(tmp_path: Path) -> Locks:
    return Locks(tmp_path / "journal.db", ME)


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a Python program and wait for its first line; whatever is left is killed at the end."""
    with ExitStack() as stack:

        def run(code: str, *args: object, **more: Any) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-c", code, *map(str, args)],
                stdout=subprocess.PIPE,
                stdin=subprocess.PIPE,
                text=True,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                **more,
            )
            stack.callback(_end, process)
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready")
            return process

        yield run


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


HOLDER = """
import sys
from pathlib import Path
from journal.clock import this_process
from journal.ownership import Locks
lock = Locks(Path(sys.argv[1]), this_process("instance-2")).take_task("T-1", "worker", "run-2")
print("ready", lock is not None, flush=True)
sys.stdin.read()
"""

PARENT = """
import subprocess, sys
from pathlib import Path
from journal.clock import this_process
from journal.ownership import Locks
lock = Locks(Path(sys.argv[1]), this_process("instance-2")).take_task("T-1", "worker", "run-2")
child = subprocess.Popen(
    [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"],
    pass_fds=[lock.fd], stdout=subprocess.PIPE, start_new_session=True,
)
child.stdout.readline()
lock.child_started(child.pid)
print("ready", child.pid, flush=True)
if sys.argv[2] == "release":
    lock.release()
    print("released", flush=True)
sys.stdin.read()
"""

WRITER = """
import asyncio, sys
from journal import Journal
from tests.builders import pipeline
async def main():
    async with Journal.open(sys.argv[1], pipeline=pipeline(), steps={}, address="127.0.0.1:8080"):
        print("ready", flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


def pidfd_ends(pid: int) -> None:
    """Wait until the process is gone; the kernel frees its locks before it says so."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    select.select([fd], [], [], 30)
    os.close(fd)


@pytest.mark.proves("E5", "FR-1")
def test_inside_one_process_the_second_taker_is_turned_away_and_others_are_not(locks: Locks) -> None:
    first = locks.take_task("T-1", "worker", "run-1")
    assert first is not None
    assert locks.take_task("T-1", "reaper", "run-2") is None
    other = locks.take_task("T-2", "worker", "run-3")
    assert other is not None

    first.release()
    first.release()  # every ending gives it back; one that comes twice frees nobody else's
    again = locks.take_task("T-1", "reaper", "run-4")
    assert again is not None
    first.release()
    assert locks.is_held("T-1")
    again.release()
    other.release()
    assert not locks.is_held("T-1")


@pytest.mark.proves("E5", "TR-6", "FR-1", "R38")
def test_of_two_processes_one_holds_the_task_until_it_dies(
    locks: Locks, tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    process = start(HOLDER, tmp_path / "journal.db")
    assert locks.take_task("T-1", "worker", "run-1") is None
    process.kill()
    process.wait()
    assert locks.take_task("T-1", "worker", "run-1") is not None


@pytest.mark.proves("E5", "TR-10", "T8")
def test_a_stopped_holder_keeps_its_task_until_it_is_killed(
    locks: Locks, tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    """It may wake up in the middle of an effect; no clock makes taking over safe."""
    process = start(HOLDER, tmp_path / "journal.db")
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    assert locks.take_task("T-1", "reaper", "run-1") is None
    process.send_signal(signal.SIGCONT)
    assert locks.take_task("T-1", "reaper", "run-1") is None
    process.send_signal(signal.SIGSTOP)
    process.kill()
    process.wait()
    assert locks.take_task("T-1", "reaper", "run-1") is not None


@pytest.mark.proves("E5", "T8", "TR-10")
def test_a_child_inherits_the_task_and_outlives_its_killed_owner(
    locks: Locks, tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    process = start(PARENT, tmp_path / "journal.db", "die")
    (child,) = locks.holder_of("T-1").groups
    process.kill()
    process.wait()
    assert locks.take_task("T-1", "startup", "run-1") is None  # the successor defers
    os.kill(child, signal.SIGSTOP)
    assert locks.take_task("T-1", "startup", "run-1") is None
    os.kill(child, signal.SIGKILL)
    pidfd_ends(child)
    assert locks.take_task("T-1", "startup", "run-1") is not None


@pytest.mark.proves("E5")
def test_a_term_that_ends_with_a_child_alive_leaves_the_lock_to_the_child(
    locks: Locks, tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    """LOCK_UN would free the child's copy as well, so it is used only when no child is left."""
    process = start(PARENT, tmp_path / "journal.db", "release")
    assert process.stdout is not None
    assert process.stdout.readline() == "released\n"
    (child,) = locks.holder_of("T-1").groups
    assert locks.take_task("T-1", "worker", "run-1") is None
    os.kill(child, signal.SIGKILL)
    pidfd_ends(child)
    process.kill()
    process.wait()  # reaps the child too
    assert locks.take_task("T-1", "worker", "run-1") is not None


@pytest.mark.proves("E5")
def test_unlocking_frees_every_copy_of_the_descriptor(locks: Locks) -> None:
    """Why children are ended first: this is what the kernel does."""
    lock = locks.take_task("T-1", "worker", "run-1")
    assert lock is not None
    copy = os.dup(lock.fd)
    lock.release()  # no child is named: unlocks
    taken = locks.take_task("T-1", "worker", "run-2")
    assert taken is not None
    os.close(copy)
    assert locks.is_held("T-1")
    taken.release()


@pytest.mark.proves("E5", "S9")
def test_no_child_gets_a_lock_that_it_was_not_given(locks: Locks) -> None:
    lock = locks.take_task("T-1", "worker", "run-1")
    writer = locks.take_writer("journal")
    assert lock is not None
    assert writer is not None
    held = [str(locks.tasks_path()), str(locks.writer_path())]
    ran = subprocess.run(
        [sys.executable, "-c", "import os; print([os.readlink(f'/proc/self/fd/{f}') for f in (3,4,5,6,7,8,9)"
         " if os.path.lexists(f'/proc/self/fd/{f}')])"],
        check=True, capture_output=True, text=True, close_fds=False,
    )  # fmt: skip
    assert all(path not in ran.stdout for path in held)
    lock.release()
    writer.release()


@pytest.mark.proves("R27", "R28", "R29", "R30", "R31", "R32", "R37", "F6", "O4")
@pytest.mark.parametrize(
    "written",
    [
        {"pid": 1},
        {"pid": os.getpid(), "instance": "another"},
        {"pid": os.getppid(), "boot": "boot-1", "ticks": 7},
        {"pid": 0, "boot": None, "groups": None},
        {"pid": -1, "boot": "", "ticks": "x", "groups": [0, -1, 1, True, None, 2**70, "7"]},
        {"held_since_s": 2**62},
        {"held_since_s": -5, "unknown": [1]},
        [],
        "text",
        None,
    ],
    ids=[
        "pid 1",
        "our own pid",
        "a living stranger",
        "nulls",
        "numbers no process has",
        "held in the future",
        "held before the boot",
        "a list",
        "a text",
        "null",
    ],
)
def test_what_is_told_of_a_holder_never_keeps_a_free_task_from_being_taken(locks: Locks, written: object) -> None:
    path = locks.record_path("T-1")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(written))
    holder = locks.holder_of("T-1")
    assert all(type(group) is int and group > 1 for group in holder.groups)
    assert held_for_s(holder) >= 0
    assert str(holder)
    lock = locks.take_task("T-1", "worker", "run-1")
    assert lock is not None
    assert locks.holder_of("T-1").run == "run-1"
    assert lock.fd > 0  # a child may inherit it: from now on others read whose it is, too
    assert Locks(locks.folder.with_suffix(""), ME).holder_of("T-1").run == "run-1"
    lock.release()


@pytest.mark.proves("R30", "R31", "R32")
def test_numbers_of_processes_count_only_where_they_mean_the_same(locks: Locks) -> None:
    """Two containers share a boot id, and both have a group 57; an unknown is equal to nothing."""
    mine = locks.holder("worker")
    assert same_ids(mine, ME)
    assert not same_ids(replace(mine, namespace=mine.namespace + 1), ME)
    assert not same_ids(replace(mine, namespace=0), ME)
    assert not same_ids(replace(mine, boot="boot-2"), ME)
    assert not same_ids(replace(mine, boot=""), replace(ME, boot=""))


@pytest.mark.proves("R32")
def test_a_machine_that_hides_its_boot_id_still_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("journal.clock.Path", lambda _: tmp_path / "hidden")
    me = this_process("instance-1")
    assert (me.boot, me.ticks) == ("", 0)
    assert Locks(tmp_path / "journal.db", me).take_task("T-1", "worker", "run-1") is not None


@pytest.mark.proves("E5")
@pytest.mark.parametrize("task", ["../../x", "a/b", "..", ".", "-rf", "%2e%2e", "T-1\0", "x" * 60, "A:b"])
def test_no_task_id_names_a_file_outside_the_folder(locks: Locks, task: str) -> None:
    """The ids are checked at the edge as well; here none of them could do harm."""
    path = locks.record_path(task)
    assert path.resolve().parent == (locks.folder / "tasks").resolve()
    lock = locks.take_task(task, "worker", "run-1")
    assert lock is not None
    assert locks.is_held(task)
    lock.release()


@pytest.mark.proves("E5")
def test_ids_that_differ_in_case_only_share_a_lock(locks: Locks) -> None:
    lock = locks.take_task("T-1", "worker", "run-1")
    assert lock is not None
    assert locks.take_task("t-1", "worker", "run-2") is None
    assert locks.holder_of("t-1").run == "run-1"
    lock.release()


@pytest.mark.proves("E5")
def test_a_lock_that_was_given_back_tells_nothing_over_its_next_holder(locks: Locks) -> None:
    first = locks.take_task("T-1", "worker", "run-1")
    assert first is not None
    first.release()
    second = locks.take_task("T-1", "worker", "run-2")
    assert second is not None
    assert second.fd > 0
    first.child_ended(4711)
    assert read_holder(locks.record_path("T-1")).run == "run-2"
    second.release()
    first.child_ended(4711)
    assert not locks.record_path("T-1").exists()


@pytest.mark.proves("E5")
def test_a_thousand_tasks_leave_one_file_behind(locks: Locks) -> None:
    """A file for each would be a million for a million tasks."""
    held = [locks.take_task(f"T-{n}", "worker", "run-1") for n in range(1000)]
    assert all(held)
    for lock in held:
        assert lock is not None
        lock.release()
    assert [path.name for path in locks.folder.rglob("*")] == ["tasks.lock"]
    assert locks.tasks_path().stat().st_size == 0


@pytest.mark.proves("E5")
def test_a_link_in_the_place_of_a_lock_file_is_not_followed(locks: Locks, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("keep")
    record = locks.record_path("T-1")
    record.parent.mkdir(parents=True)
    record.symlink_to(target)
    lock = locks.take_task("T-1", "worker", "run-1")
    assert lock is not None
    assert lock.fd > 0  # whatever cannot be told is no reason to give the lock up
    lock.child_started(4711)
    assert target.read_text() == "keep"
    locks.tasks_path().unlink()
    locks.tasks_path().symlink_to(target)
    with pytest.raises(OSError, match="symbolic link"):
        locks.take_task("T-1", "worker", "run-1")


@pytest.mark.proves("E5")
def test_a_lock_on_a_file_that_was_swapped_meanwhile_is_none(locks: Locks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever removes the folder under us must not make two holders that never meet."""
    take: dict[str, Callable[[], object]] = {
        "flock": lambda: LockFile.take(locks.writer_path()),
        "fcntl": lambda: locks.take_task("T-1", "worker", "run-1"),
    }
    for call, path in (("flock", locks.writer_path()), ("fcntl", locks.tasks_path())):
        real = getattr(fcntl, call)

        def swapped_first(fd: int, *how: Any, path: Path = path, call: str = call, real: Any = real) -> object:
            monkeypatch.setattr(f"journal.locks.fcntl.{call}", real)
            path.unlink()
            path.touch()
            return real(fd, *how)

        monkeypatch.setattr(f"journal.locks.fcntl.{call}", swapped_first)
        assert take[call]() is None
        assert take[call]() is not None


@pytest.mark.proves("FR-6", "S10")
def test_what_is_told_is_always_whole_however_much_was_told_before(locks: Locks) -> None:
    lock = locks.take_task("T-1", "worker", "run-1")
    assert lock is not None
    path = locks.record_path("T-1")
    groups = list(range(1000, 1400))
    for group in groups:
        lock.child_started(group)
    assert read_holder(path).groups == tuple(groups)
    for group in groups[1:]:
        lock.child_ended(group)
    assert read_holder(path) == replace(read_holder(path), run="run-1", groups=(1000,))
    lock.child_ended(1000)
    assert read_holder(path).actor == "worker"
    lock.release()
    assert not path.exists()  # nobody is left that it could tell of


@pytest.mark.proves("S4", "E5", "R27", "R38", "TR-6")
async def test_a_standby_is_told_who_drives_and_takes_over_when_the_driver_is_killed(
    tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    db = tmp_path / "journal.db"
    process = start(WRITER, db)
    with pytest.raises(NotWriterError, match=rf":{process.pid}"):
        await Journal.open(db, pipeline=pipeline(), steps={})
    locks = Locks(db, ME)
    assert read_holder(locks.writer_path()).address == "127.0.0.1:8080"

    process.send_signal(signal.SIGSTOP)
    with pytest.raises(NotWriterError):
        await Journal.open(db, pipeline=pipeline(), steps={})
    process.kill()
    process.wait()
    async with Journal.open(db, pipeline=pipeline(), steps={}) as journal:
        assert journal.log.broken is None
    assert not is_held(locks.writer_path())


@pytest.mark.proves("TR-2", "S4")
async def test_an_opening_that_fails_gives_the_writer_lock_back(tmp_path: Path) -> None:
    db = tmp_path / "journal.db"
    db.write_text("not a database, and long enough to be taken for a header of one\n" * 40)
    for _ in range(2):
        with pytest.raises(Exception, match="not an SQLite database"):
            await Journal.open(db, pipeline=pipeline(), steps={})
    assert not is_held(Locks(db, ME).writer_path())
