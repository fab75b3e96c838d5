"""
The real service with three routes more, for comparison: `python -m tests.benchmarks.served DB --port PORT`.

`/bench/model` gives the answer of `/queue` through its response model, `/bench/constant` gives two bytes, and
`/bench/write?on=1` makes the service write 1,000 events a second to its own log until it is told to stop.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
from fastapi import FastAPI, Request

from integrations import serve as service
from integrations.http.app import create_app
from integrations.http.queue import queue
from integrations.http.shapes import QueueDocument
from integrations.settings import load
from integrations.telemetry.logs import configure_logs
from journal.events import Draft, HazardFound
from journal.journal import Journal
from journal.log.unit import Unit, Written
from journal.words import evidence
from tests.benchmarks.logs import OPEN, name_of

EVENTS_A_SECOND = 1000
_PERIOD_S = 0.02


class Load:
    """Notes on some of the open tasks, each an event of its own and a unit of its own."""

    def __init__(self, tasks: int) -> None:
        self._names = [name_of(n) for n in range(tasks - OPEN, tasks)][:50]
        self._running: asyncio.Task[None] | None = None
        self.written = 0

    async def switch(self, journal: Journal, *, on: bool) -> None:
        """Begin or end writing."""
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
        self._running = asyncio.create_task(self._write(journal)) if on else None

    async def _write(self, journal: Journal) -> None:
        each = round(EVENTS_A_SECOND * _PERIOD_S)
        note = HazardFound("a note of the benchmark", evidence(source="bench", text="x" * 200))
        clock, due = journal.clock, journal.clock.monotonic_s()
        turn = 0
        while True:
            chosen = [self._names[(turn + n) % len(self._names)] for n in range(each)]
            turn += each
            streams = [await journal.log.read(name) for name in chosen]
            units = [Unit(s, (Draft(note, s.state.epoch, s.state.generation, "bench"),)) for s in streams]
            answers = await asyncio.gather(*(journal.log.append(unit) for unit in units))
            self.written += sum(isinstance(answer, Written) for answer in answers)
            due += _PERIOD_S
            await clock.sleep(max(0.0, due - clock.monotonic_s()))


def with_more_routes(plain: Any, tasks: int) -> Any:
    """The service's own application, and the routes of the comparison."""
    load_ = Load(tasks)

    def create(running: Any, *rest: Any, **named: Any) -> FastAPI:
        app: FastAPI = plain(running, *rest, **named)

        @app.get("/bench/model", response_model=QueueDocument)
        async def model(request: Request) -> Any:
            """Objects in between: what the framework's own way costs."""
            answer = await queue(request, "", "", 200, 0)
            return orjson.loads(bytes(answer.body))

        @app.get("/bench/constant")
        async def constant() -> Any:
            return {}

        @app.get("/bench/write")
        async def write(on: int) -> Any:
            await load_.switch(running.journal, on=bool(on))
            return {"written": load_.written}

        return app

    return create


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("db", type=Path)
    parser.add_argument("tasks", type=int)
    parser.add_argument("--port", type=int)
    given = parser.parse_args()
    configure_logs(os.environ.get("ORCH_LOG_LEVEL", "warning"))
    setattr(service, "create_app", with_more_routes(create_app, given.tasks))  # noqa: B010  (not exported there)
    asyncio.run(service.serve(load(None, db=given.db), port=given.port))


if __name__ == "__main__":
    main()
