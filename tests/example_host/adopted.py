"""
The same orchestrator after an afternoon: every place that wrote a stage asks the bridge, and goes on if it is there.

What differs from `before` is all there is to do. The test of the kill switch lives the same day with this version and
holds it to the recording of the earlier one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from integrations.overlay import AsBefore, HostBridge, host_bridge
from integrations.settings import Environment
from journal.results import Advanced, Result, Unavailable
from tests.example_host import before

CONFIGURATION = Path(__file__).with_name("journal.toml")


class Orchestrator(before.Orchestrator):
    """It is its own `Earlier`: `set_stage` and `is_alive` are what they were."""

    bridge: HostBridge

    async def start(self) -> None:
        await super().start()
        await self.bridge.start()

    async def stop(self) -> None:
        await self.bridge.stop()
        await super().stop()

    def moved(self, task: str, stage: str) -> None:
        """Recovery moved a task: its next job, once."""
        waiting = self.db.execute(
            "SELECT 1 FROM jobs WHERE task = ? AND state IN ('queued', 'running')", (task,)
        ).fetchone()
        if stage in before.WORKED and not waiting:
            self.enqueue(task)

    async def _ask(self, task: sqlite3.Row, to: str, actor: str) -> Result | AsBefore:
        return await self.bridge.advance(task["id"], repo=task["repo"], expect=task["stage"], to=to, actor=actor)

    async def _move(self, task: sqlite3.Row, to: str, actor: str) -> bool:
        return isinstance(await self._ask(task, to, actor), (Advanced, AsBefore))

    # -- the places that wrote a stage --------------------------------------------------------------------------------

    async def finish(self, job: sqlite3.Row) -> None:
        self.db.execute("UPDATE jobs SET state = 'done' WHERE id = ?", (job["id"],))
        self.alive.discard(job["task"])
        task = self.task(job["task"])
        to = before.NEXT[task["stage"]]
        match await self._ask(task, to, "worker"):
            case Advanced() | AsBefore() if to in before.WORKED:
                self.enqueue(task["id"])
            case Unavailable():  # nothing moved and nobody will look again by itself: try once more, later
                self.db.execute("UPDATE jobs SET state = 'queued' WHERE id = ?", (job["id"],))
            case _:
                pass  # there, or waiting, parked, another's: whoever moves it tells `moved`

    async def reconcile(self, merged: frozenset[str]) -> None:
        for task in self.db.execute("SELECT id, repo, stage FROM tasks WHERE stage = 'deploy-staging'").fetchall():
            if task["id"] in merged:
                await self._move(task, "deploy", "reconciler")

    async def webhook(self, event: dict[str, Any]) -> None:
        task = self.task(event["task"])
        to = "testing" if event["approved"] else "development"
        if task["stage"] == "review" and await self._move(task, to, "webhook"):
            self.enqueue(task["id"])

    async def deployed(self, task_id: str) -> None:
        task = self.task(task_id)
        if task["stage"] == "deploy":
            await self._move(task, "done", "worker")

    # -- the places that asked who is alive ---------------------------------------------------------------------------

    async def claim_next(self) -> sqlite3.Row | None:
        for job in self.db.execute("SELECT id, task FROM jobs WHERE state = 'queued' ORDER BY id").fetchall():
            if self.bridge.claimable(job["task"]):
                self.db.execute(
                    "UPDATE jobs SET state = 'running', claimed_at = ? WHERE id = ?", (self.clock(), job["id"])
                )
                self.alive.add(job["task"])
                taken: sqlite3.Row = job
                return taken
        return None

    async def reap(self) -> int:
        lost = [
            job["id"]
            for job in self.db.execute("SELECT id, task FROM jobs WHERE state = 'running'").fetchall()
            if not self.bridge.is_alive(job["task"])
        ]
        for job in lost:
            self.db.execute("UPDATE jobs SET state = 'queued', claimed_at = NULL WHERE id = ?", (job,))
        return len(lost)

    # -- what people see ----------------------------------------------------------------------------------------------

    async def queue(self) -> dict[str, Any]:
        return await super().queue() | await self.bridge.queue_block()

    async def metrics(self) -> dict[str, Any]:
        return await super().metrics() | await self.bridge.figures()


def adopted(
    path: Path, clock: Callable[[], int], *, file: Path = CONFIGURATION, environment: Environment | None = None
) -> Orchestrator:
    """As the host is started: what it is from `journal.toml`, the switch and the repositories from `ORCH_*`."""
    host = Orchestrator(path, clock)
    host.bridge = host_bridge(host, file=file, db=path, environment=environment)
    return host
