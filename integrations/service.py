"""
One service process: what the HTTP application sees of it, and the duties behind it (DESIGN 8).

Recovery comes first, then everything else; or it is a hot standby that serves reads until the writer lock falls free.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import structlog

from integrations.actors import Actors
from integrations.alerts.outbox import Outbox
from integrations.deploy.launch import ensure_deployer
from integrations.duties import Duty, keep, single
from integrations.host.observe import settle_in
from integrations.host.table import HostTable
from integrations.settings import Settings
from integrations.telemetry.spans import tracing
from integrations.watchdog import Heartbeat, StandbyWatch, beat_idle, notify
from integrations.wiring import Parts, open_journal, sinks
from integrations.worker import Dispatcher
from journal import Journal
from journal.advance import Wrap
from journal.clock import SystemClock, SystemIds, this_process
from journal.errors import JournalError, StoreUnavailableError
from journal.locks import LockFile
from journal.log.port import EventLog
from journal.ownership import Locks
from journal.pipeline import Pipeline
from journal.ports import Clock
from journal.results import Result, Unavailable
from recovery.inbox import Inbox
from recovery.outside import Hooks
from recovery.plan import make_plan, summary
from recovery.sealer import write_down

logger = structlog.get_logger(__name__)

RESUME_S = 30.0
"""How often handed-over deploys that nobody works on are taken up again."""


class Service:
    """A service from its start to its end; an application asks it, and its duties run behind that."""

    def __init__(self, settings: Settings, parts: Parts, version: str, wrap: Wrap | None) -> None:
        self.settings, self.version, self._parts = settings, version, parts
        self._wrap = wrap or tracing()
        self._sinks = sinks(settings)
        self.instance = SystemIds().instance()
        self.clock: Clock = SystemClock()
        self.started_us = self.clock.now_us()
        self.journal: Journal | None = None  # while this process drives
        self._reading: Journal | None = None  # while it stands by
        self._dispatcher: Dispatcher | None = None
        self._actors: Actors | None = None
        self._undecided = "recovery has not run yet"
        self.address = ""

    # -- what the application asks ------------------------------------------------------------------------------------

    @property
    def pipeline(self) -> Pipeline:
        return self._parts.pipeline

    @property
    def standby(self) -> bool:
        return self.journal is None

    @property
    def reader(self) -> EventLog:
        """The log, for reading; there is always one once the service answers requests."""
        opened = self.journal or self._reading
        if opened is None:
            raise StoreUnavailableError(path=str(self.settings.db), why="is not open yet", remedy="ask again")
        return opened.log

    @property
    def locks(self) -> Locks:
        opened = self.journal or self._reading
        return opened.locks if opened else Locks(self.settings.db, this_process(self.instance))

    def ready(self) -> tuple[bool, str]:
        """Every open task is decided and the journal can be written; else the reason."""
        if self.journal is None:
            return False, "standby: another process drives this journal"
        if self.journal.log.broken is not None:
            return False, str(self.journal.log.broken)
        if refusal := self.journal.tools.hosts.refusal():
            return False, refusal
        return (not self._undecided, self._undecided or "every open task is decided")

    def jobs(self) -> Mapping[str, int]:
        """What the dispatcher is busy with."""
        return {
            "running": len(self._dispatcher.running) if self._dispatcher else 0,
            "jobs_running": self._actors.worker.running if self._actors else 0,
        }

    @property
    def hooks(self) -> Mapping[str, Hooks]:
        """The senders whose webhooks can be checked."""
        return self._parts.hooks

    @property
    def inbox(self) -> Inbox | None:
        """Where webhooks are recorded; None while this process does not drive."""
        return self._actors.inbox if self._actors else None

    def submit(self, task: str, actor: str, expect: str) -> asyncio.Task[Result]:
        """Start a run for a caller; its answer outlives whoever asked."""
        if self._dispatcher is None:
            return asyncio.create_task(_unavailable(task, self.ready()[1]))
        return self._dispatcher.submit(task, actor=actor, expect=expect)

    def hint(self, task: str) -> None:
        """Look at a task soon."""
        if self._dispatcher is not None:
            self._dispatcher.hint(task)

    # -- life ---------------------------------------------------------------------------------------------------------

    async def duties(self, lock: LockFile | None, locks: Locks) -> None:
        """Stand by if somebody else drives; then recover, then drive until cancelled."""
        if lock is None:
            self._reading = await open_journal(self.settings, self._parts, write=False)
            logger.info("standing_by", db=str(self.settings.db), address=self.address)
            lock = await self._stand_by(locks)
            logger.info("taking_over", db=str(self.settings.db))
        lock.write(locks.holder("serve", address=self.address))
        self.journal = await open_journal(
            self.settings, self._parts, address=self.address, wrap=self._wrap, writer_lock=lock
        )
        if self._reading is not None:
            reading, self._reading = self._reading, None
            await reading.close()
        # Beats before recovery, which may hang, too.
        async with _beside("heartbeat", Heartbeat(self.journal, self.instance).serve, self.clock):
            await self._recover(self.journal)

    async def _stand_by(self, locks: Locks) -> LockFile:
        """Wait for the writer lock; where it is wished for, end a writer that hangs."""
        notify("READY=1")
        kills_after_s = self.settings.values.serve.standby_kills_after_s
        async with AsyncExitStack() as beside:
            await beside.enter_async_context(_beside("beat", lambda: beat_idle(self.clock), self.clock))
            if kills_after_s:
                watch = StandbyWatch(locks, self.clock, kills_after_s=kills_after_s)
                await beside.enter_async_context(_beside("standby watch", watch.serve, self.clock))
            return await _wait_for_writer(locks)

    async def _recover(self, journal: Journal) -> None:
        """Decide every open task before any actor starts; re-drives go through the dispatcher and its limits."""
        if (overlay := self.settings.overlay) is not None:
            await settle_in(journal, HostTable(overlay), self.settings.scope, self.settings.db)
        await self._resume_deploys()
        plan = await make_plan(journal)
        for f in plan.forecasts:
            logger.info(
                "startup_decided",
                task=f.task, step=f.step, row=f.row, fact=f.fact, verdict=f.verdict, why=f.why, epoch=f.epoch,
            )  # fmt: skip
        dispatcher = Dispatcher(journal, parallel=self.settings.values.serve.parallel)
        dispatcher.startup = {f.task for f in plan.forecasts}
        actors = Actors(journal, dispatcher, self._parts, self.settings.values.serve)
        if journal.log.writer is not None:
            journal.log.writer.on_events = actors.on_events
        self._dispatcher, self._actors = dispatcher, actors
        self._undecided = ""
        notify("READY=1")
        logger.info("ready", address=self.address, version=self.version, recovered=summary(plan.forecasts))
        async with asyncio.TaskGroup() as duties:
            hosts = journal.tools.hosts
            own: dict[str, Duty] = {"dispatcher": dispatcher.serve, "deploys": self._keep_deploying}
            for name, sink in self._sinks.items():
                outbox = Outbox(name, journal.log, sink, self.clock, hosts)
                own[name] = single(outbox.serve, hosts.leads, self.clock)
            for name, duty in {**own, **actors.duties()}.items():
                duties.create_task(keep(name, duty, self.clock), name=name)

    async def _keep_deploying(self) -> None:
        while True:
            await self.clock.sleep(RESUME_S)
            await self._resume_deploys()

    async def _resume_deploys(self) -> None:
        """A marker linked right before a crash, or whose deployer was killed, has no other starter."""
        for config in self._parts.deploys:
            try:
                if await ensure_deployer(config):
                    logger.info("deploy_resumed", folder=str(config.folder))
            except (OSError, JournalError) as error:
                logger.warning("deploy_not_resumed", folder=str(config.folder), error=str(error))

    async def close(self) -> None:
        if self.journal is not None:
            with suppress(OSError, JournalError):  # an older copy put here while we are away is noticed then
                await write_down(self.journal)
        for opened in (self.journal, self._reading):
            if opened is not None:
                await opened.close()


@asynccontextmanager
async def _beside(name: str, serve: Callable[[], Awaitable[None]], clock: Clock) -> AsyncIterator[None]:
    """Keep a duty running while something else goes on."""
    duty = asyncio.create_task(keep(name, serve, clock), name=name)
    try:
        yield
    finally:
        duty.cancel()
        await asyncio.gather(duty, return_exceptions=True)


async def _unavailable(task: str, reason: str) -> Result:
    return Unavailable(task, reason)


async def _wait_for_writer(locks: Locks) -> LockFile:
    """Wait in the kernel's own queue: the lock is ours the moment its holder dies (no polling, no TTL)."""
    loop = asyncio.get_running_loop()
    taken: asyncio.Future[int] = loop.create_future()
    path = locks.writer_path()

    def deliver(fd: int) -> None:
        if not taken.done():
            taken.set_result(fd)

    def block() -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        with suppress(RuntimeError):  # the loop is closed: the process ends, and the kernel drops the lock
            loop.call_soon_threadsafe(deliver, fd)

    # A daemon: nothing can interrupt a thread that waits in flock, and the process must still be able to end.
    threading.Thread(target=block, name="standby", daemon=True).start()
    return LockFile(await taken)
