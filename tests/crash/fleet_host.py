"""
One host of a fleet: a process that shares the log on a server with others and drives whatever is its to drive.

`fleet_host.py FOLDER FAR DSN`: its copy lies in FOLDER, the far sides in FAR, the same for all. It ends when told to by
SIGTERM, or when its log is broken: whoever started it starts it again, as systemd would.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import random
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from integrations.worker import Dispatcher
from journal import Journal
from journal.children import run_child
from journal.clock import SystemClock, SystemIds
from journal.errors import StoreError
from journal.events import Owner
from journal.hosts.clock import SharedClock
from journal.hosts.port import Join
from journal.hosts.pulse import Pulse
from journal.hosts.roster import Periods
from journal.log.postgres.connect import Server, connect
from journal.log.postgres.upstream import PostgresUpstream
from journal.pipeline import Edge, Pipeline, StepDefinition
from journal.ports import Call, Finding, Reply, Traits
from journal.results import Result
from journal.words import Fact, Guard, Outcome, evidence
from projections import all_views
from recovery.jobs import Jobs
from recovery.reaper import Reaper
from tests.builders import step

PERIODS = Periods(beat_s=0.2, stops_s=2.0, suspect_s=3.5, vanished_s=1.0)
GUARDS = {"merge": Guard.EXCLUSIVE, "seal": Guard.FENCED, "note": Guard.PROBED, "build": Guard.REPEATABLE}
SLOWEST_S = 0.08
"""How long an effect takes at most: long enough to be stopped in."""


def landed(far: Path, key: str) -> list[str]:
    """The fences of all attempts whose effect is in the world, in order."""
    path = far / (key.replace("/", "__") + ".landed")
    return path.read_text().split() or ["cut off"] if path.exists() else []


@dataclass
class FarStep:
    """A step whose far side is a file that counts what lands; its guard is the far side's, not ours."""

    far: Path
    guard: Guard

    @property
    def traits(self) -> Traits:
        return Traits(self.guard)

    async def probe(self, call: Call) -> Finding:
        found = landed(self.far, call.key)
        return Finding(Fact.OURS if found else Fact.ABSENT, evidence(source="file", landed=len(found)))

    async def apply(self, call: Call) -> Reply:
        slow_s = random.uniform(0, SLOWEST_S)
        if self._stands_still(call.step):  # and nothing stops what comes next: it is the next instruction
            return self._arrive(call.key, call.fence, 0)
        fence = f"{call.fence[0]}.{call.fence[1]}"
        if self.guard is Guard.PROBED:  # a child, which keeps the task's lock if we die
            time.sleep(slow_s)  # between the last look at the lease and the effect a process may stand still as well
            path, rest_s = self._path(call.key, "landed"), random.choice((0, slow_s))
            argv = ("sh", "-c", f'sleep {rest_s:.3f}; echo {fence} >> "$0"', str(path))
            await run_child(argv, budget_s=5, term=call.term)
            return Reply(Outcome.APPLIED)
        # A thread, which nothing recalls: cancelled, stopped or fenced, it arrives.
        return await asyncio.to_thread(self._arrive, call.key, call.fence, slow_s)

    async def quiesce(self, call: Call) -> None:
        if self.guard is Guard.FENCED:
            await asyncio.to_thread(self._fence, call.key, call.fence)

    def _stands_still(self, step: str) -> bool:
        """Where a test asks for it, once: this process stops between its last look at the lease and the effect."""
        try:
            (self.far / f"{step}.stop").unlink()
        except FileNotFoundError:
            return False
        os.kill(os.getpid(), signal.SIGSTOP)
        return True

    def _path(self, key: str, what: str) -> Path:
        return self.far / f"{key.replace('/', '__')}.{what}"

    def _fence(self, key: str, fence: tuple[int, int], *, lands: bool = False) -> bool:
        """The far side's own compare-and-swap, and the effect under the same lock; says whether the fence holds."""
        with self._path(key, "fence").open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            known = max((tuple(map(int, line.split("."))) for line in file.read().split()), default=(0, 0))
            if fence < known:
                return False
            file.write(f"{fence[0]}.{fence[1]}\n")
            file.flush()
            if lands:
                self._land(key, fence, os.O_APPEND)
            return True

    def _arrive(self, key: str, fence: tuple[int, int], slow_s: float) -> Reply:
        time.sleep(slow_s)
        if self.guard is Guard.FENCED:
            return Reply(Outcome.APPLIED if self._fence(key, fence, lands=True) else Outcome.REJECTED)
        try:
            self._land(key, fence, os.O_EXCL if self.guard is Guard.EXCLUSIVE else os.O_APPEND)
        except FileExistsError:
            return Reply(Outcome.UNKNOWN)
        return Reply(Outcome.APPLIED)

    def _land(self, key: str, fence: tuple[int, int], how: int) -> None:
        effect = os.open(self._path(key, "landed"), os.O_WRONLY | os.O_CREAT | how, 0o600)
        os.write(effect, f"{fence[0]}.{fence[1]}\n".encode())
        os.close(effect)


def definition() -> Pipeline:
    """One edge over a step of each guard; a doubt may wait for minutes before it parks."""
    limits = {"retry_ms": 50, "attempts": 60, "looks": 100_000, "deadline_ms": 600_000, "waits": 1}
    steps = {name: StepDefinition(step(name, guard, **limits)) for name, guard in GUARDS.items()}
    return Pipeline(("analysis", "done"), (Edge("analysis", "done", tuple(GUARDS), advance="auto"),), steps)


class Wrong(SystemClock):
    """A host's own clock, hours off."""

    def now_us(self) -> int:
        return super().now_us() + int(os.environ.get("FLEET_HOURS_OFF", "0")) * 3_600_000_000


def member(dsn: str, address: str, clock: SharedClock) -> Join:
    server = Server(dsn, timeout_s=PERIODS.stops_s)

    def join(me: Owner, ground: str, lost: object) -> Pulse:
        return Pulse(
            lambda: connect(server, "hosts"), me, ground, address=address,
            new_key=lambda: int(SystemIds().instance(), 16) >> 66, periods=PERIODS, on_loss=lost,  # type: ignore[arg-type]
            on_time=clock.heard,
        )  # fmt: skip

    return join


def opened(folder: Path, far: Path, dsn: str, address: str = ""):  # type: ignore[no-untyped-def]
    """This host's journal."""
    clock = SharedClock(Wrong())
    return Journal.open(
        folder / "journal.db", pipeline=definition(),
        steps={name: FarStep(far, guard) for name, guard in GUARDS.items()},
        projections=all_views(), upstream=PostgresUpstream(Server(dsn, timeout_s=3.0)),
        join=member(dsn, address, clock), clock=clock,
    )  # fmt: skip


async def drive(folder: Path, far: Path, dsn: str) -> int:
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    async with opened(folder, far, dsn, f"fleet:{folder.name}") as journal:
        dispatcher = Dispatcher(journal, parallel=8)
        journal.log.writer.on_events = dispatcher.on_events

        async def submit(task: str, actor: str, expect: str) -> Result:
            return await dispatcher.submit(task, actor=actor, expect=expect)

        reaper = Reaper(journal, Jobs(journal.log, journal.clock), submit=submit, timeouts_s={})
        duties = [asyncio.create_task(again(duty)) for duty in (dispatcher.serve, reaper.serve)]
        while journal.log.broken is None and not over.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    await over.wait()
        for duty in duties:
            duty.cancel()
        await asyncio.gather(*duties, return_exceptions=True)
        return 0 if over.is_set() else 3


async def again(duty) -> None:  # type: ignore[no-untyped-def]
    while True:
        try:
            await duty()
        except StoreError as error:
            print("duty:", error, flush=True)
            await asyncio.sleep(0.2)


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    try:
        sys.exit(asyncio.run(drive(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])))
    except StoreError as error:
        print("ended:", error, flush=True)
        sys.exit(3)
