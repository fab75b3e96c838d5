"""What the browser is shown: a real journal with every kind of standing, made by real runs against a hostile world."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from journal.journal import Journal, NewTask
from journal.ports import Call, Finding, Reply
from journal.words import Fact, Outcome, evidence
from tests.contract.http_service import HEAD, FileStep, RealService

HOSTILE = "release/<script>alert(1)</script>\"'&amp;"
"""A branch name that git accepts, and that would be a script if a page let it."""


@dataclass(slots=True)
class World:
    """How the next calls end."""

    reply: Outcome = Outcome.APPLIED
    then: Fact | None = None  # what a probe answers once an attempt was made; None = what is so
    answer: Fact | None = None


class Scripted(FileStep):
    """A file step whose world can be told to be silent, torn or slow."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.world = World()

    async def probe(self, call: Call) -> Finding:
        if self.world.answer is None:
            return await super().probe(call)
        return Finding(self.world.answer, evidence(source="git", main="3f1c0a9" + "0" * 33))

    async def apply(self, call: Call) -> Reply:
        if self.world.reply is Outcome.APPLIED:
            return await super().apply(call)
        self.world.answer = self.world.then
        self.entered.set()
        return Reply(self.world.reply, evidence(error="the connection was reset"))


async def populate(service: RealService, *, tasks: int = 24) -> None:
    """Tasks free, done, parked, paused, canceled, in doubt with nobody near, owned; for a service over `Scripted`."""
    journal = service.journal
    step = service.step
    assert journal is not None and isinstance(step, Scripted)
    for number in range(1, tasks + 1):
        repo = "acme/widgets" if number % 3 else "acme/gadgets"
        branch = HOSTILE if number == 2 else f"feature/change-{number}"
        await journal.open_task(
            NewTask(f"ORCH-{100 + number}", repo, branch, head=HEAD, pr=40 + number), actor="tracker"
        )
    for number in range(1, tasks // 3 + 1):
        await journal.advance(f"ORCH-{100 + number}", actor="worker")
    for number in range(1, tasks // 6 + 1):
        await journal.advance(f"ORCH-{100 + number}", actor="worker")
    await _troubles(journal, step.world, step)
    await _hold(service, journal, step)


async def _troubles(journal: Journal, world: World, step: FileStep) -> None:
    world.reply, world.then = Outcome.UNKNOWN, Fact.CONFLICT
    await journal.advance("ORCH-109", actor="worker")
    world.answer, world.then = None, Fact.UNKNOWN
    step.entered.clear()
    lost = asyncio.create_task(journal.advance("ORCH-110", actor="worker"))
    await step.entered.wait()
    lost.cancel()  # as if its process had died: nothing says how the attempt ended
    await asyncio.gather(lost, return_exceptions=True)
    world.reply, world.answer, world.then = Outcome.APPLIED, None, None
    await journal.pause("ORCH-111", reason="release freeze until Monday", actor="operator")
    await journal.cancel("ORCH-112", reason="superseded by ORCH-113", actor="operator")


async def _hold(service: RealService, journal: Journal, step: FileStep) -> None:
    """One owned task whose step does not end while the scene lasts."""
    step.gate.clear()
    step.entered.clear()
    service.runs.append(asyncio.create_task(journal.advance("ORCH-113", actor="worker")))
    await step.entered.wait()
