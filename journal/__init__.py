"""
One task's protocol: events, folded state, engine, doubt table, pipeline, ports, log, ownership, `advance_stage`.

    async with Journal.open("orchestrator.db", pipeline=pipeline, steps=steps) as journal:
        result = await advance_stage(journal, "ORCH-114", expect="deploy-staging", actor="worker")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from journal.journal import Journal, advance_stage
    from journal.pipeline import Edge, Pipeline, StepDefinition
    from journal.plan import StepPlan
    from journal.results import (
        Advanced,
        Deferred,
        LostRace,
        Parked,
        Refused,
        Result,
        RolledBack,
        Unavailable,
        Waiting,
    )

__all__ = [
    "Advanced",
    "Deferred",
    "Edge",
    "Journal",
    "LostRace",
    "Parked",
    "Pipeline",
    "Refused",
    "Result",
    "RolledBack",
    "StepDefinition",
    "StepPlan",
    "Unavailable",
    "Waiting",
    "advance_stage",
]

_HOMES = {
    "Advanced": "journal.results",
    "Deferred": "journal.results",
    "Edge": "journal.pipeline",
    "Journal": "journal.journal",
    "LostRace": "journal.results",
    "Parked": "journal.results",
    "Pipeline": "journal.pipeline",
    "Refused": "journal.results",
    "Result": "journal.results",
    "RolledBack": "journal.results",
    "StepDefinition": "journal.pipeline",
    "StepPlan": "journal.plan",
    "Unavailable": "journal.results",
    "Waiting": "journal.results",
    "advance_stage": "journal.journal",
}


def __getattr__(name: str) -> object:
    """Load a name when it is asked for: who only reads a journal needs no event loop, and starts twice as fast."""
    home = _HOMES.get(name)
    if home is None:
        msg = f"module 'journal' has no attribute '{name}'"
        raise AttributeError(msg)
    value = globals()[name] = getattr(import_module(home), name)
    return value
