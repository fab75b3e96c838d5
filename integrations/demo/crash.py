"""
Crash points: SIGKILL to ourselves at a named place, by standing before the ports of a run. The engine has no hooks.

before-intent, after-intent and after-outcome lie around the append that writes the event; after-effect lies where the
effect has landed in the world: after `apply` returned, or, for a step that ends its owner and never returns, as soon
as a probe shows it. `crash_once` leaves a file, so that the same point does not kill the successor too.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from journal.actions import (
    Appended,
    Asked,
    Busy,
    Ended,
    Locked,
    Lost,
    Occupied,
    Probed,
    Quiet,
    Replied,
    Seen,
    Unlocked,
    Waited,
)
from journal.errors import InvalidInputError
from journal.events import Draft
from journal.pipeline import Pipeline
from journal.plan import EdgePlan, StepPlan
from journal.shell import Ports
from journal.words import Fact, Guard, Kind

POINTS = ("before-intent", "after-intent", "after-effect", "after-outcome")
LOOK_S = 0.01


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """Where to die."""

    step: str
    point: str

    def __str__(self) -> str:
        return f"{self.step}:{self.point}"


def parse_point(text: str, pipeline: Pipeline) -> CrashPoint:
    """
    Read `STEP:POINT`.

    Raises:
        InvalidInputError: There is no such step or point; says which there are.
    """
    step, _, point = text.partition(":")
    found = CrashPoint(step, point)
    if found not in all_points(pipeline):
        known = ", ".join(map(str, all_points(pipeline)))
        raise InvalidInputError(what=f"crash point '{text}'", why=f"unknown; known: {known}")
    return found


def all_points(pipeline: Pipeline) -> tuple[CrashPoint, ...]:
    """Every crash point of a pipeline; a step that only looks has no intent and no effect to die around."""
    found = []
    for edge in pipeline.edges:
        for name in edge.steps:
            awaited = pipeline.steps[name].plan.guard is Guard.AWAITED
            found += [CrashPoint(name, p) for p in (POINTS[-1:] if awaited else POINTS)]
    return tuple(found)


class CrashPorts:
    """`Ports` that die at one point, once."""

    def __init__(self, inner: Ports, where: CrashPoint, die: Callable[[], None]) -> None:
        self._inner, self._where, self._die = inner, where, die

    async def append(self, drafts: tuple[Draft, ...]) -> Appended | Lost | Occupied:
        kinds = {d.kind for d in drafts if d.step == self._where.step}
        if Kind.INTENDED in kinds:
            self._reach("before-intent")
        # A unit that was handed in is written even if its caller is cancelled: the point is reached then, too.
        writing = asyncio.ensure_future(self._inner.append(drafts))
        try:
            result = await asyncio.shield(writing)
        except asyncio.CancelledError:
            self._written(kinds, await writing)
            raise
        self._written(kinds, result)
        return result

    def _written(self, kinds: set[Kind], result: Appended | Lost | Occupied) -> None:
        if isinstance(result, Appended):
            if Kind.INTENDED in kinds:
                self._reach("after-intent")
            if Kind.APPLIED in kinds:
                self._reach("after-outcome")

    async def apply(self, step: StepPlan, fence: tuple[int, int]) -> Replied:
        if step.name != self._where.step or self._where.point != "after-effect":
            return await self._inner.apply(step, fence)
        applying = asyncio.create_task(self._inner.apply(step, fence))
        while step.ends_owner and not applying.done():
            probed = await self._inner.probe(step, ())
            if probed.finding.fact is Fact.OURS:
                break
            await asyncio.wait([applying], timeout=LOOK_S)
        if not step.ends_owner:
            await asyncio.wait([applying])
        self._reach("after-effect")
        return await applying

    def _reach(self, point: str) -> None:
        if point == self._where.point:
            self._die()

    async def take_lock(self) -> Locked | Busy:
        return await self._inner.take_lock()

    async def end_holder(self) -> Ended:
        return await self._inner.end_holder()

    async def read(self) -> Seen:
        return await self._inner.read()

    async def ask(self, plan: EdgePlan, pending: tuple[Draft, ...]) -> Asked:
        return await self._inner.ask(plan, pending)

    async def quiesce(self, step: StepPlan, fence: tuple[int, int], pending: tuple[Draft, ...]) -> Quiet:
        return await self._inner.quiesce(step, fence, pending)

    async def probe(self, step: StepPlan, pending: tuple[Draft, ...]) -> Probed:
        return await self._inner.probe(step, pending)

    async def wait(self, nth: int, step: StepPlan) -> Waited:
        return await self._inner.wait(nth, step)

    async def unlock(self) -> Unlocked:
        return await self._inner.unlock()


def crash_once(mark: Path) -> Callable[[], None]:
    """Die by SIGKILL the first time this is reached in the life of `mark`'s folder."""

    def die() -> None:
        with suppress(FileExistsError):
            os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            _kill_self()

    return die


def _kill_self() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError
