"""
`journal serve`: bind, take the writer lock or stand by, answer, and stop.

SIGTERM stops cleanly and promises nothing: new runs stop at once, running ones are cancelled, their children ended, and
what was in the middle is what a restart finds after kill -9 (R68).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import structlog
import uvicorn
from fastapi import FastAPI

from integrations.host.observe import leave_mark
from integrations.http.app import create_app
from integrations.http.auth import Tokens
from integrations.service import Service
from integrations.settings import Settings
from integrations.wiring import build, running_version
from journal.advance import Wrap
from journal.clock import this_process
from journal.errors import InvalidInputError, StoreUnavailableError
from journal.locks import LockFile
from journal.ownership import Locks, lock_folder

logger = structlog.get_logger(__name__)

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


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


def local_token(db: Path) -> str:
    """The token that lets command lines of this machine's user in; made at first `serve`, mode 0600."""
    path = lock_folder(db) / "local-token"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(secrets.token_urlsafe(32))
    return path.read_text("ascii").strip()
