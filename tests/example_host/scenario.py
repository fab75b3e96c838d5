"""
A day in the life of the example host, the same for whichever version lives it.

Every statement is recorded, on every connection that the process opens, whoever opens it. The answers of the routes are
recorded as bytes, with status and headers.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from tests.example_host.before import Orchestrator

HEAD = "a" * 40


class Recorder:
    """What SQLite was told, by any connection of this process."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self._on, self._opened, self._heard = False, 0, 0

    @contextmanager
    def recording(self) -> Iterator[None]:
        """
        Listen. The interpreter itself counts the connections, so that none can be opened unheard.

        An audit hook cannot be taken out again; it is told to be quiet.
        """
        sys.addaudithook(self._hook)
        connect, self._on = sqlite3.connect, True

        def heard(*given: Any, **more: Any) -> sqlite3.Connection:
            db: sqlite3.Connection = connect(*given, **more)
            db.set_trace_callback(self._take)
            self._heard += 1
            return db

        setattr(sqlite3, "connect", heard)  # noqa: B010  (an overloaded function cannot be assigned to)
        try:
            yield
        finally:
            setattr(sqlite3, "connect", connect)  # noqa: B010
            self._on = False
        assert self._heard == self._opened, "a connection was opened past the recorder"

    def _hook(self, event: str, args: tuple[object, ...]) -> None:
        del args
        self._opened += self._on and event == "sqlite3.connect"

    def _take(self, statement: str) -> None:
        if self._on:
            self.statements.append(" ".join(statement.split()))


async def live(host: Orchestrator, app: FastAPI) -> list[str]:
    """Queue, worker, a lost job, webhooks, the reconciler, a restart's requeue; returns what the routes answered."""
    answers: list[str] = []
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://host") as client:

        async def seen(method: str, path: str, json: object = None) -> None:
            reply = await client.request(method, path, json=json)
            headers = "; ".join(f"{name}: {value}" for name, value in sorted(reply.headers.items()))
            answers.append(f"{method} {path} -> {reply.status_code} [{headers}] {reply.text}")

        await host.start()
        host.create("ORCH-1", "acme/widgets", "feature/1", HEAD)
        host.create("ORCH-2", "acme/gears", "feature/2", HEAD, stage="testing")
        await seen("GET", "/queue")
        await work(host)  # ORCH-1 to its review, ORCH-2 to its merge
        await seen("GET", "/metrics")
        await seen("POST", "/webhooks/review", {"task": "ORCH-1", "approved": False})
        job = await host.claim_next()
        assert job is not None
        await seen("GET", "/metrics")  # one is at work
        host.alive.discard(job["task"])  # and died
        assert await host.reap() == 1
        await work(host)
        await seen("POST", "/webhooks/review", {"task": "ORCH-1", "approved": True})
        await seen("POST", "/webhooks/review", {"task": "ORCH-1", "approved": False})  # too late, it is in testing
        await host.reconcile(frozenset({"ORCH-2"}))
        await host.deployed("ORCH-2")
        await seen("GET", "/queue")
        assert await host.claim_next() is not None
        host.alive.clear()
        await host.start()  # the process died and came back
        await work(host)
        await seen("GET", "/queue")
        await seen("GET", "/metrics")
    return answers


async def work(host: Orchestrator) -> None:
    """Do every job that can be claimed."""
    while (job := await host.claim_next()) is not None:
        await host.finish(job)


def ticking() -> Callable[[], int]:
    """A clock of whole seconds that goes on by one each time it is read."""
    return count(1_800_000_000).__next__


def files_of(folder: Path) -> list[str]:
    """What lies in the host's folder afterwards."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
