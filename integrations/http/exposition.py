"""The service's figures in the text format of Prometheus; apart, so that a service is ready before this is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from integrations.http.metrics import Figures


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
        webhooks = CounterMetricFamily(
            "journal_webhooks",
            "Requests to the webhooks since the process began: recorded, repeated, or why not.",
            labels=["source", "outcome"],
        )
        for sent, count in f.webhooks.items():
            webhooks.add_metric(sent, count)
        yield webhooks
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
