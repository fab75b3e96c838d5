"""Builders for tests of the journal: a pipeline of file steps, real logs, and a clock that only goes when told."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from journal.events import Acquired, Draft, Intended, Opened, Owner
from journal.pipeline import Edge, Pipeline, StepDefinition
from journal.plan import EdgePlan, StepPlan, intern_plan
from journal.ports import Call, Finding, Reply, Traits
from journal.words import Fact, Guard, Outcome, evidence

OPENED = Opened("acme/widgets", "feature/1", "main", "", 0, "deploy-staging")


def opened(actor: str = "operator") -> Draft:
    """The first event of a task."""
    return Draft(OPENED, generation=1, actor=actor)


def acquired(plan: EdgePlan, epoch: int = 1, run: str = "run-1") -> Draft:
    """The first event of a term."""
    return Draft(Acquired(Owner(run), plan), epoch, 1, "worker")


def intended(step: str, attempt: int = 1, epoch: int = 1, lane: str = "") -> Draft:
    """The intent of an attempt."""
    return Draft(Intended(Guard.EXCLUSIVE, True, lane, 1000), epoch, 1, "worker", step, attempt)


def plan(*steps: str, lane: str = "") -> EdgePlan:
    """An edge of exclusive steps from the stage that `opened` opens in."""
    return intern_plan(
        EdgePlan("deploy-staging", "deploy", tuple(StepPlan(s, Guard.EXCLUSIVE) for s in steps), lane=lane, final=True)
    )


def pipeline(*steps: StepPlan, lane: str = "", on_failure: str = "", gates: Iterable[str] = ()) -> Pipeline:
    """`analysis -> done` over these steps."""
    names = tuple(step.name for step in steps)
    edges = [Edge("analysis", "done", names, tuple(gates), on_failure=on_failure)]
    stages = ["analysis", "done"]
    if on_failure and on_failure not in stages:
        stages.insert(0, on_failure)
        edges.append(Edge(on_failure, "analysis"))
    definitions = {s.name: StepDefinition(s, lane, at_most_once=True) for s in steps}
    return Pipeline(tuple(stages), tuple(edges), definitions, frozenset(gates))


def step(name: str, guard: Guard = Guard.EXCLUSIVE, **limits: int) -> StepPlan:
    """A step with short pauses, so that no test waits."""
    return replace(StepPlan(name, guard, budget_ms=10_000, retry_ms=1), **limits)  # type: ignore[arg-type]


@dataclass
class FileStep:
    """
    A real effect, counted where no memory of ours reaches: one exclusively made file per key, one line per apply.

    The file is the far side of an `exclusive` step, `<key>.calls` is its access log.
    """

    folder: Path
    traits: Traits = field(default_factory=lambda: Traits(Guard.EXCLUSIVE))

    def effect(self, key: str) -> Path:
        return self.folder / key.replace("/", "__")

    def calls(self, key: str) -> list[str]:
        """The fences of all calls that reached the far side, in order."""
        log = self.folder / (key.replace("/", "__") + ".calls")
        return log.read_text().splitlines() if log.exists() else []

    async def probe(self, call: Call) -> Finding:
        try:
            seen = evidence(source="file", text=self.effect(call.key).read_text())
        except FileNotFoundError:
            return Finding(Fact.ABSENT, evidence(source="file"))
        return Finding(Fact.OURS, seen)

    async def apply(self, call: Call) -> Reply:
        perform(self.folder, call.key, call.fence)
        return Reply(Outcome.APPLIED, evidence(source="file"))

    async def quiesce(self, call: Call) -> None:
        """The far side refuses a second one by key."""


def perform(folder: Path, key: str, fence: tuple[int, int]) -> None:
    """Count the call, then make the effect; a second effect of the same key is refused by the file system."""
    name, line = key.replace("/", "__"), f"{fence[0]}.{fence[1]}\n".encode()
    log = os.open(folder / f"{name}.calls", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(log, line)
    os.close(log)
    effect = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(effect, line)
    os.close(effect)


@dataclass
class StandingClock:
    """A clock that goes only when told, or when somebody sleeps by it."""

    us: int = 1_800_000_000_000_000
    slept: list[float] = field(default_factory=list)

    def now_us(self) -> int:
        return self.us

    def monotonic_s(self) -> float:
        return self.us / 1e6

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.us += int(seconds * 1e6)
