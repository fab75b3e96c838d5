"""
What a run does when hosts share its log: it asks before each promise and each effect, and defers to who lives.

Real log, locks and effects; only the other hosts are told by hand, so that each answer can be given at its moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from journal import Journal, advance_stage
from journal.events import Owner
from journal.hosts.port import Alone
from journal.journal import LAST_WORD, NewTask
from journal.ports import Call, Reply, Traits
from journal.results import Advanced, Deferred, Parked, Unavailable, Waiting
from journal.shell import Ports
from journal.words import Guard, Kind, Standing
from projections import all_views
from recovery.park import park
from recovery.plan import make_plan
from tests.builders import FileStep, pipeline, step

HEAD = "a" * 40


@dataclass
class Others(Alone):
    """The other hosts, as a test tells them."""

    stands: Standing = Standing.GONE
    refusals: list[str] = field(default_factory=list)  # the last one stays
    said: list[str] = field(default_factory=list)
    lost: Callable[[], None] = lambda: None

    def join(self, me: Owner, ground: str, lost: Callable[[], None]) -> Others:
        self.lost = lost
        assert ground.startswith(me.boot)
        return self

    async def start(self) -> None:
        """They are there."""

    async def close(self, said: str) -> None:
        self.said.append(said)

    def refusal(self) -> str:
        return self.refusals.pop(0) if len(self.refusals) > 1 else "".join(self.refusals)

    async def standing(self, owner: Owner) -> Standing:
        return self.stands


class Dying:
    """Ports whose process dies at an effect: the run is dropped with its intent open."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    def __getattr__(self, name: str) -> object:
        if name == "apply":
            raise RuntimeError("killed")
        return getattr(self._ports, name)


@asynccontextmanager
async def host(
    folder: Path, others: Others, guard: Guard = Guard.EXCLUSIVE, *, dies: bool = False, slow: FileStep | None = None
) -> AsyncIterator[Journal]:
    definition = pipeline(step("x", guard, waits=0, looks=9))
    async with Journal.open(
        folder / "journal.db", pipeline=definition, steps={"x": slow or FileStep(folder, Traits(guard))},
        projections=all_views(), join=others.join,
        wrap=(lambda ports, _: cast("Ports", Dying(ports))) if dies else None,
    ) as journal:  # fmt: skip
        if not (await journal.log.read("T-1")).version:
            await journal.open_task(NewTask("T-1", "acme/widgets", "feature/1"), actor="operator")
        yield journal


async def in_doubt(folder: Path, guard: Guard) -> None:
    """Leave the task owned, with an attempt that never left."""
    async with host(folder, Others(), guard, dies=True) as journal:
        assert isinstance(await advance_stage(journal, "T-1"), Unavailable)
        assert (await journal.stream("T-1")).state.open


async def kinds(journal: Journal) -> list[Kind]:
    return [event.kind for event in await journal.events("T-1")]


@pytest.mark.proves("M2")
async def test_without_a_lease_nothing_is_promised(tmp_path: Path) -> None:
    others = Others(refusals=["the lease ran out"])
    async with host(tmp_path, others) as journal:
        answer = await advance_stage(journal, "T-1")
        assert isinstance(answer, Unavailable)
        assert "the lease ran out" in answer.reason
        assert Kind.INTENDED not in await kinds(journal)


@pytest.mark.proves("M2", "E1")
async def test_a_lease_that_runs_out_between_the_promise_and_the_effect_leaves_doubt_and_no_effect(
    tmp_path: Path,
) -> None:
    others = Others(refusals=["", "the lease ran out"])
    async with host(tmp_path, others) as journal:
        assert isinstance(await advance_stage(journal, "T-1"), Unavailable)
        assert (await journal.stream("T-1")).state.open
        assert FileStep(tmp_path).calls("T-1/1/x") == []
        others.refusals = []
        assert isinstance(await advance_stage(journal, "T-1"), Advanced)
        assert len(FileStep(tmp_path).calls("T-1/1/x")) == 1


@pytest.mark.proves("M2")
async def test_a_lease_that_is_lost_ends_what_runs(tmp_path: Path) -> None:
    class Slow(FileStep):
        begun = asyncio.Event()

        async def apply(self, call: Call) -> Reply:
            self.begun.set()
            await asyncio.Event().wait()
            return await super().apply(call)

    others, slow = Others(), Slow(tmp_path)
    async with host(tmp_path, others, slow=slow) as journal:
        run = asyncio.create_task(advance_stage(journal, "T-1"))
        await slow.begun.wait()
        await asyncio.to_thread(others.lost)  # told from another thread
        answer = await run
        assert isinstance(answer, Unavailable)
        assert "lost its lease" in answer.reason
    assert others.said == [LAST_WORD]


@pytest.mark.proves("M2", "O3")
async def test_an_owner_that_lives_on_another_host_is_deferred_to_by_everybody(tmp_path: Path) -> None:
    await in_doubt(tmp_path, Guard.EXCLUSIVE)
    async with host(tmp_path, Others(Standing.ALIVE)) as journal:
        before = await kinds(journal)
        answer = await advance_stage(journal, "T-1", actor="reaper")
        assert isinstance(answer, Deferred)
        assert (await journal.stream("T-1")).owner is not None
        assert isinstance(await journal.change_head("T-1", head=HEAD, actor="gitea"), Deferred)
        parked = await park(journal, "T-1", expect="analysis", reason="x", actor="worker", begun=True)
        assert isinstance(parked, Deferred)
        (forecast,) = (await make_plan(journal)).forecasts
        assert forecast.verdict == "defer"
        assert await kinds(journal) == before


@pytest.mark.proves("M1", "I18")
@pytest.mark.parametrize("guard", [Guard.REPEATABLE, Guard.EXCLUSIVE, Guard.FENCED])
async def test_a_suspects_step_goes_on_where_the_far_side_refuses_what_comes_late(tmp_path: Path, guard: Guard) -> None:
    await in_doubt(tmp_path, guard)
    async with host(tmp_path, Others(Standing.SUSPECT), guard) as journal:
        assert isinstance(await advance_stage(journal, "T-1"), Advanced)
    assert len(FileStep(tmp_path).calls("T-1/1/x")) == 1


@pytest.mark.proves("M1", "I18")
async def test_a_suspects_probed_step_waits_through_terms_until_it_is_proven_gone(tmp_path: Path) -> None:
    """The second term must not forget what the first one doubted: its own release says nothing about the carrier."""
    await in_doubt(tmp_path, Guard.PROBED)
    others = Others(Standing.SUSPECT)
    async with host(tmp_path, others, Guard.PROBED) as journal:
        for _ in range(2):
            answer = await advance_stage(journal, "T-1")
            assert isinstance(answer, Waiting)
            assert "nothing proves that whoever began the attempt is dead" in answer.reason
        (forecast,) = (await make_plan(journal)).forecasts
        assert forecast.verdict == "wait"
        assert FileStep(tmp_path).calls("T-1/1/x") == []
        others.stands = Standing.GONE
        assert isinstance(await advance_stage(journal, "T-1"), Advanced)
    assert len(FileStep(tmp_path).calls("T-1/1/x")) == 1


@pytest.mark.proves("M1", "I17")
async def test_a_suspects_probed_step_that_nobody_can_prove_gone_parks_and_says_why(tmp_path: Path) -> None:
    await in_doubt(tmp_path, Guard.PROBED)
    async with host(tmp_path, Others(Standing.SUSPECT), Guard.PROBED) as journal:
        answer = await advance_stage(journal, "T-1")
        while isinstance(answer, Waiting):
            answer = await advance_stage(journal, "T-1")
        assert isinstance(answer, Parked)
        assert "nothing proves" in answer.reason
    assert FileStep(tmp_path).calls("T-1/1/x") == []
