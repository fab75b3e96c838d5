"""The service's figures: one reading, as Prometheus text or as JSON with a `schema_version` (FR-6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import orjson

from integrations.http.ports import Service
from projections.as_of import position_at
from projections.base import ask, checkpoints
from projections.events import decisions_after
from projections.queue import ended_count, snapshot

SCHEMA_VERSION = 1
"""Of the JSON; it grows additively and keeps its number."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What is measured."""

    position: int
    open_tasks: Mapping[str, int]  # by stage
    ended_tasks: int
    held: int
    in_doubt: int
    longest_held_s: int
    parked: int
    due: int
    waiting: int
    deferred: Mapping[str, int]  # by actor
    reclaims: Mapping[str, int]  # by cause
    projection_lag: Mapping[str, int]  # events, by view
    jobs: Mapping[str, int]
    ready: int
    standby: int
    started_us: int
    version: str
    decisions: Mapping[tuple[str, str, str], int] = field(default_factory=dict)  # by row, fact, verdict
    batches: int = 0  # transactions of the writer since the process began
    written: int = 0  # events in them
    commit_s: float = 0.0  # seconds they took
    wal_bytes: int = 0
    webhooks: Mapping[tuple[str, str], int] = field(default_factory=dict)  # by sender and outcome


SAMPLE = Figures(
    0, {"review": 0}, 0, 0, 0, 0, 0, 0, 0, {"worker": 0}, {"gone": 0}, {"tasks": 0}, {"running": 0}, 1, 0, 0, "",
    {("open", "ours", "converge"): 0}, webhooks={("gitea", "recorded"): 0},
)  # fmt: skip
"""One of everything, for the reference."""


class Decisions:
    """Counts decisions since the process began; each reading looks only at what is new."""

    def __init__(self) -> None:
        self._position: int | None = None
        self._counts: Counter[tuple[str, str, str]] = Counter()

    async def read(self, service: Service) -> Mapping[tuple[str, str, str], int]:
        """By row of the table, fact and verdict."""
        known = begin = self._position
        if begin is None:
            begin = await ask(service.reader, position_at(service.started_us))
        head, found = await ask(service.reader, decisions_after(begin))
        if self._position == known and head >= begin:  # another reading may have been quicker
            self._position = head
            self._counts.update(found)
        return dict(self._counts)


def _wal_bytes(path: Path) -> int:
    try:
        return path.with_name(path.name + "-wal").stat().st_size
    except OSError:
        return 0


async def read_figures(
    service: Service, decisions: Decisions, webhooks: Mapping[tuple[str, str], int] = MappingProxyType({})
) -> Figures:
    """Ask the views, the writer and the file system; `webhooks` are counted by those who take them in."""
    seen = await ask(service.reader, snapshot(service.clock.now_us(), 1))
    held = orjson.loads(seen.held)
    lags = await ask(service.reader, checkpoints())
    writer = service.journal.log.writer if service.journal else None
    return Figures(
        position=seen.position,
        open_tasks=orjson.loads(seen.counts),
        ended_tasks=await ask(service.reader, ended_count()),
        held=len(held),
        in_doubt=sum(each["in_doubt"] for each in held),
        longest_held_s=max((each["age_s"] for each in held), default=0),
        parked=len(orjson.loads(seen.parked)),
        due=seen.due,
        waiting=seen.waiting,
        deferred=orjson.loads(seen.deferred),
        reclaims=seen.reclaims,
        projection_lag={view.name: view.lag for view in lags},
        jobs=dict(service.jobs()),
        ready=int(service.ready()[0]),
        standby=int(service.standby),
        started_us=service.started_us,
        version=service.version,
        decisions=await decisions.read(service),
        batches=writer.batches if writer else 0,
        written=writer.events if writer else 0,
        commit_s=writer.commit_s if writer else 0.0,
        wal_bytes=_wal_bytes(service.journal.log.path) if service.journal else 0,
        webhooks=dict(webhooks),
    )


def as_json(figures: Figures) -> bytes:
    """The figures as JSON."""
    decisions = [
        {"row": row, "fact": fact, "verdict": verdict, "count": count}
        for (row, fact, verdict), count in figures.decisions.items()
    ]
    webhooks = [
        {"source": source, "outcome": outcome, "count": count} for (source, outcome), count in figures.webhooks.items()
    ]
    plain = asdict(replace(figures, decisions={}, webhooks={}))
    return orjson.dumps({"schema_version": SCHEMA_VERSION} | plain | {"decisions": decisions, "webhooks": webhooks})


def as_text(figures: Figures) -> bytes:
    """The figures in the text format of Prometheus, whose client is loaded when it is first asked for."""
    from integrations.http.exposition import as_text as written

    return written(figures)
