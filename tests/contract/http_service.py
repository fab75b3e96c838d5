"""A small real service behind the API: a journal in a file, steps that make files, the real locks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from journal.clock import SystemClock
from journal.journal import Journal
from journal.log.port import EventLog
from journal.ownership import Locks
from journal.pipeline import Edge, Pipeline, StepDefinition
from journal.plan import StepPlan
from journal.ports import Call, Clock, Finding, Reply, Traits
from journal.results import Result
from journal.words import Fact, Guard, Outcome, evidence
from projections import all_views

OPERATOR = "operator-token-of-the-tests"
LOCAL = "local-token-of-the-tests"
AUTH = {"Authorization": f"Bearer {OPERATOR}"}
HEAD = "a" * 40


class FileStep:
    """Makes a file named by the key; refuses a second one, as the kernel does. Waits while `gate` is closed."""

    traits = Traits(Guard.EXCLUSIVE)

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.gate = asyncio.Event()
        self.gate.set()
        self.entered = asyncio.Event()

    def _path(self, call: Call) -> Path:
        return self._folder / call.key.replace("/", "_")

    async def probe(self, call: Call) -> Finding:
        return Finding(Fact.OURS if self._path(call).exists() else Fact.ABSENT, evidence(source="folder"))

    async def apply(self, call: Call) -> Reply:
        self.entered.set()
        await self.gate.wait()
        with self._path(call).open("x") as file:
            file.write(str(call.fence))
        return Reply(Outcome.APPLIED)

    async def quiesce(self, call: Call) -> None:
        return None


PIPELINE = Pipeline(
    ("review", "deploy", "done"),
    (Edge("review", "deploy", ("merge_pr",)), Edge("deploy", "done", ("deploy_init",))),
    {
        "merge_pr": StepDefinition(StepPlan("merge_pr", Guard.EXCLUSIVE)),
        "deploy_init": StepDefinition(StepPlan("deploy_init", Guard.EXCLUSIVE)),
    },
)


class RealService:
    """`Service` over a journal; `submit` runs at once."""

    version, instance, started_us = "c0ffee", "i1", 1_700_000_000_000_000
    pipeline = PIPELINE

    def __init__(self, journal: Journal, step: FileStep, *, standby: bool = False) -> None:
        self._journal, self.step, self.standby = journal, step, standby
        self.runs: list[asyncio.Task[Result]] = []

    @property
    def journal(self) -> Journal | None:
        return None if self.standby else self._journal

    @property
    def reader(self) -> EventLog:
        return self._journal.log

    @property
    def locks(self) -> Locks:
        return self._journal.locks

    @property
    def clock(self) -> Clock:
        return self._journal.clock

    def ready(self) -> tuple[bool, str]:
        return (not self.standby, "standby" if self.standby else "")

    def jobs(self) -> Mapping[str, int]:
        return {"running": sum(not run.done() for run in self.runs)}

    def submit(self, task: str, actor: str, expect: str) -> asyncio.Task[Result]:
        run = asyncio.create_task(self._journal.advance(task, expect=expect, actor=actor))
        self.runs.append(run)
        return run


@asynccontextmanager
async def a_service(
    folder: Path, *, write: bool = True, make: Callable[[Path], FileStep] = FileStep
) -> AsyncIterator[RealService]:
    """Open the journal in a folder; `write=False` reads beside somebody who drives."""
    files = folder / "effects"
    files.mkdir(exist_ok=True)
    step = make(files)
    steps = dict.fromkeys(PIPELINE.steps, step)
    opening = Journal.open(
        folder / "journal.db", pipeline=PIPELINE, steps=steps, projections=all_views(), write=write, clock=SystemClock()
    )
    async with opening as journal:
        yield RealService(journal, step, standby=not write)
