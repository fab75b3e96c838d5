"""
Telling a hung service from a busy one: a heartbeat that proves the event loop and the writer's thread (DESIGN 5, TR-1).

The beat is written by the loop, after the thread has answered: whichever hangs, it stops. systemd reads it from its
own socket; a hot standby, where it is told to, from a file beside the lock, and then kills the process. The kernel
drops its locks, and the standby takes over like after any death. No beat is ever taken for liveness of a task.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

import structlog

from journal.clock import start_ticks
from journal.errors import JournalError
from journal.journal import Journal
from journal.locks import Holder, is_held, read_holder
from journal.log.unit import Side
from journal.ownership import Locks, same_ids
from journal.ports import Clock

logger = structlog.get_logger(__name__)

BEAT_S = 1.0
"""Between two beats."""

_PROOF = Side("UPDATE journal_cursors SET position = position WHERE 0")
_RECORD = 256


def beat_path(locks: Locks) -> Path:
    """Beside the writer's lock."""
    return locks.folder / "writer.beat"


def notify(state: str) -> None:
    """Tell systemd, where it listens (sd_notify); failing to is no failure of ours."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.setblocking(False)
        sender.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)


def watchdog_s() -> float:
    """Seconds after which systemd kills a silent service; 0 = it does not."""
    with suppress(ValueError):
        mine = os.environ.get("WATCHDOG_PID", "") in ("", str(os.getpid()))
        return max(0, int(os.environ.get("WATCHDOG_USEC", "0"))) / 1e6 if mine else 0.0
    return 0.0


async def beat_idle(clock: Clock) -> None:
    """The beat of a standby, which has no writer to prove: it only waits, and systemd must not end it for that."""
    while True:
        notify("WATCHDOG=1")
        await clock.sleep(_period_s())


def _period_s() -> float:
    limit_s = watchdog_s()
    return min(BEAT_S, limit_s / 3) if limit_s else BEAT_S


class Heartbeat:
    """A duty of the service that drives, under the instance that its writer lock names."""

    def __init__(self, journal: Journal, instance: str) -> None:
        self._journal, self._instance, self._beats = journal, instance, 0

    async def serve(self) -> None:
        """Beat until cancelled."""
        while True:
            await self.beat()
            await self._journal.clock.sleep(_period_s())

    async def beat(self) -> None:
        """Ask the writer's thread; say so once it has answered, with whatever answer."""
        with suppress(JournalError):  # refused, full or poisoned: a person is needed, but nothing hangs
            await self._journal.log.side(_PROOF)
        self._beats += 1
        text = json.dumps({"instance": self._instance, "beats": self._beats}).encode()
        with suppress(OSError):
            fd = os.open(beat_path(self._journal.locks), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                os.pwrite(fd, text.ljust(_RECORD), 0)
            finally:
                os.close(fd)
        notify("WATCHDOG=1")


class StandbyWatch:
    """A standby's look at the process that drives; only where `standby_kills_after_s` is set."""

    def __init__(self, locks: Locks, clock: Clock, *, kills_after_s: float) -> None:
        self._locks, self._clock, self._kills_after_s = locks, clock, kills_after_s

    async def serve(self) -> None:
        """
        Watch until cancelled.

        Silence is measured by our own monotonic clock, from the last beat we saw change; a round in which we ourselves
        were stopped does not count. A writer that has not beaten yet is still opening its file.
        """
        seen, since_s = "", self._clock.monotonic_s()
        before_s = since_s
        while True:
            await self._clock.sleep(BEAT_S)
            now_s = self._clock.monotonic_s()
            holder, beat = read_holder(self._locks.writer_path()), read_beat(self._locks)
            slept = now_s - before_s > 3 * BEAT_S
            before_s = now_s
            if slept or beat != seen or not _is_of(beat, holder) or not is_held(self._locks.writer_path()):
                seen, since_s = beat, now_s
            elif now_s - since_s >= self._kills_after_s:
                killed = end_writer(holder, self._locks)
                logger.error("hung_writer", holder=str(holder), silent_s=round(now_s - since_s), killed=killed)
                since_s = now_s


def read_beat(locks: Locks) -> str:
    """The last beat as text; "" if there is none."""
    with suppress(OSError, UnicodeDecodeError):
        return beat_path(locks).read_text("ascii").strip()
    return ""


def _is_of(beat: str, holder: Holder) -> bool:
    with suppress(ValueError, AttributeError):
        return bool(holder.instance) and json.loads(beat).get("instance") == holder.instance
    return False


def end_writer(holder: Holder, locks: Locks) -> bool:
    """
    Kill the process that holds the writer lock; says whether it was that one.

    By its pidfd, opened before its start time is compared: what is killed is what was looked at, never a process that
    got the number later (R31, R35). In another namespace or after another boot the number means nothing, and nobody is
    killed.
    """
    if not same_ids(holder, locks.me) or not holder.ticks or holder.pid in (0, 1, os.getpid()):
        return False
    try:
        pidfd = os.pidfd_open(holder.pid)
    except OSError:
        return False
    try:
        if start_ticks(holder.pid) != holder.ticks or not is_held(locks.writer_path()):
            return False
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(pidfd)
    return True
