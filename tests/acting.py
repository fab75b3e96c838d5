"""Actors on a real journal with a pipeline of three stages: `work` (a job), `ship` (one real effect), `done`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from integrations.jobs.config import JobConfig
from integrations.jobs.worker import JobWorker
from journal.events import Acquired, Event
from journal.journal import Journal, NewTask
from journal.log.unit import Side
from journal.pipeline import Advance, Edge, Pipeline, StepDefinition
from journal.plan import StepPlan
from journal.ports import Clock, Gate, StepAdapter, Traits
from journal.results import Result
from journal.words import Guard, Kind
from projections import all_views
from projections.base import ask
from projections.lookup import place_of
from recovery.jobs import Job, Jobs
from tests.builders import FileStep

REPO = "acme/widgets"


def three_stages(work: Advance = "job", ship: Advance = "auto", *, lane: str = "", **limits: int) -> Pipeline:
    """`work -> ship -> done`; the second edge has the one step `merge_pr`."""
    plan = replace(StepPlan("merge_pr", Guard.EXCLUSIVE, retry_ms=1, waits=1), **limits)  # type: ignore[arg-type]
    edges = (Edge("work", "ship", advance=work), Edge("ship", "done", ("merge_pr",), advance=ship))
    return Pipeline(("work", "ship", "done"), edges, {"merge_pr": StepDefinition(plan, lane)}, on_new_head="ship")


@dataclass
class Desk:
    """One open journal and what actors need of it."""

    journal: Journal
    jobs: Jobs
    folder: Path
    step: StepAdapter
    asked: list[tuple[str, str, str]] = field(default_factory=list)  # every run that an actor asked for

    async def submit(self, task: str, actor: str, expect: str) -> Result:
        self.asked.append((task, actor, expect))
        return await self.journal.advance(task, expect=expect, actor=actor)

    async def open(self, task: str, *, repo: str = REPO, branch: str = "feature", **more: Any) -> None:
        await self.journal.open_task(NewTask(task, repo, branch, **more), actor="operator")

    async def stage(self, task: str) -> str:
        return (await self.journal.stream(task)).state.stage

    async def events(self, task: str, kind: Kind | None = None) -> list[Event]:
        return [e for e in await self.journal.events(task) if kind is None or e.kind is kind]

    async def acquired(self, task: str) -> Acquired:
        """The last one."""
        body = (await self.events(task, Kind.ACQUIRED))[-1].draft.body
        assert isinstance(body, Acquired)
        return body

    async def job(self, task: str) -> Job:
        """The job of the task's present stage entry."""
        place = await ask(self.journal.log, place_of(task))
        assert place is not None
        return (await self.jobs.by_entry([place.entered]))[place.entered]

    async def counted(self, name: str, actor: str) -> int:
        # Counts are written behind whatever was put in before: this comes back after them.
        await self.journal.log.side(Side("UPDATE journal_cursors SET position = position WHERE 0"))
        rows = await self.journal.log.query(
            "SELECT coalesce(sum(count), 0) FROM journal_counters WHERE name = ? AND actor = ?", (name, actor)
        )
        return int(rows[0][0])

    def worker(self, *command: str, slots: int = 4, **more: Any) -> JobWorker:
        config = JobConfig(command=command, **({"backoff_s": 0} | more))

        async def advance(task: str, stage: str) -> object:
            return await self.submit(task, "worker", stage)

        return JobWorker(self.journal, self.jobs, {"work": config}, slots=slots, advance=advance)


@asynccontextmanager
async def desk(
    folder: Path,
    pipeline: Pipeline | None = None,
    *,
    clock: Clock | None = None,
    step: Callable[[Path], StepAdapter] | None = None,
    gates: Mapping[str, Gate] | None = None,
) -> AsyncIterator[Desk]:
    """Open a journal in a folder; what it writes outside lies in `folder/world`."""
    world = folder / "world"
    world.mkdir(exist_ok=True)
    effect = step(world) if step else FileStep(world, Traits(Guard.EXCLUSIVE))
    chosen = pipeline or three_stages()
    async with Journal.open(
        folder / "j.db",
        pipeline=chosen,
        steps={"merge_pr": effect},
        gates=gates or {},
        projections=all_views(),
        clock=clock,
    ) as journal:
        yield Desk(journal, Jobs(journal.log, journal.clock), world, effect)


def python(code: str) -> tuple[str, ...]:
    """A command of one Python program; `sys.argv[1:]` may be added."""
    return (sys.executable, "-S", "-E", "-c", code)


NOTE = "import os, sys; os.write(os.open(sys.argv[1], 1089, 0o600), b'x')"
"""Adds one byte to a file (O_WRONLY | O_APPEND | O_CREAT): runs are counted outside."""


def notes(path: Path) -> int:
    """How many runs left their byte."""
    return path.stat().st_size if path.exists() else 0


def lives(pid: int) -> bool:
    """A process of this number runs, and is no corpse that nobody has buried yet."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except FileNotFoundError:
        return False
    return stat[stat.rindex(")") + 2] != "Z"
