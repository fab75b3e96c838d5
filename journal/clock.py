"""The one place that reads clocks and randomness; everything else gets them passed in."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from contextlib import suppress
from pathlib import Path

from journal.events import Owner


class SystemClock:
    """`Clock` over the machine's clocks."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic_s(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class SystemIds:
    """`Ids` over the kernel's randomness."""

    def instance(self) -> str:
        return secrets.token_hex(16)


def this_process(instance: str) -> Owner:
    """Who we are, for people: host, pid, boot id and start ticks; whatever cannot be read is left empty (R32)."""
    return Owner("", instance, socket.gethostname(), os.getpid(), _boot_id(), start_ticks(os.getpid()))


def _boot_id() -> str:
    with suppress(OSError, UnicodeDecodeError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()[:64]
    return ""


def start_ticks(pid: int) -> int:
    """Start time of a process in clock ticks since boot; 0 = not known. The program's name may hold anything (R35)."""
    with suppress(OSError, ValueError, IndexError):
        stat = Path(f"/proc/{int(pid)}/stat").read_text("utf-8", "replace")
        return int(stat[stat.rindex(")") + 2 :].split()[19])
    return 0
