"""Real processes, real signals, real locks: a step's child ends by its budget and carries the task's lock (E5, E9)."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from journal.children import OUTPUT_LIMIT, UNSEEN, kill_group, run_child

PYTHON = sys.executable


@dataclass
class Lock:
    """A task lock as `journal.ports.Term`, and what was written into it."""

    path: Path
    fd: int = -1
    groups: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)

    def take(self) -> Lock:
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return self

    def child_started(self, group: int) -> None:
        self.groups.append(group)

    def child_ended(self, group: int) -> None:
        self.ended.append(group)


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[Lock]:
    taken = Lock(tmp_path / "task.lock").take()
    yield taken
    os.close(taken.fd)


def busy(path: Path) -> bool:
    other = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(other)
    return False


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in {"Z", "X"}
    except FileNotFoundError:
        return False


def reaped(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def zombies() -> list[str]:
    mine = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [pid for pid in mine if not alive(int(pid))]


def start(argv: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv)


async def until(seen: Callable[[], bool], turns: int = 500) -> None:
    for _ in range(turns):
        if seen():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it never came true")


async def test_a_child_reports_its_code_its_output_and_reads_what_it_is_given() -> None:
    ended = await run_child(
        [PYTHON, "-c", "import sys; d = sys.stdin.read(); print(len(d)); sys.stderr.write('why'); sys.exit(7)"],
        budget_s=20,
        stdin=b"x" * 300_000,
    )
    assert (ended.code, ended.text, ended.tail) == (7, "300000", "why")
    assert not ended.timed_out and not ended.left_behind


async def test_a_child_that_never_reads_its_input_ends_all_the_same() -> None:
    assert (await run_child(["true"], budget_s=20, stdin=b"x" * 3_000_000)).code == 0


async def test_what_a_chatty_child_says_is_bounded_and_it_is_not_blocked() -> None:
    ended = await run_child([PYTHON, "-c", "print('x' * 3_000_000); print('y' * 3_000_000)"], budget_s=20)
    assert ended.code == 0 and len(ended.out) == OUTPUT_LIMIT


@pytest.mark.proves("E6")
@pytest.mark.parametrize("argv", [["/nonexistent/program"], ["true", "a\0b"], ["true", "\ud800"]])
async def test_a_program_that_cannot_be_started_has_done_nothing(argv: list[str], lock: Lock) -> None:
    with pytest.raises(OSError, match=r"."):
        await run_child(argv, budget_s=5, term=lock)
    assert lock.groups == []


async def test_without_budget_nothing_is_started(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        await run_child(["touch", str(tmp_path / "it")], budget_s=0)
    assert not (tmp_path / "it").exists()


STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
inner = subprocess.Popen(["sleep", "600"])
print(inner.pid, flush=True)
open(sys.argv[1], "w").write(f"{os.getpid()} {inner.pid}")
time.sleep(600)
"""


@pytest.mark.proves("E9")
async def test_a_hanging_child_and_its_whole_group_die_at_the_budget(tmp_path: Path, lock: Lock) -> None:
    """The child ignores SIGTERM and has a child of its own; both are gone, reaped, and out of the lock file."""
    ended = await run_child([PYTHON, "-c", STUBBORN, str(tmp_path / "pids")], budget_s=1.5, term=lock)
    assert ended.timed_out and ended.code == -signal.SIGKILL and not ended.left_behind
    child, inner = map(int, (tmp_path / "pids").read_text().split())
    assert reaped(child)
    await until(lambda: not alive(inner))
    assert lock.groups == lock.ended == [child]


@pytest.mark.proves("E9")
async def test_cancelling_a_run_kills_the_group_before_the_cancellation_goes_on(tmp_path: Path, lock: Lock) -> None:
    pids = tmp_path / "pids"
    running = asyncio.create_task(run_child([PYTHON, "-c", STUBBORN, str(pids)], budget_s=600, term=lock))
    await until(lambda: pids.exists() and len(pids.read_text().split()) == 2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    child, inner = map(int, pids.read_text().split())
    assert reaped(child)
    await until(lambda: not alive(inner))
    assert lock.ended == [child]


async def test_a_run_cancelled_before_it_began_starts_nothing(tmp_path: Path) -> None:
    running = asyncio.create_task(run_child(["touch", str(tmp_path / "it")], budget_s=5))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not (tmp_path / "it").exists()


@pytest.mark.proves("E5", "E9")
async def test_a_grandchild_left_in_the_group_ends_with_its_parent(lock: Lock) -> None:
    script = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True)"
    ended = await run_child([PYTHON, "-c", script], budget_s=30, term=lock)
    assert ended.code == 0 and not ended.left_behind
    await until(lambda: not alive(int(ended.text)))


FLED = "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid, flush=True)"


@pytest.mark.proves("E9")
@pytest.mark.parametrize("hangs", [False, True])
async def test_a_descendant_in_another_session_that_holds_the_pipe_does_not_hang_us(lock: Lock, hangs: bool) -> None:
    script = FLED + ("; import time; time.sleep(600)" if hangs else "")
    ended = await asyncio.wait_for(run_child([PYTHON, "-c", script], budget_s=1.5, term=lock), 20)
    try:
        assert ended.left_behind and ended.timed_out == hangs
        assert alive(int(ended.text))
    finally:
        os.kill(int(ended.text), signal.SIGKILL)


OWNER = """
import asyncio, fcntl, os, sys
sys.path.insert(0, sys.argv[3])
from journal.children import run_child

class Term:
    fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    def child_started(self, group): open(sys.argv[2], "w").write(str(group))
    def child_ended(self, group): pass

fcntl.flock(Term.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
asyncio.run(run_child(["sleep", "600"], budget_s=600, term=Term()))
"""


@pytest.mark.proves("E5", "R37")
async def test_a_child_that_outlives_its_owner_keeps_the_task_locked_until_it_ends(tmp_path: Path) -> None:
    task, started = tmp_path / "task.lock", tmp_path / "started"
    root = str(Path(__file__).parents[2])
    owner = start([PYTHON, "-c", OWNER, str(task), str(started), root])
    await until(lambda: started.exists() and started.read_text() != "")
    owner.kill()
    owner.wait()
    group = int(started.read_text())
    assert alive(group) and busy(task)
    kill_group(group)
    await until(lambda: not busy(task))


@pytest.mark.proves("E6")
async def test_a_lock_file_that_cannot_be_written_is_not_mistaken_for_a_child_that_never_started(lock: Lock) -> None:
    class Full(Lock):
        def child_started(self, group: int) -> None:
            super().child_started(group)
            raise OSError(28, "No space left on device")

    full = Full(lock.path, lock.fd)
    ended = await run_child(["sleep", "600"], budget_s=600, term=full)
    assert ended.code == UNSEEN and b"No space" in ended.err
    assert reaped(full.groups[0])


@pytest.mark.proves("V2")
async def test_a_code_that_nobody_could_read_is_never_a_success() -> None:
    """Whoever starts us with SIGCHLD ignored makes the kernel forget exit codes; Popen alone would then answer 0."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        for script in ("exit 1", "sleep 0.3; exit 1"):  # gone before, and after we could watch it
            assert (await run_child(["sh", "-c", script], budget_s=20)).code == UNSEEN
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.mark.proves("R37")
@pytest.mark.parametrize("number", [0, -1, 1, True, 2**40, os.getpgrp()])
def test_a_number_that_is_no_group_of_ours_is_never_signalled(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, _: sent.append(group))
    kill_group(number)
    assert sent == []


async def test_no_descriptor_and_no_zombie_is_left() -> None:
    before = descriptors()
    for _ in range(20):
        await run_child(["echo", "x"], budget_s=20, stdin=b"y")
    assert descriptors() == before
    assert zombies() == []
