"""
One task's protocol: events, folded state, engine, doubt table, pipeline, ports, log, ownership, `advance_stage`.

    async with Journal.open("orchestrator.db", pipeline=pipeline, steps=steps) as journal:
        result = await advance_stage(journal, "ORCH-114", expect="deploy-staging", actor="worker")
"""

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
