"""
The demo's parent process: a restart policy over the real service.

It starts the service as a child, opens tasks through its API, and starts it again whenever it ends - killed in the
middle of a step, or ended by its own deploy - until every task has come to rest.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from integrations.demo.service import CRASH
from integrations.demo.stage import Stage
from journal.clock import SystemClock
from journal.errors import StoreUnavailableError

LOOK_S = 0.1
START_S = 60.0
"""Seconds the service may take to answer; generous, since machines are busy."""

RUN_S = 300.0
"""Seconds the whole demo may take."""


@dataclass(frozen=True, slots=True)
class News:
    """Something a person may want to see while it happens."""

    what: str
    detail: str = ""


@dataclass(slots=True)
class Course:
    """How a run went."""

    ended: bool = False
    kills: int = 0  # the service died by SIGKILL
    restarts: int = 0
    stages: dict[str, str] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)  # parked tasks and why
    events: list[dict[str, Any]] = field(default_factory=list)


class Supervisor:
    """Runs one stage to its end."""

    def __init__(self, stage: Stage, tasks: int, crash: str, tell: Callable[[News, Course], None]) -> None:
        self._stage, self._tasks, self._crash, self._tell = stage, tasks, crash, tell
        self._port = _free_port()
        self._child: asyncio.subprocess.Process | None = None
        self._clock = SystemClock()
        self.course = Course()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def run(self) -> Course:
        """
        Drive every task to rest; the service is stopped at the end.

        Raises:
            StoreUnavailableError: The service does not come up; its log says why.
        """
        try:
            async with asyncio.timeout(RUN_S), httpx.AsyncClient(base_url=self.address, timeout=10) as client:
                await self._start(client)
                await self._open_tasks(client)
                while not self.course.ended:
                    await self._look(client)
                await self._collect(client)
        except TimeoutError:
            self._news("gave up", f"not every task came to rest within {RUN_S:.0f} s")
        finally:
            await self._stop()
        return self.course

    async def _start(self, client: httpx.AsyncClient) -> None:
        env = {**os.environ, CRASH: self._crash, "ORCH_LOG_FORMAT": "json"}
        argv = [sys.executable, "-m", "integrations.demo.service", str(self._stage.config), str(self._port)]
        with self._stage.log.open("ab") as log:
            self._child = await asyncio.create_subprocess_exec(
                *argv, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
            )
        async with asyncio.timeout(START_S):
            while not await self._answers(client):
                if self._child.returncode is not None:
                    return  # it died before it answered: the caller starts it again
                await self._clock.sleep(LOOK_S)

    async def _answers(self, client: httpx.AsyncClient) -> bool:
        with suppress(httpx.HTTPError):
            return (await client.get("/readyz")).status_code == 200
        return False

    async def _open_tasks(self, client: httpx.AsyncClient) -> None:
        token = (self._stage.db.with_name(self._stage.db.name + ".locks") / "local-token").read_text("ascii").strip()
        for n in range(1, self._tasks + 1):
            feature = self._stage.scenery.features[n - 1]
            body = {"task": self._stage.task(n), "repo": "acme/widgets", "branch": feature.branch, "head": feature.head}
            while True:
                with suppress(httpx.HTTPError):
                    answer = await client.post("/tasks", json=body, headers={"Authorization": f"Bearer {token}"})
                    if answer.status_code in (200, 201, 409):
                        break
                    raise StoreUnavailableError(path=self.address, why=f"opening a task answered {answer.text[:300]}")
                await self._revive(client)
        self._news("opened", f"{self._tasks} tasks")

    async def _look(self, client: httpx.AsyncClient) -> None:
        await self._revive(client)
        try:
            answer = await client.get("/tasks", params={"limit": 500})
            answer.raise_for_status()
        except httpx.HTTPError:
            await self._clock.sleep(LOOK_S)
            return
        for task in answer.json()["tasks"]:
            before = self.course.stages.get(task["task"])
            self.course.stages[task["task"]] = task["stage"]
            if before != task["stage"]:
                self._news("moved", f"{task['task']}: {before or 'opened'} -> {task['stage']}")
            if task["status"] == "parked":
                self.course.held[task["task"]] = str(task.get("parked_reason") or task.get("reason") or "parked")
            else:
                self.course.held.pop(task["task"], None)
        stages = self.course.stages
        resting = [t for t, stage in stages.items() if stage == "done" or t in self.course.held]
        self.course.ended = len(resting) == self._tasks
        await self._clock.sleep(LOOK_S)

    async def _collect(self, client: httpx.AsyncClient) -> None:
        for n in range(1, self._tasks + 1):
            task, after = self._stage.task(n), 0
            while True:
                answer = await client.get(f"/tasks/{task}/events", params={"after": after})
                answer.raise_for_status()
                events = answer.json()["events"]
                if not events:
                    break
                self.course.events += [event | {"task": task} for event in events]
                after = events[-1]["version"]

    async def _revive(self, client: httpx.AsyncClient) -> None:
        """Start the service again if it ended, as a container's restart policy or systemd would."""
        child = self._child
        if child is None or child.returncode is None:
            return
        if child.returncode == -signal.SIGKILL:
            self.course.kills += 1
            self._news("killed", f"SIGKILL at {self._crash}")
        elif child.returncode == 0:
            self._news("ended", "by its own deploy, as a restart policy would see it")
        else:
            lines = self._stage.log.read_text("utf-8", "replace").strip().splitlines()
            why = f"the service failed with exit code {child.returncode}: {lines[-1][-300:] if lines else 'no word'}"
            raise StoreUnavailableError(path=str(self._stage.log), why=why)
        self.course.restarts += 1
        await self._start(client)
        self._news("started", "again; recovery ran before anything else")

    async def _stop(self) -> None:
        child = self._child
        if child is None or child.returncode is not None:
            return
        child.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(10):
                await child.wait()
        except TimeoutError:
            child.kill()
            await child.wait()

    def _news(self, what: str, detail: str = "") -> None:
        self._tell(News(what, detail), self.course)


def _free_port() -> int:
    """A port that was free a moment ago; the same for every start, so that the page's address stays."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
