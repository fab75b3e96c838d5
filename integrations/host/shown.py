"""What a host adds to its own answers: `transition_ownership` for its queue, figures for its metrics (FR-6)."""

from __future__ import annotations

from typing import Any

import orjson

from journal.journal import Journal
from projections.base import ask
from projections.queue import Snapshot, snapshot


async def queue_block(journal: Journal) -> dict[str, Any]:
    """Who owns what, as `GET /queue` of the service shows it."""
    seen = await _snapshot(journal)
    held: list[dict[str, Any]] = orjson.loads(seen.held)
    for each in held:
        each["alive"] = journal.locks.is_held(each["task"])
    return {
        "enabled": True,
        "held": held,
        "deferred": orjson.loads(seen.deferred),
        "reclaims": seen.reclaims,
        "parked": orjson.loads(seen.parked),
    }


async def figures(journal: Journal) -> dict[str, Any]:
    """Additive: every name begins with `journal_`, and the host's `schema_version` stays."""
    seen = await _snapshot(journal)
    return {
        "journal_position": seen.position,
        "journal_held": len(orjson.loads(seen.held)),
        "journal_parked": len(orjson.loads(seen.parked)),
        "journal_deferred": sum(orjson.loads(seen.deferred).values()),
        "journal_reclaims": sum(seen.reclaims.values()),
    }


async def _snapshot(journal: Journal) -> Snapshot:
    return await ask(journal.log, snapshot(journal.clock.now_us(), 1))
