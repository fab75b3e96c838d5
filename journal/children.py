"""
Child processes of a step: they inherit the task's lock, live in a group of their own, and end by their budget.

The lock's descriptor goes to every child, so that a successor defers until the last carrier of an attempt is gone
(E5); the whole process group is killed at the budget or on cancellation (E9). No shell strings, ever.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from journal.ports import Term

OUTPUT_LIMIT = 1 << 20
"""Bytes of each output stream that are kept; the rest is read and dropped."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a child ended."""

    code: int  # as the kernel says: negative = signal number
    out: bytes
    err: bytes
    timed_out: bool = False

    @property
    def text(self) -> str:
        """Standard output as text, without the line break at the end."""
        return self.out.decode("utf-8", "replace").rstrip("\n")

    @property
    def tail(self) -> str:
        """The end of what it said on standard error (or output), for messages: at most 400 characters."""
        said = self.err.decode("utf-8", "replace").strip() or self.text.strip()
        return said[-400:]


async def run_child(
    argv: Sequence[str],
    *,
    budget_s: float,
    term: Term | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: bytes = b"",
) -> Exit:
    """
    Run one command to its end, or to its budget, and say how it ended.

    Args:
        argv: Program and arguments; never a shell string.
        budget_s: Seconds after which the whole process group gets SIGKILL.
        term: The term whose lock the child inherits; None for reads outside any term.
        env: The complete environment; None passes ours on.
        cwd: Folder to run in.
        stdin: What the child reads; then end of file.

    Raises:
        OSError: The program could not be started, so nothing has happened.
    """
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(env) if env is not None else None,
        cwd=cwd,
        start_new_session=True,
        pass_fds=(term.fd,) if term else (),
    )
    if term:
        term.child_started(process.pid)
    assert process.stdin and process.stdout and process.stderr
    timed_out = False
    reading = asyncio.gather(
        _feed(process.stdin, stdin), _read(process.stdout), _read(process.stderr), process.wait()
    )
    try:
        async with asyncio.timeout(budget_s):
            _, out, err, _ = await asyncio.shield(reading)
    except TimeoutError:
        timed_out = True
        kill_group(process.pid)
        _, out, err, _ = await reading
    except asyncio.CancelledError:
        kill_group(process.pid)
        await asyncio.shield(process.wait())
        reading.cancel()
        raise
    finally:
        if term:
            term.child_ended(process.pid)
    # Grandchildren that stayed in the group after their parent ended would carry the attempt on.
    kill_group(process.pid)
    return Exit(process.returncode if process.returncode is not None else -1, out, err, timed_out)


def kill_group(group: int) -> None:
    """Kill a process group of ours; one that is gone already is no error."""
    if group <= 1:
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


async def _feed(stream: asyncio.StreamWriter, data: bytes) -> None:
    with suppress(BrokenPipeError, ConnectionResetError):
        stream.write(data)
        await stream.drain()
    stream.close()


async def _read(stream: asyncio.StreamReader) -> bytes:
    kept = bytearray()
    while chunk := await stream.read(65536):
        kept += chunk[: max(0, OUTPUT_LIMIT - len(kept))]
    return bytes(kept)
