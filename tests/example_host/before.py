"""
The orchestrator before adoption. Stages are written by a plain UPDATE from five places; that is the problem.

It is small, but nothing in it is for show: a queue in the database, a reaper that trusts a registry in memory, a
reconciler, a webhook, two read-only routes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, Response

STAGES = ("analysis", "architecture", "development", "review", "testing", "deploy-staging", "deploy", "done")
NEXT = dict(pairwise(STAGES))
WORKED = frozenset({"analysis", "architecture", "development", "testing"})
"""Stages with a job; the others wait for a review, a merge, a deploy."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS tasks (
    id TEXT PRIMARY KEY, repo TEXT NOT NULL, branch TEXT NOT NULL, head TEXT NOT NULL DEFAULT '',
    pr INTEGER NOT NULL DEFAULT 0, stage TEXT NOT NULL, moves INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS tasks_by_stage ON tasks (stage);
CREATE TRIGGER IF NOT EXISTS tasks_count_moves AFTER UPDATE ON tasks WHEN OLD.stage <> NEW.stage
BEGIN
    UPDATE tasks SET moves = moves + 1 WHERE id = NEW.id;
END;
CREATE TABLE IF NOT EXISTS jobs (
    id INTEGER PRIMARY KEY, task TEXT NOT NULL REFERENCES tasks (id), state TEXT NOT NULL, claimed_at INTEGER
);
"""


class Orchestrator:
    """The whole of it."""

    def __init__(self, path: Path, clock: Callable[[], int]) -> None:
        self.path, self.clock = path, clock
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.row_factory = sqlite3.Row
        self.alive: set[str] = set()  # tasks that a worker of this process is busy with
        self.db.executescript(SCHEMA)

    async def start(self) -> None:
        """Put back what was running when the process died: nothing runs yet."""
        self.db.execute("UPDATE jobs SET state = 'queued', claimed_at = NULL WHERE state = 'running'")

    async def stop(self) -> None:
        self.db.close()

    # -- tasks --------------------------------------------------------------------------------------------------------

    def create(self, task: str, repo: str, branch: str, head: str = "", stage: str = "analysis") -> None:
        self.db.execute(
            "INSERT INTO tasks (id, repo, branch, head, stage) VALUES (?, ?, ?, ?, ?)",
            (task, repo, branch, head, stage),
        )
        self.enqueue(task)

    def task(self, task: str) -> sqlite3.Row:
        row: sqlite3.Row = self.db.execute("SELECT id, repo, stage FROM tasks WHERE id = ?", (task,)).fetchone()
        return row

    def set_stage(self, task: str, stage: str) -> None:
        """Write a stage, whatever it was."""
        self.db.execute("UPDATE tasks SET stage = ? WHERE id = ?", (stage, task))

    def is_alive(self, task: str) -> bool:
        return task in self.alive

    # -- the queue ----------------------------------------------------------------------------------------------------

    def enqueue(self, task: str) -> None:
        self.db.execute("INSERT INTO jobs (task, state) VALUES (?, 'queued')", (task,))

    async def claim_next(self) -> sqlite3.Row | None:
        """Take the oldest job whose task nobody is busy with."""
        for job in self.db.execute("SELECT id, task FROM jobs WHERE state = 'queued' ORDER BY id").fetchall():
            if not self.is_alive(job["task"]):
                self.db.execute(
                    "UPDATE jobs SET state = 'running', claimed_at = ? WHERE id = ?", (self.clock(), job["id"])
                )
                self.alive.add(job["task"])
                taken: sqlite3.Row = job
                return taken
        return None

    async def finish(self, job: sqlite3.Row) -> None:
        """The job's work is done: the task goes on, and so does the queue."""
        self.db.execute("UPDATE jobs SET state = 'done' WHERE id = ?", (job["id"],))
        self.alive.discard(job["task"])
        task = self.task(job["task"])
        self.set_stage(task["id"], NEXT[task["stage"]])
        if NEXT[task["stage"]] in WORKED:
            self.enqueue(task["id"])

    async def reap(self) -> int:
        """Put jobs back whose worker is gone."""
        lost = [
            job["id"]
            for job in self.db.execute("SELECT id, task FROM jobs WHERE state = 'running'").fetchall()
            if not self.is_alive(job["task"])
        ]
        for job in lost:
            self.db.execute("UPDATE jobs SET state = 'queued', claimed_at = NULL WHERE id = ?", (job,))
        return len(lost)

    async def reconcile(self, merged: frozenset[str]) -> None:
        """The gate passed and nobody advanced: do it."""
        for task in self.db.execute("SELECT id, repo, stage FROM tasks WHERE stage = 'deploy-staging'").fetchall():
            if task["id"] in merged:
                self.set_stage(task["id"], "deploy")

    async def webhook(self, event: dict[str, Any]) -> None:
        """A review was approved, or changes were asked for."""
        task = self.task(event["task"])
        if task["stage"] == "review":
            self.set_stage(task["id"], "testing" if event["approved"] else "development")
            self.enqueue(task["id"])

    async def deployed(self, task_id: str) -> None:
        """The deploy ended well: the last stage."""
        task = self.task(task_id)
        if task["stage"] == "deploy":
            self.set_stage(task["id"], "done")

    # -- what people see ----------------------------------------------------------------------------------------------

    async def queue(self) -> dict[str, Any]:
        tasks = self.db.execute("SELECT id, repo, branch, stage, moves FROM tasks ORDER BY id").fetchall()
        jobs = self.db.execute("SELECT state, count(*) AS n FROM jobs GROUP BY state ORDER BY state").fetchall()
        return {"tasks": [dict(t) for t in tasks], "jobs": {j["state"]: j["n"] for j in jobs}}

    async def metrics(self) -> dict[str, Any]:
        stages = self.db.execute("SELECT stage, count(*) AS n FROM tasks GROUP BY stage ORDER BY stage").fetchall()
        return {"schema_version": 3, "tasks": {s["stage"]: s["n"] for s in stages}, "alive": len(self.alive)}


def create_app(host: Orchestrator) -> FastAPI:
    """Its routes."""
    app = FastAPI(openapi_url=None)

    @app.get("/queue")
    async def queue() -> Response:
        return JSONResponse(await host.queue())

    @app.get("/metrics")
    async def metrics() -> Response:
        return JSONResponse(await host.metrics())

    @app.post("/webhooks/review")
    async def review(request: Request) -> Response:
        await host.webhook(await request.json())
        return JSONResponse({"ok": True})

    return app
