"""
The plan of one edge, as stored in `acquired`: what a running transition follows to its end (DESIGN 7).

Plans are interned: one object per text for the life of the process, so that states that hold one are cheap to hash and
compare. Build them with `intern`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from journal.words import Guard


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step of an edge, with everything a decision about it may depend on."""

    name: str
    guard: Guard = Guard.BLIND
    irreversible: bool = True
    adopts: bool = False  # another's effect counts as done
    ends_owner: bool = False
    budget_ms: int = 300_000  # one attempt; its children are ended by then
    attempts: int = 2  # intents per generation, until a person or a rollback forgives them
    waits: int = 3  # probes in one term, before the task is released as waiting
    looks: int = 500  # terms in a row that may end waiting
    retry_ms: int = 1_000  # first pause before another probe or attempt; doubles
    deadline_ms: int = 2_000_000  # how long a fact may be waited for


@dataclass(frozen=True, slots=True, eq=False)
class EdgePlan:
    """One edge. Compared by identity, since interned."""

    source: str
    target: str
    steps: tuple[StepPlan, ...] = ()
    gates: tuple[str, ...] = ()
    lane: str = ""  # held from the edge's first intent to its stage move; parking frees it
    on_failure: str = ""  # stage to roll back to when a step is refused for good and nothing irreversible landed
    final: bool = False  # the target is an end of the pipeline


def plan_text(plan: EdgePlan) -> str:
    """The canonical JSON text of a plan."""
    return json.dumps(plan_data(plan), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def plan_data(plan: EdgePlan) -> dict[str, Any]:
    """A plan as plain data; what equals its default is left out, so that old plans stay readable and short."""
    data: dict[str, Any] = {"source": plan.source, "target": plan.target}
    for name in ("gates", "lane", "on_failure", "final"):
        if value := getattr(plan, name):
            data[name] = list(value) if isinstance(value, tuple) else value
    data["steps"] = [
        {f.name: getattr(s, f.name) for f in fields(s) if f.name == "name" or getattr(s, f.name) != f.default}
        for s in plan.steps
    ]
    return data


def intern_plan(plan: EdgePlan) -> EdgePlan:
    """The one object that stands for this plan in this process."""
    return plan_from_text(plan_text(plan))


def plan_from_data(data: dict[str, Any]) -> EdgePlan:
    """Read back `plan_data`; unknown names are refused by the constructors."""
    return plan_from_text(json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False))


@lru_cache(maxsize=4096)
def plan_from_text(text: str) -> EdgePlan:
    """Read back `plan_text`."""
    data = json.loads(text)
    steps = tuple(StepPlan(**(s | ({"guard": Guard(s["guard"])} if "guard" in s else {}))) for s in data.pop("steps"))
    return EdgePlan(steps=steps, gates=tuple(data.pop("gates", ())), **data)
