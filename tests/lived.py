"""
A journal that has lived: seven tasks whose effects were applied, lost, refused, interrupted and unknown.

`python -m tests.lived PATH` writes one and closes it; `python -m tests.lived PATH kill` dies by SIGKILL with it open.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import structlog

from journal import Edge, Journal, Pipeline, StepDefinition, StepPlan, advance_stage
from journal.journal import NewTask
from journal.ports import Call, Finding, Reply, Traits
from journal.words import Fact, Guard, Outcome, evidence
from projections import all_views

ROOT = Path(__file__).resolve().parent.parent
STEPS = ("merge_pr", "ratchet", "rebuild")
TASKS = tuple(f"T-{n}" for n in range(1, 8))
HOSTILE = "502 [bold]x[/bold] \x1b[31m\u202e"

FATES = {
    "T-2/1/merge_pr": "lost",  # it lands, and its reply says a timeout
    "T-3/1/ratchet": "refused",  # for good: the task is parked
    "T-4/1/merge_pr": "interrupted",  # its run is cancelled; the next one takes over
    "T-5/1/merge_pr": "unknown",  # the probe cannot tell: the task waits
    "T-6/1/ratchet": "failed",  # once, with hostile words; the second attempt lands
}


class World:
    """One far side for every step, with a fate per key."""

    traits = Traits(Guard.EXCLUSIVE)

    def __init__(self) -> None:
        self.landed: set[str] = set()
        self.fates = dict(FATES)

    async def probe(self, call: Call) -> Finding:
        if self.fates.get(call.key) == "unknown":
            return Finding(Fact.UNKNOWN, evidence(source="world", error=HOSTILE))
        return Finding(Fact.OURS if call.key in self.landed else Fact.ABSENT, evidence(source="world"))

    async def apply(self, call: Call) -> Reply:
        match self.fates.get(call.key):
            case "refused":
                return Reply(Outcome.REJECTED, evidence(reason="no"))
            case "interrupted":
                self.fates.pop(call.key)
                raise asyncio.CancelledError
            case "failed":
                self.fates.pop(call.key)
                return Reply(Outcome.UNKNOWN, evidence(error=HOSTILE))
            case "lost":
                self.landed.add(call.key)
                return Reply(Outcome.UNKNOWN, evidence(error="timeout"))
            case _:
                pass
        self.landed.add(call.key)
        return Reply(Outcome.APPLIED)

    async def quiesce(self, call: Call) -> None:
        """Nothing: exclusive."""


def pipeline() -> Pipeline:
    """review -> deploy-staging -> deploy, with three steps on the second edge."""
    edges = (Edge("review", "deploy-staging"), Edge("deploy-staging", "deploy", STEPS))
    steps = {n: StepDefinition(StepPlan(n, Guard.EXCLUSIVE, retry_ms=1), "merge:{branch}") for n in STEPS}
    return Pipeline(("review", "deploy-staging", "deploy"), edges, steps)


async def live(path: Path, *, kill: bool = False) -> None:
    """Write the history."""
    world = World()
    steps = dict.fromkeys(STEPS, world)
    async with Journal.open(path, pipeline=pipeline(), steps=steps, projections=all_views()) as journal:
        for task in TASKS:
            await journal.open_task(NewTask(task, "acme/widgets", f"f/{task}", head="a" * 40), actor="operator")
        for task in (*TASKS, *TASKS[:6]):
            with suppress(asyncio.CancelledError):  # what a run is ended with; its term has no end in the journal
                await advance_stage(journal, task)
        await advance_stage(journal, "T-4", actor="reconciler")
        await journal.pause("T-7", reason="release freeze")
        journal.log.count("deferred", "reaper", "T-1")
        await journal.resume("T-7", reason="it is over")
        if kill:
            os.kill(os.getpid(), signal.SIGKILL)


def lived(path: Path, *, kill: bool = False) -> Path:
    """Let a child process write the history; killed, it leaves a WAL behind."""
    argv = [sys.executable, "-m", "tests.lived", str(path), *(["kill"] if kill else [])]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == (-signal.SIGKILL if kill else 0), done.stderr
    return path


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    asyncio.run(live(Path(sys.argv[1]), kill=sys.argv[2:] == ["kill"]))
