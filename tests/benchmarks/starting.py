"""P12, P13: from the start of a process to its answer, against importing what such a process has to import."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.benchmarks.logs import Logs, name_of
from tests.benchmarks.measuring import Row, Side, Timed, grown, in_turn
from tests.benchmarks.sizes import Sizes

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
_ONE = "import fastapi"
_ALL = "import fastapi, uvicorn, pydantic, structlog"


async def measure(logs: Logs, sizes: Sizes) -> list[Row]:
    """P12 and P13, in the longest log."""
    events = sizes.long_logs[-1]
    path = logs.of(events)
    rounds = sizes.rounds * 2 + 1
    inspect, one = Side("journal inspect"), Side(f'python -c "{_ONE}"')
    command = (BIN / "journal", "--db", path, "inspect", name_of(1))
    await _whole(*command)
    await _ready(path)  # from here on there is compiled code, as in whatever pip has installed
    await in_turn(rounds, (inspect, lambda: _whole(*command)), (one, lambda: _whole(sys.executable, "-c", _ONE)))
    ready, everything = Side("journal serve"), Side(f'python -c "{_ALL}"')
    await in_turn(rounds, (ready, lambda: _ready(path)), (everything, lambda: _whole(sys.executable, "-c", _ALL)))
    note = f"{events:,} events"
    return [
        grown("P12", one, inspect, unit="starts", note=note),
        grown("P13", everything, ready, unit="starts", note=note),
    ]


async def _whole(*command: str | Path) -> Timed:
    """A process from its start to its end."""
    cpu, begun = _children_cpu_s(), time.perf_counter()
    process = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=PIPE, env=_environment())
    _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return Timed(1, time.perf_counter() - begun, _children_cpu_s() - cpu)


async def _ready(path: Path) -> Timed:
    """The service from its start to the first 200 of /readyz."""
    cpu, begun = _children_cpu_s(), time.perf_counter()
    async with serving(path) as service:
        seconds = time.perf_counter() - begun
        del service
    return Timed(1, seconds, _children_cpu_s() - cpu)


def _environment() -> dict[str, str]:
    """Ours, but Python may keep what it compiles: else each start would compile the four packages and no other."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Serving:
    """A running service."""

    def __init__(self, process: Process, port: int) -> None:
        self.port, self._process = port, process

    def cpu_s(self) -> float:
        """CPU seconds of the service so far, all threads."""
        fields_ = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields_[11]) + int(fields_[12])) / os.sysconf("SC_CLK_TCK")

    def private_bytes(self) -> int:
        """Memory that is this process's own: no shared library, no page of the file."""
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("the kernel does not tell RssAnon")


@asynccontextmanager
async def serving(db: Path, *command: str | Path) -> AsyncIterator[Serving]:
    """A service over a journal, ready when this is entered; `command` starts another program that serves it."""
    port = _free_port()
    arguments = command or (BIN / "journal", "--db", db, "serve")
    environment = _environment() | {"ORCH_LOG_LEVEL": "warning", "PYTHONPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(*arguments, "--port", str(port), cwd=db.parent, env=environment)
    try:
        while await _status(port, "/readyz") != 200:
            if process.returncode is not None:
                raise RuntimeError(f"serve ended with {process.returncode}")
            await asyncio.sleep(0.005)
        yield Serving(process, port)
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


async def _status(port: int, path: str) -> int:
    try:
        return (await get(port, path))[0]
    except OSError:
        return 0


async def get(port: int, path: str) -> tuple[int, bytes]:
    """One request on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1]) if head else 0, body
    finally:
        writer.close()
