"""
The pipeline: stages, edges, steps, and what makes a definition one that can work (DESIGN 7, NFR-6).

Every stage has at most one forward edge, so "the next edge" needs no choice. A definition is checked as a whole when it
is made; each refusal says where it is and how to mend it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from journal.errors import PipelineError
from journal.names import word
from journal.plan import EdgePlan, StepPlan, intern_plan
from journal.ports import Subject
from journal.words import Guard

Advance = Literal["auto", "job", "manual"]

KEPT_PLANS = 4096
"""Plans kept by stage and lane; there are as many lanes as branches that something is merged into."""


@dataclass(frozen=True, slots=True)
class StepDefinition:
    """A step as the pipeline knows it: what its adapter declares, and the limits it runs under."""

    plan: StepPlan
    lane: str = ""  # template with {repo}, {base}, {branch}
    at_most_once: bool = False  # the policy that a blind irreversible step must name


@dataclass(frozen=True, slots=True)
class Edge:
    """One edge of the definition."""

    source: str
    target: str
    steps: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    advance: Advance = "manual"
    on_failure: str = ""


@dataclass(frozen=True)
class Pipeline:
    """A checked definition; raises `PipelineError` when it cannot work."""

    stages: tuple[str, ...]
    edges: tuple[Edge, ...]
    steps: Mapping[str, StepDefinition] = field(default_factory=dict)
    gates: frozenset[str] = frozenset()
    on_new_head: str = ""
    reaper_max_running_s: int = 5400
    reaper_finalize_grace_s: int = 600
    _plans: dict[tuple[str, str], EdgePlan] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_stages(self)
        _check_edges(self)
        _check_steps(self)
        _check_budget(self)

    @property
    def first(self) -> str:
        """Where a task begins if nothing else is said."""
        return self.stages[0]

    @property
    def ends(self) -> frozenset[str]:
        """Stages that no edge leaves."""
        return frozenset(self.stages) - {e.source for e in self.edges}

    def edge(self, stage: str) -> Edge | None:
        """The forward edge of a stage."""
        return next((e for e in self.edges if e.source == stage), None)

    def lane_of(self, edge: Edge, subject: Subject) -> str:
        """The lane that an edge's effects take, for this task; empty if none of its steps names one."""
        template = next((self.steps[s].lane for s in edge.steps if self.steps[s].lane), "")
        return template.format(repo=subject.repo, base=subject.base, branch=subject.branch) if template else ""

    def plan(self, edge: Edge, lane: str) -> EdgePlan:
        """The plan of an edge in a lane; asked several times in every run, so kept."""
        known = self._plans.get((edge.source, lane))
        if known is None:
            steps = tuple(self.steps[name].plan for name in edge.steps)
            final = edge.target in self.ends
            known = intern_plan(EdgePlan(edge.source, edge.target, steps, edge.gates, lane, edge.on_failure, final))
            if len(self._plans) >= KEPT_PLANS:
                self._plans.clear()
            self._plans[edge.source, lane] = known
        return known

    def route(self, subject: Subject) -> TaskRoute:
        """The pipeline as the engine sees it for one task."""
        return TaskRoute(self, subject)

    def check_adapters(self, steps: Collection[str], gates: Collection[str]) -> None:
        """
        See that somebody performs every step of an edge and answers every gate.

        Raises:
            PipelineError: Nobody does, and for which.
        """
        for edge in self.edges:
            for name in edge.steps:
                if name not in steps:
                    raise PipelineError(where=f"steps.{name}", why="no adapter performs it; configure it under [steps]")
            for name in edge.gates:
                if name not in gates:
                    raise PipelineError(where=f"gates.{name}", why="no adapter answers it; configure it under [gates]")


class TaskRoute:
    """`Route` for one task: plans with its lanes filled in."""

    def __init__(self, pipeline: Pipeline, subject: Subject) -> None:
        self._pipeline, self._subject = pipeline, subject

    def edge(self, stage: str) -> EdgePlan | None:
        edge = self._pipeline.edge(stage)
        return self._pipeline.plan(edge, self._pipeline.lane_of(edge, self._subject)) if edge else None


def _check_stages(p: Pipeline) -> None:
    if len(p.stages) < 2:
        raise PipelineError(where="pipeline.stages", why="a pipeline needs at least two stages")
    for stage in p.stages:
        word(stage, "stage")
    _unique(p.stages, "pipeline.stages", "stage")
    if p.on_new_head and p.on_new_head not in p.stages:
        raise PipelineError(where="pipeline.on_new_head", why=_unknown("stage", p.on_new_head, p.stages))


def _check_edges(p: Pipeline) -> None:
    _unique([e.source for e in p.edges], "pipeline.edges", "edge that leaves stage")
    for e in p.edges:
        where = f"pipeline.edges '{e.source} -> {e.target}'"
        for stage in (e.source, e.target, *((e.on_failure,) if e.on_failure else ())):
            if stage not in p.stages:
                raise PipelineError(where=where, why=_unknown("stage", stage, p.stages))
        if e.source == e.target:
            raise PipelineError(where=where, why="an edge leads to another stage than it leaves")
        for name in e.steps:
            if name not in p.steps:
                raise PipelineError(where=where, why=_unknown("step", name, p.steps))
        for name in e.gates:
            if name not in p.gates:
                raise PipelineError(where=where, why=_unknown("gate", name, p.gates))
    _check_reachable(p)


def _check_reachable(p: Pipeline) -> None:
    seen, todo = {p.stages[0]}, [p.stages[0]]
    while todo:
        edge = p.edge(todo.pop())
        for stage in (edge.target, edge.on_failure) if edge else ():
            if stage and stage not in seen:
                seen.add(stage)
                todo.append(stage)
    if lost := [s for s in p.stages if s not in seen]:
        raise PipelineError(
            where="pipeline.stages",
            why=f"no edges lead from '{p.stages[0]}' to {', '.join(lost)}; add an edge or take the stage out",
        )
    if not p.ends & seen:
        raise PipelineError(where="pipeline.edges", why="the edges go in a circle; one stage must be the end")


def _check_steps(p: Pipeline) -> None:
    # A key is task/generation/step: a step on two edges would give two effects one key (E3).
    _unique([s for e in p.edges for s in e.steps], "pipeline.edges", "step")
    for name, step in p.steps.items():
        word(name, "step")
        where, plan = f"steps.{name}", step.plan
        if plan.guard is Guard.BLIND and plan.irreversible and not step.at_most_once:
            raise PipelineError(
                where=where,
                why="an irreversible step that can be neither probed nor refused needs a probe and a guard, "
                'or `policy = "at-most-once"`: a doubt then always parks',
            )
        if plan.attempts < 1 or plan.budget_ms < 0:
            raise PipelineError(where=where, why="attempts must be at least 1 and a budget cannot be negative")
    for e in p.edges:
        lanes = {p.steps[s].lane for s in e.steps} - {""}
        if len(lanes) > 1:
            raise PipelineError(
                where=f"pipeline.edges '{e.source} -> {e.target}'",
                why=f"its steps name {len(lanes)} lanes ({', '.join(sorted(lanes))}); one edge holds one lane",
            )


def _check_budget(p: Pipeline) -> None:
    used = [name for e in p.edges for name in e.steps]
    budgets = {name: -(-p.steps[name].plan.budget_ms // 1000) for name in used}  # rounded up
    needed = sum(budgets.values()) + p.reaper_finalize_grace_s
    if p.reaper_max_running_s <= needed:
        terms = " + ".join(f"{name} {budget}" for name, budget in budgets.items())
        raise PipelineError(
            where="reaper_max_running_s",
            why=f"{p.reaper_max_running_s} s must be more than {needed} s = {terms} + reaper_finalize_grace_s "
            f"{p.reaper_finalize_grace_s}; raise the first or lower a step's budget_s (NFR-6)",
        )


def _unique(names: Iterable[str], where: str, what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise PipelineError(where=where, why=f"{what} '{name}' stands there twice")
        seen.add(name)


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    listed = ", ".join(sorted(known)) or "none"
    return f"unknown {what} '{name}'; known: {listed}"


def with_limits(definition: StepDefinition, **limits: int) -> StepDefinition:
    """The same step under other limits (names of `StepPlan` fields)."""
    return replace(definition, plan=replace(definition.plan, **limits))  # type: ignore[arg-type]
