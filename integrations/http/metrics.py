"""The service's figures: one reading, as Prometheus text or as JSON with a `schema_version` (FR-6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import orjson
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

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


SAMPLE = Figures(
    0, {"review": 0}, 0, 0, 0, 0, 0, 0, 0, {"worker": 0}, {"gone": 0}, {"tasks": 0}, {"running": 0}, 1, 0, 0, "",
    {("open", "ours", "converge"): 0},
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


async def read_figures(service: Service, decisions: Decisions) -> Figures:
    """Ask the views, the writer and the file system."""
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
    )


def as_json(figures: Figures) -> bytes:
    """The figures as JSON."""
    decisions = [
        {"row": row, "fact": fact, "verdict": verdict, "count": count}
        for (row, fact, verdict), count in figures.decisions.items()
    ]
    return orjson.dumps(
        {"schema_version": SCHEMA_VERSION} | asdict(replace(figures, decisions={})) | {"decisions": decisions}
    )


def as_text(figures: Figures) -> bytes:
    """The figures in the text format of Prometheus."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Reading(figures))
    return generate_latest(registry)


class _Reading(Collector):
    def __init__(self, figures: Figures) -> None:
        self._figures = figures

    def collect(self) -> Iterable[Metric]:
        f = self._figures
        yield _gauge("journal_position", "Position of the last event in the log.", f.position)
        yield _by("journal_open_tasks", "Open tasks by stage.", "stage", f.open_tasks)
        yield _gauge("journal_ended_tasks", "Tasks that are done or canceled.", f.ended_tasks)
        yield _gauge("journal_held_tasks", "Tasks that a run owns.", f.held)
        yield _gauge("journal_held_tasks_in_doubt", "Owned tasks with an intent that has no outcome yet.", f.in_doubt)
        yield _gauge("journal_longest_held_seconds", "Age of the oldest ownership.", f.longest_held_s)
        yield _gauge("journal_parked_tasks", "Tasks left to a person.", f.parked)
        yield _gauge("journal_due_tasks", "Free tasks whose next look is due.", f.due)
        yield _gauge("journal_waiting_tasks", "Free tasks whose next look is due later.", f.waiting)
        yield _counts("journal_deferred", "Times an actor left a task alone because it was held.", "actor", f.deferred)
        yield _counts("journal_reclaims", "Terms taken over, by why the one before was over.", "cause", f.reclaims)
        decisions = CounterMetricFamily(
            "journal_decisions", "Decisions about steps since the process began.", labels=["row", "fact", "verdict"]
        )
        for labels, count in f.decisions.items():
            decisions.add_metric(labels, count)
        yield decisions
        yield SummaryMetricFamily(
            "journal_commit_seconds", "Time of the writer's transactions.", count_value=f.batches, sum_value=f.commit_s
        )
        yield CounterMetricFamily("journal_events_written", "Events in those transactions.", value=f.written)
        yield _gauge("journal_wal_bytes", "Size of the write-ahead log beside the database.", f.wal_bytes)
        yield _by("journal_projection_lag_events", "Events a view is behind the log.", "view", f.projection_lag)
        yield _by("journal_jobs", "Runs of the dispatcher by state.", "state", f.jobs)
        yield _gauge("journal_ready", "1 when every open task is decided and the log can be written.", f.ready)
        yield _gauge("journal_standby", "1 while another process drives.", f.standby)
        yield _gauge("journal_start_time_seconds", "When the process began, since 1970.", f.started_us / 1_000_000)
        yield _by("journal_build_info", "The version that runs.", "version", {f.version: 1})


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _by(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _counts(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family
