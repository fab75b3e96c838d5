"""
The model cannot drift from the product: traces of the real shell are histories of the simulated world (T2).

Real here: the loop, the log in a SQLite file, the kernel's locks, cancellation, far sides made of files or of git.
Seeds choose whose turn it is, who dies, what is lost, late or refused, and what an operator does.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

import journal.advance
from integrations.command import CommandConfig, CommandStep
from integrations.coverage.ratchet import Ratchet, RatchetConfig
from integrations.demo.scenery import REPO
from integrations.git.merge import GitMerge, GitMergeConfig
from journal import Journal
from journal.actions import (
    Locked,
)
from journal.advance import drive
from journal.clock import SystemClock
from journal.journal import NewTask
from journal.log.postgres.connect import Server
from journal.log.postgres.upstream import PostgresUpstream
from journal.pipeline import Edge, Pipeline, StepDefinition
from journal.plan import StepPlan
from journal.ports import StepAdapter, Subject
from journal.results import Done
from journal.shell import Ports, TaskPorts
from journal.words import Guard, Hold
from tests.conftest import Counts
from tests.doubles.postgres import Postgres
from tests.property.conforming import (
    Crashed,
    Door,
    FileSide,
    Machine,
    RejectedTraceError,
    Swift,
    Theatre,
    Told,
    TooLate,
    Troubled,
    Turns,
    is_over,
    plans_of,
)
from tests.property.mutants import exception_is_refusal, no_quiesce
from tests.property.worlds import B, E, F, P, R
from tests.widgets import Widgets, build_widgets

ACTORS = {"A": "worker", "B": "reaper"}
RUNS = 12


def pipeline_of(*guards: Guard) -> Pipeline:
    """`a -> b -> done`: the given steps on the first edge behind a gate, an exclusive one on the second."""
    first = [StepPlan(f"x{n}", g, g is not R, g is E, retry_ms=1, waits=1, looks=2) for n, g in enumerate(guards)]
    last = StepPlan("y", E, adopts=True, retry_ms=1, waits=1, looks=2)
    edges = (
        Edge("a", "b", tuple(s.name for s in first), ("door",), on_failure="z"),
        Edge("b", "done", ("y",)),
    )
    steps = {s.name: StepDefinition(s, at_most_once=True) for s in (*first, last)}
    return Pipeline(("a", "b", "z", "done"), edges, steps, frozenset({"door"}))


class Performance:
    """Two actors and an operator over one task, until it is over or everyone has tried often enough."""

    def __init__(self, pipeline: Pipeline, seed: int, task: NewTask, steps: Mapping[str, StepAdapter]) -> None:
        self.pipeline, self.rng, self.task, self.sides = pipeline, Random(seed), task, steps
        subject = Subject(task.task, task.repo, task.branch)
        self.machine = Machine(plans_of(pipeline.stages, pipeline.route(subject).edge))
        self.theatre = Theatre(self.machine, self.rng, Turns(self.rng, alive=3))
        self.lines = {n: Troubled(s, self.theatre, _whose) for n, s in steps.items()}

    async def play(self, folder: Path, dsn: str = "") -> None:
        async with Journal.open(
            folder / "j.db",
            pipeline=self.pipeline,
            steps=self.lines,
            gates={"door": Door(self.theatre)},
            clock=Swift(),
            upstream=PostgresUpstream(Server(dsn)) if dsn else None,
        ) as opened:
            await opened.open_task(self.task, actor="operator")
            async with asyncio.TaskGroup() as group:
                for name in ACTORS:
                    group.create_task(self._actor(opened, name), name=name)
                group.create_task(self._outside(opened), name="outside")

    async def _over(self, opened: Journal) -> bool:
        return is_over((await opened.log.read(self.task.task)).state, self.pipeline)

    async def _actor(self, opened: Journal, name: str) -> None:
        def wrap(ports: Ports, _: str) -> Ports:
            return cast("Ports", Told(ports, name, self.theatre, lambda: self._over(opened)))

        try:
            for _ in range(RUNS):
                try:
                    await drive(opened.tools, self.pipeline, opened.me, self.task.task, actor=ACTORS[name], wrap=wrap)
                except (Crashed, TooLate):
                    continue
        finally:
            self.theatre.turns.leave()

    async def _outside(self, opened: Journal) -> None:
        """What comes late, and an operator."""
        verbs: list[tuple[Hold, Any, tuple[str, ...]]] = [
            (Hold.NONE, opened.pause, ("an operator pauses",)),
            (Hold.PAUSED, opened.resume, ("an operator resumes",)),
            (Hold.PARKED, opened.resume, ("an operator retries",)),
        ]
        if self.rng.random() < 0.15:
            verbs.append((Hold.NONE, opened.cancel, ("an operator asks to cancel", "an operator cancels")))
        try:
            for _ in range(RUNS * 3):
                await self.theatre.turns.take("outside")
                if self.theatre.chance(0.3):
                    await self.rng.choice(list(self.lines.values())).arrive()
                await self._perhaps(opened, *self.rng.choice(verbs))
        finally:
            self.theatre.turns.leave()

    async def _perhaps(self, opened: Journal, hold: Hold, verb: Any, labels: tuple[str, ...]) -> None:
        state = (await opened.log.read(self.task.task)).state
        if state.hold is not hold or state.cancel or not self.theatre.chance(0.1 if hold is Hold.NONE else 0.6):
            return
        if isinstance(await verb(self.task.task, reason="as it comes"), Done):
            self.machine.see(*labels, state=(await opened.log.read(self.task.task)).state)


def _whose() -> str:
    task = asyncio.current_task()
    assert task is not None
    return task.get_name()


async def perform(folder: Path, played: Performance, dsn: str = "") -> Performance:
    try:
        await played.play(folder, dsn)
    except* RejectedTraceError as group:
        raise group.exceptions[0] from None
    return played


async def in_files(folder: Path, guards: tuple[Guard, ...], seed: int, dsn: str = "") -> Performance:
    folder.mkdir()
    definition = pipeline_of(*guards)
    sides = {name: FileSide(folder, name, d.plan.guard) for name, d in definition.steps.items()}
    return await perform(folder, Performance(definition, seed, NewTask("T-1", "acme/widgets", "f"), sides), dsn)


PIPELINES = [(E,), (F,), (P,), (B,), (R, E), (F, P), (E, R, P)]


@pytest.mark.proves("T2", "I6", "I8", "I9", "I11", "I13", "E5", "V9")
@pytest.mark.parametrize("guards", PIPELINES, ids=lambda g: "-".join(map(str, g)))
async def test_what_the_real_shell_does_is_a_history_of_the_simulated_world(
    guards: tuple[Guard, ...], tmp_path: Path, counts: Counts
) -> None:
    endings = set()
    for seed in range(counts.of(4, most=2000)):
        endings |= endings_of(await in_files(tmp_path / str(seed), guards, seed))
    assert endings - {"a"}


def endings_of(played: Performance) -> set[str]:
    """How the task may stand by now; every world must agree with what really landed."""
    endings = set()
    for world in played.machine.worlds:
        for n, step in enumerate(played.machine.rules.steps):
            side = played.sides[step.name]
            assert isinstance(side, FileSide)
            assert bool(world.sides[n].landed) == bool(side.landings())
            assert side.guard is R or side.landings() <= 1
        endings.add(str(world.task.hold) or world.task.stage)
    return endings


@pytest.mark.proves("T2", "M4")
async def test_over_a_log_on_a_server_it_is_a_history_of_the_same_world(
    postgres: Postgres, database: str, tmp_path: Path, counts: Counts
) -> None:
    """Each journal in a schema of its own, as two of them may share a database."""
    endings = set()
    for seed in range(counts.of(3, most=300)):
        postgres.sql(f"CREATE SCHEMA s{seed}", database.rpartition("/")[2])
        dsn = f"{database}?search_path=s{seed}"
        endings |= endings_of(await in_files(tmp_path / str(seed), PIPELINES[-1], seed, dsn))
        assert int(postgres.sql(f"TABLE s{seed}.journal_head", database.rpartition("/")[2]).split("|")[1]) > 2
    assert endings - {"a"}


@pytest.mark.proves("T2", "E5", "E10", "I22", "I23")
async def test_git_and_commands_keep_their_guards_in_the_same_histories(tmp_path: Path, counts: Counts) -> None:
    """The adapters as they are shipped: an exclusive merge, an exclusive ratchet, a command that may be repeated."""
    landed = 0
    for seed in range(counts.of(3, most=300)):
        widgets = build_widgets(tmp_path / str(seed))
        played = await perform(tmp_path / str(seed), Performance(*shipped(widgets, seed)))
        raised = widgets.git("log", "--format=%B", "--all").splitlines()
        assert widgets.landed() <= 1 and raised.count("Transition: WID-1/1/ratchet") <= 1
        assert {bool(w.sides[0].landed) for w in played.machine.worlds} == {bool(widgets.landed())}
        landed += widgets.landed()
    assert landed


def shipped(widgets: Widgets, seed: int) -> tuple[Pipeline, int, NewTask, Mapping[str, StepAdapter]]:
    """The first edge of the default pipeline over real repositories."""
    built = widgets.scenery.repository.parent / "built"
    python = (sys.executable, "-S", "-E", "-c")
    command = CommandConfig(
        guard=R,
        irreversible=False,
        apply=(*python, f"open({str(built)!r}, 'a').write('x')"),
        probe=(*python, f"import os, sys; sys.exit(0 if os.path.exists({str(built)!r}) else 10)"),
        cwd=built.parent,
    )
    steps: dict[str, StepAdapter] = {
        "merge_pr": GitMerge(GitMergeConfig(), widgets.repositories),
        "ratchet": Ratchet(RatchetConfig(reports=("coverage.json",)), widgets.repositories),
        "rebuild": CommandStep("rebuild", command, SystemClock()),
    }
    plans = {n: StepDefinition(_plan_of(n, s), s.traits.lane) for n, s in steps.items()}
    edges = (Edge("a", "done", tuple(steps), ("door",), on_failure="z"),)
    feature = widgets.feature()
    task = NewTask("WID-1", REPO, feature.branch, head=feature.head)
    return Pipeline(("a", "z", "done"), edges, plans, frozenset({"door"})), seed, task, steps


def _plan_of(name: str, step: StepAdapter) -> StepPlan:
    traits = step.traits
    return StepPlan(name, traits.guard, traits.irreversible, traits.adopts, traits.ends_owner, retry_ms=1, waits=1)


BROKEN: Mapping[str, tuple[tuple[Guard, ...], str, Any]] = {
    "an exception is taken for a refusal": ((P,), "learn", exception_is_refusal),
    "a probed step is driven again without its drain": ((P,), "next_action", no_quiesce),
    "no fence is installed": ((F,), "next_action", no_quiesce),
}


async def until_rejected(tmp_path: Path, *guards: Guard) -> str:
    """Why the first trace that does not fit was rejected; empty if none was."""
    for seed in range(60):
        try:
            await in_files(tmp_path / str(seed), guards, seed)
        except RejectedTraceError as error:
            return str(error)
    return ""


@pytest.mark.proves("T2", "T3")
@pytest.mark.parametrize("name", BROKEN)
async def test_a_shell_that_runs_another_engine_is_rejected(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guards, function, variant = BROKEN[name]
    monkeypatch.setattr(journal.advance, function, variant)
    assert await until_rejected(tmp_path, *guards)


@pytest.mark.proves("T2", "E5")
async def test_a_lock_that_lets_two_in_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def let_in(_: TaskPorts) -> Locked:
        return Locked()

    monkeypatch.setattr(TaskPorts, "take_lock", let_in)
    assert "no such move" in await until_rejected(tmp_path, E)
