"""The service's figures: one reading, as Prometheus text or as JSON with a `schema_version` (FR-6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

import orjson
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from integrations.http.ports import Service
from projections.base import ask, checkpoints
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


async def read_figures(service: Service) -> Figures:
    """Ask the views; nothing is counted on the side."""
    seen = await ask(service.reader, snapshot(service.clock.now_us(), 1))
    held = orjson.loads(seen.held)
    lags = await ask(service.reader, checkpoints())
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
    )


def as_json(figures: Figures) -> bytes:
    """The figures as JSON."""
    return orjson.dumps({"schema_version": SCHEMA_VERSION} | asdict(figures))


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
