"""
`journal prove`: what the explorer says about somebody's pipeline (issue "Proof").

Each edge is searched alone, then the whole, with more and more misfortunes until the budget is spent; so the first
schedule that fails is one with few of them, and a short one. What is too long to search is walked at random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from journal.plan import EdgePlan, intern_plan
from journal.words import Guard
from recovery.prove.explorer import Explored, explore
from recovery.prove.replay import Schedule, replay
from recovery.prove.walks import ROUGH, Walked, walk
from recovery.prove.world import Bounds, Config

LEVELS: tuple[tuple[str, Bounds], ...] = (
    ("no misfortune", Bounds()),
    ("one crash", Bounds(crash=1)),
    ("one crash, one bad probe", Bounds(crash=1, bad_probe=1)),
    ("two crashes", Bounds(crash=2)),
    ("two crashes, one false suspicion", Bounds(crash=2, suspicion=1)),
    ("two crashes, one false suspicion, one bad probe", Bounds(crash=2, suspicion=1, bad_probe=1)),
)
"""Every level also holds lost and late replies, requests that outlive their sender, and hands beside the journal's."""

ASSUMPTIONS: Mapping[str, str] = {
    "lock-holds": "the task's lock excludes: one machine, one kernel (M1)",
    "commits-survive": "a commit survives a power cut: synchronous=FULL on an honest disk (S1)",
    "fresh-probes": "a probe that says absent was authoritative and fresh (V2)",
}
"""What safety rests on. Leave one out of `assume` to see which steps need it."""

DEFAULT_BUDGET = 200_000

Progress = Callable[[str, str, int], None]
"""Told now and then what is searched, at which level, and how many worlds were met in it."""


@dataclass(frozen=True, slots=True)
class Premises:
    """What a search takes for granted, and whom it tells how far it is."""

    assume: frozenset[str]
    really: tuple[tuple[str, Guard], ...]
    progress: Progress | None


@dataclass(frozen=True, slots=True)
class Searched:
    """What was found about one edge, or about all in a row."""

    name: str
    level: str  # the hardest level that was searched to its end; "" = not even the first
    states: int  # of that level
    moves: int
    spent: int  # states of all levels together
    seconds: float
    endings: Mapping[str, int] = field(default_factory=dict)
    matrix: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Crash point -> ending -> in how many worlds right after that crash it can still be reached."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A schedule that leads where no task may be."""

    where: str
    why: str
    story: tuple[str, ...]
    schedule: Schedule  # `.to_text()` is the replay file


@dataclass(frozen=True, slots=True)
class Report:
    """The answer of `prove`."""

    edges: tuple[Searched, ...]
    whole: Searched | None  # None: one edge only, or something failed before
    walks: int
    walked: int  # moves of all walks
    seed: int
    assumed: tuple[str, ...]
    really: tuple[tuple[str, Guard], ...]
    failure: Failure | None

    @property
    def states(self) -> int:
        return sum(s.spent for s in (*self.edges, *((self.whole,) if self.whole else ())))

    @property
    def proved(self) -> bool:
        """Nothing failed, and each edge was searched to the end with at least one crash."""
        crash = {name for name, bounds in LEVELS if bounds.crash}
        return self.failure is None and all(e.level in crash for e in self.edges)


def prove(
    edges: Iterable[EdgePlan],
    *,
    budget: int = DEFAULT_BUDGET,
    seed: int = 0,
    assume: frozenset[str] = frozenset(ASSUMPTIONS),
    really: Mapping[str, Guard] | None = None,
    progress: Progress | None = None,
    detours: Iterable[EdgePlan] = (),
) -> Report:
    """
    Explore edges, alone and in a row, and stop at the first schedule that fails.

    Args:
        edges: The plans of a route, in order; those without steps are passed over.
        budget: About how many worlds to visit in all; a hundred thousand take some seconds and some 100 MB.
        seed: For the random walks.
        assume: Names of `ASSUMPTIONS` that hold.
        really: How the far sides of some steps behave, whatever guard their steps declare.
        progress: Told how far it is.
        detours: Plans of edges that only a rollback leads to; each is searched alone.
    """
    premises = Premises(assume, tuple(sorted((really or {}).items())), progress)
    way = tuple(small(p) for p in edges if p.steps)
    plans = (*way, *(small(p) for p in detours if p.steps))
    share = max(1, budget // (len(plans) + (2 if len(way) > 1 else 1)))
    searched: list[Searched] = []
    whole: Searched | None = None
    failure: Failure | None = None
    walked = Walked(0, 0)
    for plan in plans:
        found, failure = _deepen(f"{plan.source} -> {plan.target}", (plan,), share, premises)
        searched.append(found)
        if failure:
            break
    if len(way) > 1 and not failure:
        whole, failure = _deepen("the whole pipeline", way, share, premises)
    if way and not failure:
        walked, failure = _walked(way, share, seed, premises)
    assumed = tuple(sorted(assume))
    return Report(tuple(searched), whole, walked.walks, walked.moves, seed, assumed, premises.really, failure)


def small(plan: EdgePlan) -> EdgePlan:
    """The same edge with limits that a search can exhaust: what it does at a limit does not depend on its size."""
    steps = tuple(
        replace(s, attempts=min(s.attempts, 2), waits=min(s.waits, 1), looks=min(s.looks, 2)) for s in plan.steps
    )
    return intern_plan(replace(plan, steps=steps))


def _config(plans: tuple[EdgePlan, ...], bounds: Bounds, premises: Premises, actors: int = 2) -> Config:
    assume = premises.assume
    fresh, full = "fresh-probes" in assume, "commits-survive" in assume
    bounds = bounds._replace(lag=0 if fresh else 2, power_cut=max(bounds.power_cut, 0 if full else 1))
    if "lock-holds" not in assume:
        bounds = bounds._replace(suspicion=max(1, bounds.suspicion))
    return Config(
        _joined(plans),
        bounds,
        actors,
        reduced=True,
        full_sync=full,
        lock_holds="lock-holds" in assume,
        really=premises.really,
    )


def _joined(plans: tuple[EdgePlan, ...]) -> tuple[EdgePlan, ...]:
    """Edges that follow upon each other although stages without steps were passed over."""
    joined = [replace(p, target=q.source, final=False) if p.target != q.source else p for p, q in pairwise(plans)]
    return tuple(map(intern_plan, (*joined, plans[-1])))


def _deepen(name: str, plans: tuple[EdgePlan, ...], share: int, premises: Premises) -> tuple[Searched, Failure | None]:
    best, level, spent, seconds = None, "", 0, 0.0
    for title, bounds in LEVELS:
        cfg = _config(plans, bounds, premises)
        found = explore(cfg, limit=share - spent, matrix=True, progress=_telling(premises, name, title))
        spent, seconds = spent + found.states, seconds + found.seconds
        if not found.safe:
            failed = Searched(name, title, found.states, found.moves, spent, seconds, found.endings)
            return failed, _failure(name, found, cfg)
        if not found.complete:
            break
        best, level = found, title
    if best is None:
        return Searched(name, "", 0, 0, spent, seconds), None
    return Searched(name, level, best.states, best.moves, spent, seconds, best.endings, best.crashes), None


def _failure(name: str, found: Explored, cfg: Config) -> Failure:
    schedule = Schedule(cfg, found.trace)
    return Failure(name, found.violation or "stuck: no end can be reached any more", replay(schedule).story, schedule)


def _telling(premises: Premises, name: str, level: str) -> Callable[[int], None] | None:
    progress = premises.progress
    return None if progress is None else lambda states: progress(name, level, states)


def _walked(plans: tuple[EdgePlan, ...], share: int, seed: int, premises: Premises) -> tuple[Walked, Failure | None]:
    if premises.progress:
        premises.progress("random walks", f"seed {seed}", 0)
    guards = {**{s.name: s.guard for p in plans for s in p.steps}, **dict(premises.really)}
    # A blind step's own claim counts, because nothing else can; so there a false one is believed.
    bounds = ROUGH._replace(early_claim=0, false_refusal=0) if Guard.BLIND in guards.values() else ROUGH
    cfg = _config(plans, bounds, premises, actors=3)
    found = walk(cfg, moves=share, seed=seed)
    if not found.violation:
        return found, None
    schedule = Schedule(cfg, found.trace)
    return found, Failure("a random walk", found.violation, replay(schedule).story, schedule)
