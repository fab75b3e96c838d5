"""A fleet of host processes on one server, and what befalls them: killed, stopped, cut off, started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

from tests.doubles.cable import Cable

HOURS_OFF = (5, -7, 0)
"""Clocks of hosts differ; only the database's counts."""

HOST = Path(__file__).with_name("fleet_host.py")
THIS = HOST.parents[2]
"""Where the packages of this version lie."""


class Host:
    """One host: a folder of its own, a cable to the server, and a process while it runs."""

    def __init__(self, folder: Path, far: Path, dsn: str, port: int, hours_off: int) -> None:
        self.folder, self._far, self._hours_off = folder, far, hours_off
        folder.mkdir()
        self.cable = Cable(port).__enter__()
        self._dsn = dsn.replace(f":{port}/", f":{self.cable.port}/")
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self.version = THIS

    def up(self) -> None:
        """Start it if it does not run, whatever it ended of."""
        if self._process is not None and self._process.poll() is None:
            return
        self.starts += 1
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(HOST), str(self.folder), str(self._far), self._dsn],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder,
                env=os.environ | {"PYTHONPATH": f"{self.version}:{THIS}", "FLEET_HOURS_OFF": str(self._hours_off)},
            )  # fmt: skip

    def signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    @property
    def stopped(self) -> bool:
        """The process stands still (state T)."""
        if self._process is None or self._process.poll() is not None:
            return False
        return Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def ask_to_stop(self) -> int:
        """As systemd does; gives its exit status."""
        self.signal(signal.SIGTERM)
        assert self._process is not None
        return self._process.wait(timeout=30)

    def end(self) -> None:
        self.signal(signal.SIGCONT)
        self.kill()
        self.cable.__exit__()


@contextmanager
def fleet(size: int, folder: Path, dsn: str, port: int) -> Iterator[list[Host]]:
    far = folder / "far"
    far.mkdir()
    hosts = [Host(folder / f"host{n}", far, dsn, port, hours) for n, hours in zip(range(size), HOURS_OFF, strict=False)]
    try:
        yield hosts
    finally:
        for host in hosts:
            host.end()


def befall(hosts: list[Host], chance: Random) -> str:
    """One misfortune of one host; says which. What was stopped or cut before may go on now."""
    host = chance.choice(hosts)
    time.sleep(chance.uniform(0, 0.4))
    match what := chance.choice(("kill", "stop", "cut")):
        case "kill":
            host.kill()
        case "stop":
            host.signal(signal.SIGSTOP)
        case "cut":
            host.cable.cut()
    time.sleep(chance.choice((0.1, 0.5, 2.5, 5.0)))  # the last two: past its own limit, and past that of others
    if chance.random() < 0.6:
        mend(hosts)
    return f"{what} {host.folder.name}"


def mend(hosts: list[Host]) -> None:
    """Everybody goes on: continued, plugged in, started again."""
    for host in hosts:
        host.signal(signal.SIGCONT)
        host.cable.plug()
        host.up()
