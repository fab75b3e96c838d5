"""`journal demo`: real git, real processes, one SIGKILL in the middle of a merge, and a count from outside."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integrations.demo.count import Counted, Recovered, count, recoveries
from integrations.demo.crash import CrashPoint, all_points, parse_point
from integrations.demo.stage import Stage, build_stage
from integrations.demo.supervisor import Course, News, Supervisor
from integrations.settings import Environment, load
from integrations.wiring import build

DEFAULT_CRASH = "merge_pr:after-effect"
AT_ONCE = 2
"""Crash points walked at the same time with --crash-all: one per core of a small machine."""


@dataclass(frozen=True, slots=True)
class Report:
    """What came of one run."""

    stage: Stage
    crash: str
    counted: tuple[Counted, ...]
    recovered: tuple[Recovered, ...]
    course: Course
    address: str

    @property
    def ok(self) -> bool:
        """Every effect exactly once, every task done, and the service really died where it should."""
        return bool(self.counted) and all(c.exact for c in self.counted) and self.course.kills == 1

    def as_data(self) -> dict[str, Any]:
        return {
            "crash_at": self.crash,
            "dir": str(self.stage.folder),
            "ok": self.ok,
            "kills": self.course.kills,
            "restarts": self.course.restarts,
            "parked": self.course.held,
            "tasks": [c.as_data() for c in self.counted],
            "decisions": [
                {
                    "task": r.task, "step": r.step, "actor": r.actor, "row": r.row, "fact": r.fact,
                    "verdict": r.verdict, "why": r.sentence,
                }
                for r in self.recovered
            ],
        }  # fmt: skip


Tell = Callable[[str, News, Course], None]
"""Called with the crash point, what happened, and how the run stands."""


def new_folder(folder: Path | None) -> Path:
    """The folder of a run: the one that was named, or a new one among the temporary files."""
    return folder.absolute() if folder else Path(tempfile.mkdtemp(prefix="journal-demo-"))


async def run_once(folder: Path, tasks: int, crash: str, tell: Tell) -> Report:
    """
    One run with one crash.

    Raises:
        InvalidInputError: The folder is in use, or there is no such crash point.
        StoreError: The service does not come up.
    """
    stage = build_stage(folder, tasks)
    where = parse_point(crash, build(load(stage.config, environment=Environment())).pipeline)
    supervisor = Supervisor(stage, tasks, str(where), lambda news, course: tell(str(where), news, course))
    course = await supervisor.run()
    counted = tuple(count(stage, course.stages))
    return Report(stage, str(where), counted, tuple(recoveries(course.events)), course, supervisor.address)


async def run_all(folder: Path, tasks: int, tell: Tell, done: Callable[[Report], None]) -> list[Report]:
    """Every crash point of the demo's pipeline, each in a folder of its own."""
    probe = build_stage(folder / "pipeline", 1)
    points = all_points(build(load(probe.config, environment=Environment())).pipeline)
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(point: CrashPoint) -> Report:
        async with slots:
            report = await run_once(folder / str(point).replace(":", "-"), tasks, str(point), tell)
            done(report)
            return report

    return list(await asyncio.gather(*(one(point) for point in points)))
