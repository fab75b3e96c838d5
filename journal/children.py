"""
Child processes of a step: they inherit the task's lock, live in a group of their own, and end by their budget.

The lock's descriptor goes to every child, so that a successor defers until the last carrier of an attempt is gone
(E5); the whole process group is killed at the budget, on cancellation, and when its leader ends (E9). Nothing here
waits without a bound, whatever a child leaves behind. No shell strings, ever.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from journal.ports import Term

OUTPUT_LIMIT = 1 << 20
"""Bytes of each output stream that are kept; the rest is read and dropped."""
UNSEEN = -255
"""The code of a child whose own ending nobody saw; equal to no exit code and no signal: every reader says unknown."""
_PIPES_S = 1.0  # how long we listen on after the group is gone: a stranger in another session may hold the pipes
_DEATH_S = 5.0  # how long SIGKILL may take; longer means an uninterruptible sleep in the kernel
_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_RUNTIME_DIR")


@dataclass(frozen=True, slots=True)
class Exit:
    """How a child ended."""

    code: int  # as the kernel says: negative = signal number; UNSEEN = not known
    out: bytes
    err: bytes
    timed_out: bool = False
    left_behind: bool = False  # something of it lives on outside its group; it may carry the attempt on

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
    keep: int = OUTPUT_LIMIT,
) -> Exit:
    """
    Run one command to its end, or to its budget, and say how it ended.

    When the call returns or is cancelled, the child and its group are dead and reaped; only if the kernel cannot end
    it, it stays named beside the term's lock. A descendant that fled into another session is reported as `left_behind`.

    Args:
        argv: Program and arguments; never a shell string.
        budget_s: Seconds after which the whole process group gets SIGKILL.
        term: The term whose lock the child inherits; None for reads outside any term.
        env: The complete environment; None passes ours on.
        cwd: Folder to run in.
        stdin: What the child reads; then end of file.
        keep: Bytes of each output stream to keep; who needs a whole answer takes `len(out) >= keep` as none.

    Raises:
        OSError: The program was not started, so nothing has happened. No other failure is raised as OSError.
    """
    if budget_s <= 0:
        raise TimeoutError(errno.ETIMEDOUT, "no budget left, not started")
    process = _spawn(argv, term, env, cwd, stdin)
    # No await between the start and the watch: a cancellation cannot slip in and leave an unwatched child.
    try:
        child = _Child(process, term, keep)
    except BaseException as error:
        _end_unwatched(process)
        if not isinstance(error, OSError):
            raise
        # No descriptors left, or nothing can be told beside the lock. It ran for a moment: no refusal to start.
        return Exit(UNSEEN, b"", f"started, then ended at once: {error}".encode())
    try:
        timed_out = not await child.ends_within(budget_s)
        if timed_out:
            child.kill()
            await child.ends_within(_DEATH_S)
        await child.falls_silent_within(_PIPES_S)
        return child.exit(timed_out)
    except asyncio.CancelledError:
        child.kill()
        await child.ends_within(_DEATH_S)
        raise
    finally:
        child.close()


def kill_group(group: int) -> None:
    """Kill a process group of ours; one that is gone already is no error. Never our own group, never "all" (R37)."""
    if isinstance(group, bool) or not 1 < group < 1 << 22 or group == os.getpgrp():
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def child_env(names: Iterable[str] = (), **values: str) -> dict[str, str]:
    """Build the environment of a child: the few names every program needs, the `names` asked for, and `values`."""
    kept = {name: os.environ[name] for name in (*_PASSED_ON, *names) if name in os.environ}
    return kept | values


class _Child:
    """One child under watch. Its group is ended before it is reaped: until then the number cannot be another's."""

    def __init__(self, process: subprocess.Popen[bytes], term: Term | None, keep: int) -> None:
        assert process.stdout and process.stderr
        self._loop = asyncio.get_running_loop()
        self._process, self._term = process, term
        self._pidfd = os.pidfd_open(process.pid)
        try:
            if term:
                term.child_started(process.pid)
        except BaseException:
            os.close(self._pidfd)
            raise
        self._gone: asyncio.Future[int] = self._loop.create_future()
        self._loop.add_reader(self._pidfd, self._ended)
        self._out, self._err = (_Listener(self._loop, pipe, keep) for pipe in (process.stdout, process.stderr))

    def _ended(self) -> None:
        self._loop.remove_reader(self._pidfd)
        self.kill()  # grandchildren that stayed in the group would carry the attempt on
        code = _reap(self._process, self._pidfd)
        os.close(self._pidfd)
        self._gone.set_result(code)

    def kill(self) -> None:
        if not self._gone.done():
            kill_group(self._process.pid)

    async def ends_within(self, seconds: float) -> bool:
        await asyncio.wait({self._gone}, timeout=seconds)
        return self._gone.done()

    async def falls_silent_within(self, seconds: float) -> None:
        await asyncio.wait({self._out.silent, self._err.silent}, timeout=seconds)

    def exit(self, timed_out: bool) -> Exit:
        held = not (self._gone.done() and self._out.silent.done() and self._err.silent.done())
        code = self._gone.result() if self._gone.done() else UNSEEN
        return Exit(code, bytes(self._out.kept), bytes(self._err.kept), timed_out, held)

    def close(self) -> None:
        self._out.close()
        self._err.close()
        # One that even SIGKILL did not end stays named beside the lock: whoever ends the term must not unlock under it.
        if self._term and self._gone.done():
            self._term.child_ended(self._process.pid)


class _Listener:
    """Reads one pipe as it fills; `silent` is done at its end of file."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pipe: IO[bytes], keep: int) -> None:
        self._loop, self._pipe, self._keep = loop, pipe, keep
        self.kept = bytearray()
        self.silent: asyncio.Future[None] = loop.create_future()
        os.set_blocking(pipe.fileno(), False)
        loop.add_reader(pipe.fileno(), self._ready)

    def _ready(self) -> None:
        try:
            chunk = os.read(self._pipe.fileno(), 65536)
        except BlockingIOError:
            return
        self.kept += chunk[: self._keep - len(self.kept)]
        if not chunk:
            self.silent.set_result(None)
            self.close()

    def close(self) -> None:
        if not self._pipe.closed:
            self._loop.remove_reader(self._pipe.fileno())
            self._pipe.close()


def _spawn(
    argv: Sequence[str], term: Term | None, env: Mapping[str, str] | None, cwd: Path | None, stdin: bytes
) -> subprocess.Popen[bytes]:
    # What the child reads is a file in memory: there is nothing to feed, so nothing that can block or break.
    source = os.memfd_create("stdin")
    try:
        with open(source, "wb", closefd=False) as file:
            file.write(stdin)
        os.lseek(source, 0, os.SEEK_SET)
        return subprocess.Popen(
            list(argv),
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=dict(env) if env is not None else None,
            cwd=cwd,
            start_new_session=True,
            pass_fds=(term.fd,) if term else (),
        )
    except ValueError as error:  # a NUL or an unpaired surrogate in an argument: refused before the start
        raise OSError(errno.EINVAL, str(error)) from error
    finally:
        os.close(source)


def _reap(process: subprocess.Popen[bytes], pidfd: int) -> int:
    code = UNSEEN
    # With SIGCHLD ignored, which we may have inherited, nobody learns the code; Popen itself would call that success.
    with suppress(ChildProcessError):
        if seen := os.waitid(os.P_PIDFD, pidfd, os.WEXITED):
            code = seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status
    process.returncode = code
    return code


def _end_unwatched(process: subprocess.Popen[bytes]) -> None:
    kill_group(process.pid)
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()
    process.wait()
