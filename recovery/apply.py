"""Carrying a recovery plan out by hand: only if it is still the plan that was shown (V9)."""

from __future__ import annotations

from dataclasses import dataclass

from journal.journal import Journal
from journal.results import Result
from recovery.plan import Plan, make_plan


@dataclass(frozen=True, slots=True)
class Changed:
    """The plan is another one by now; nothing was done."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class Carried:
    """What came of each task of the plan."""

    results: tuple[Result, ...]


async def apply_plan(journal: Journal, token: str, *, actor: str = "operator") -> Carried | Changed:
    """
    Carry out the plan that `token` names, or refuse if anything it rests on has changed.

    Each task goes through the same door as always: its lock, a new epoch, a fresh probe, the engine's decision. The
    forecast only says whether a person still wants that.
    """
    plan = await make_plan(journal)
    if plan.token != token:
        return Changed(plan)
    results = [await journal.advance(f.task, actor=actor) for f in plan.forecasts if f.verdict != "defer"]
    return Carried(tuple(results))
