"""The heartbeat proves loop and writer's thread; a standby ends only the process it looked at (DESIGN 5, TR-1)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from integrations.settings import load
from integrations.watchdog import Heartbeat, StandbyWatch, end_writer, read_beat, watchdog_s
from journal.clock import SystemClock, this_process
from journal.errors import InvalidInputError
from journal.journal import Journal, NewTask
from journal.locks import read_holder
from journal.ownership import Locks
from journal.projection import Past
from journal.state import TaskState
from projections.tasks import TasksView
from tests.acting import desk, lives, three_stages
from tests.builders import FileStep, StandingClock

WRITER = """
import asyncio, sys
from pathlib import Path
from integrations.watchdog import Heartbeat
from tests.acting import desk

async def main():
    async with desk(Path(sys.argv[1])) as d:
        holder = d.journal.locks.holder("serve")
        beat = Heartbeat(d.journal, holder.instance)
        await beat.beat()
        print("beats", flush=True)
        await beat.serve()

asyncio.run(main())
"""


@contextmanager
def writer_process(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that drives a journal and beats."""
    root = Path(__file__).parents[2]
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], cwd=root, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"beats\n"
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def locks_of(folder: Path) -> Locks:
    return Locks(folder / "j.db", this_process("a" * 32))


@pytest.mark.proves("TR-1", "TR-7", "R36")
async def test_a_stopped_writer_is_killed_by_a_standby_that_is_told_to_and_a_beating_one_is_not(tmp_path: Path) -> None:
    with writer_process(tmp_path) as process:
        locks = locks_of(tmp_path)
        watching = asyncio.create_task(StandbyWatch(locks, SystemClock(), kills_after_s=2.0).serve())
        await asyncio.sleep(3.5)  # longer than it would take: this one beats
        assert lives(process.pid)
        process.send_signal(signal.SIGSTOP)
        for _ in range(1000):
            if not lives(process.pid):
                break
            await asyncio.sleep(0.01)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        assert process.wait() == -signal.SIGKILL
        free = locks.take_writer("standby")
        assert free is not None
        free.release()


@pytest.mark.proves("R31", "R32", "R35", "TR-10")
@pytest.mark.parametrize(
    "wrong", [{"ticks": 1}, {"ticks": 0}, {"boot": "another"}, {"boot": ""}, {"namespace": 1}, {"pid": 1}], ids=str
)
def test_whoever_is_not_provably_the_holder_is_not_killed(tmp_path: Path, wrong: dict[str, int | str]) -> None:
    with writer_process(tmp_path) as process:
        locks = locks_of(tmp_path)
        holder = read_holder(locks.writer_path())
        assert holder.pid == process.pid
        assert not end_writer(replace(holder, **wrong), locks)  # type: ignore[arg-type]
        assert lives(process.pid)
        assert end_writer(holder, locks)
        assert process.wait() == -signal.SIGKILL
        assert not end_writer(holder, locks)  # gone


class Blocking(TasksView):
    """A view that hangs in the writer's thread until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def apply(self, db: sqlite3.Connection, events: Sequence[Past], states: Sequence[TaskState] = ()) -> None:
        self.go.wait()
        super().apply(db, events, states)


@pytest.mark.proves("R39", "TR-1")
async def test_no_beat_without_the_writers_thread(tmp_path: Path) -> None:
    view = Blocking()
    view.go.set()
    async with Journal.open(
        tmp_path / "j.db", pipeline=three_stages(), steps={"merge_pr": FileStep(tmp_path)}, projections=[view]
    ) as journal:
        heartbeat = Heartbeat(journal, "me")
        await heartbeat.beat()
        before = read_beat(journal.locks)
        assert json.loads(before) == {"instance": "me", "beats": 1}
        view.go.clear()
        opening = asyncio.create_task(journal.open_task(NewTask("T-1", "acme/widgets", "f"), actor="operator"))
        beating = asyncio.create_task(heartbeat.beat())
        done, _ = await asyncio.wait({beating}, timeout=0.3)
        assert not done
        assert read_beat(journal.locks) == before
        view.go.set()
        await beating
        await opening
        assert read_beat(journal.locks) != before


@pytest.mark.proves("TR-1")
async def test_a_journal_that_refuses_to_write_still_beats_since_killing_it_helps_nobody(tmp_path: Path) -> None:
    async with desk(tmp_path) as d:
        (tmp_path / "j.db").rename(tmp_path / "moved.db")  # refused from now on, with the reason
        heartbeat = Heartbeat(d.journal, "me")
        await heartbeat.beat()
        assert json.loads(read_beat(d.journal.locks))["beats"] == 1
        (tmp_path / "moved.db").rename(tmp_path / "j.db")


@pytest.mark.proves("TR-1")
async def test_systemd_is_told_over_its_socket_often_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "600000")
        monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
        assert watchdog_s() == pytest.approx(0.6)
        async with desk(tmp_path, clock=StandingClock()) as d:
            heartbeat = Heartbeat(d.journal, "me")
            beating = asyncio.create_task(heartbeat.serve())
            said = await asyncio.get_running_loop().sock_recv(listener, 100)
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
            assert said == b"WATCHDOG=1"
            assert isinstance(d.journal.clock, StandingClock)
            assert d.journal.clock.slept[0] == pytest.approx(0.2)
        monkeypatch.setenv("WATCHDOG_PID", "1")  # meant for another process
        assert watchdog_s() == 0


@pytest.mark.proves("R44", "NFR-8")
@pytest.mark.parametrize("seconds", [1, 9.9])
def test_a_standby_that_would_kill_after_few_beats_is_refused_at_load(tmp_path: Path, seconds: float) -> None:
    file = tmp_path / "journal.toml"
    file.write_text(f"[serve]\nstandby_kills_after_s = {seconds}\n")
    with pytest.raises(InvalidInputError, match="standby_kills_after_s"):
        load(file)
    file.write_text("")
    assert load(file).values.serve.standby_kills_after_s == 0  # never, unless told to
