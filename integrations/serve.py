"""
The service: recovery first, then everything else; or a hot standby that serves reads until the writer lock falls free.

SIGTERM stops cleanly and promises nothing: new runs stop at once, running ones are cancelled, their children ended, and
what was in the middle is what a restart finds after kill -9 (R68).
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import signal
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import structlog
import uvicorn
from fastapi import FastAPI

from integrations.actors import Actors
from integrations.alerts.outbox import Outbox
from integrations.deploy.launch import ensure_deployer
from integrations.duties import Duty, keep, single
from integrations.host.observe import leave_mark, settle_in
from integrations.host.table import HostTable
from integrations.http.app import create_app
from integrations.http.auth import Tokens
from integrations.settings import Settings
from integrations.telemetry.spans import tracing
from integrations.watchdog import Heartbeat, StandbyWatch, beat_idle, notify
from integrations.wiring import Parts, build, open_journal, running_version, sinks
from integrations.worker import Dispatcher
from journal import Journal
from journal.advance import Wrap
from journal.clock import SystemClock, SystemIds, this_process
from journal.errors import InvalidInputError, JournalError, StoreUnavailableError
from journal.locks import LockFile
from journal.log.port import EventLog
from journal.ownership import Locks, lock_folder
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

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class Service:
    """One service process: what the HTTP application sees, and the duties behind it."""

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


class _Server(uvicorn.Server):
    """Uvicorn without its own signal handling: it would send itself the signal again after a clean stop."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    settings: Settings, *, host: str | None = None, port: int | None = None, wrap: Wrap | None = None
) -> None:
    """
    Run the service until SIGTERM or SIGINT.

    Raises:
        InvalidInputError: A configuration that cannot work, a public bind without a token, a port in use.
        StoreError: The journal cannot be opened.
    """
    if not settings.environment.transition_journal_enabled:
        if settings.overlay:
            leave_mark(settings.db)
        why = "the host goes on by itself" if settings.overlay else "there is no host to return to; switch it on"
        raise InvalidInputError(what="ORCH_TRANSITION_JOURNAL_ENABLED", why=f"is off, and {why}")
    version = running_version(settings)
    parts = build(settings, running=version)
    host, port = host or settings.host, settings.port if port is None else port
    if host not in LOOPBACK and not settings.operator_token:
        raise InvalidInputError(
            what=f"host {host}",
            why="a bind beyond loopback needs a token: set ORCH_OPERATOR_TOKEN or ORCH_OPERATOR_FILE",
        )
    with _listening(host, port) as listener:
        service = Service(settings, parts, version, wrap)
        service.address = _address(host, listener.getsockname()[1])
        locks = Locks(settings.db, this_process(service.instance))
        _check_folder(settings.db)
        lock = locks.take_writer("serve", service.address)
        token = local_token(settings.db)
        app = create_app(service, _tokens(settings, token, reading=host not in LOOPBACK), service)
        await _run(service, app, listener, lock, locks)


def _tokens(settings: Settings, local: str, *, reading: bool) -> Tokens:
    """A token from a file is read anew at every question, so that it is changed by replacing the file."""
    env = settings.environment
    return Tokens(
        settings.operator_token,
        local,
        reading,
        settings.reader_token,
        None if env.operator_token else env.operator_file,
        None if env.reader_token else env.reader_file,
    )


async def _run(service: Service, app: FastAPI, listener: socket.socket, lock: LockFile | None, locks: Locks) -> None:
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1,
        proxy_headers=False, server_header=False,  # nothing decides by the client's address or the scheme
    )  # fmt: skip
    server = _Server(config)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, setattr, server, "should_exit", True)
    duties = asyncio.create_task(service.duties(lock, locks), name="duties")
    answering = asyncio.create_task(server.serve(sockets=[listener]), name="http")
    try:
        done, _ = await asyncio.wait({duties, answering}, return_when=asyncio.FIRST_COMPLETED)
        if duties in done and not duties.cancelled():
            duties.result()  # raises what made the duties end
    finally:
        logger.info("stopping")
        duties.cancel()
        app.state.feed.close()  # or the listeners would hold the shutdown up
        server.should_exit = True
        await asyncio.gather(duties, answering, return_exceptions=True)
        await service.close()
        logger.info("stopped")


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    """A listening socket, bound before anything is opened, so that the address can be told to others."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With its protocol named, or asyncio does not know that it is TCP and leaves Nagle's waiting on: each small answer
    # on a connection that stays open would come 40 ms late.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise InvalidInputError(
                what=f"address {host}:{port}", why=f"cannot be bound: {error.strerror}; choose another with --port"
            ) from error
        listener.listen(128)
        listener.setblocking(False)
        yield listener
    finally:
        listener.close()


def _address(host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"


def _check_folder(db: Path) -> None:
    if not db.parent.is_dir():
        raise StoreUnavailableError(path=str(db), why="its folder does not exist", remedy="create the folder first")


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


def local_token(db: Path) -> str:
    """The token that lets command lines of this machine's user in; made at first `serve`, mode 0600."""
    path = lock_folder(db) / "local-token"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(secrets.token_urlsafe(32))
    return path.read_text("ascii").strip()
