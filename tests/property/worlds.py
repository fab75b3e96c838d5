"""The pipelines and misfortunes that the explorer is asked about in tests."""

from __future__ import annotations

from journal.plan import EdgePlan, StepPlan, intern_plan
from journal.words import Guard
from recovery.prove.walks import ROUGH
from recovery.prove.world import Bounds, Config

R, E, F, P, B, W = (
    Guard.REPEATABLE,
    Guard.EXCLUSIVE,
    Guard.FENCED,
    Guard.PROBED,
    Guard.BLIND,
    Guard.AWAITED,
)
EFFECTS = (R, E, F, P, B)
PROBEABLE = (R, E, F, P)

CRASHES = Bounds(crash=2, suspicion=1, bad_probe=1)
ONE_CRASH = Bounds(crash=1)


def step(name: str, guard: Guard, *, adopts: bool | None = None, ends_owner: bool = False) -> StepPlan:
    """A step with small bounds: two attempts, one pause in a term, two waiting terms."""
    adopts = guard is E if adopts is None else adopts
    return StepPlan(name, guard, guard is not R, adopts, ends_owner, waits=1, looks=2)


def edge(*steps: StepPlan, source: str = "a", target: str = "b", final: bool = True, on_failure: str = "") -> EdgePlan:
    return intern_plan(EdgePlan(source, target, steps, on_failure=on_failure, final=final))


def one(guard: Guard, on_failure: str = "") -> tuple[EdgePlan, ...]:
    return (edge(step("x", guard), on_failure=on_failure),)


def two(first: Guard, second: Guard, on_failure: str = "") -> tuple[EdgePlan, ...]:
    return (edge(step("x", first), step("y", second), on_failure=on_failure),)


GATED = (intern_plan(EdgePlan("a", "b", (step("x", E),), gates=("coverage",), lane="merge", final=True)),)

MERGE = edge(
    step("merge_pr", E), step("ratchet", E), step("rebuild", R), source="deploy-staging", target="deploy", final=False
)
DEPLOY = edge(
    step("merge_verified", W),
    step("deploy_init", E, adopts=False, ends_owner=True),
    step("deploy_verified", W),
    source="deploy",
    target="done",
)
DEPLOY_ALONE = edge(
    step("deploy_init", E, adopts=False, ends_owner=True), step("deploy_verified", W), source="deploy", target="done"
)
MERGE_ALONE = (edge(*MERGE.steps, source="deploy-staging", target="deploy"),)


def rough(plans: tuple[EdgePlan, ...]) -> Config:
    """Every misfortune at once, and a third actor. A blind step's claims count, so there they are true."""
    blind = any(s.guard is B for p in plans for s in p.steps)
    return Config(plans, ROUGH._replace(early_claim=0, false_refusal=0) if blind else ROUGH, actors=3)


ROUGH_WAYS = {
    "one step, refused, back": rough(one(E, on_failure="z")),
    **{f"{first} and {second}": rough(two(first, second)) for first in EFFECTS for second in EFFECTS},
    "the default pipeline": rough((MERGE, DEPLOY)),
}


def reduced(plans: tuple[EdgePlan, ...], bounds: Bounds = CRASHES) -> Config:
    return Config(plans, bounds, reduced=True)
