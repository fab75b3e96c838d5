"""Spans of a real run, collected in memory by OpenTelemetry's own kit."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog
from structlog.testing import LogCapture

from integrations.cli.reading import audit
from integrations.telemetry import spans
from journal.journal import Journal, NewTask
from journal.log.offline import open_evidence
from journal.ports import Call, Reply
from journal.results import Advanced
from journal.words import Kind
from tests.contract.http_service import PIPELINE, FileStep


async def test_a_run_is_a_span_with_one_for_each_call_to_the_world(tmp_path: Path) -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracer = provider.get_tracer("test")
    steps = dict.fromkeys(PIPELINE.steps, FileStep(tmp_path))
    async with Journal.open(
        tmp_path / "journal.db",
        pipeline=PIPELINE,
        steps=steps,
        wrap=lambda ports, task: spans.Traced(ports, task, tracer),
    ) as journal:
        await journal.open_task(NewTask("T-1", "acme/widgets", "feature/one"), actor="tracker")
        assert isinstance(await journal.advance("T-1", actor="worker"), Advanced)
    finished = {span.name: span for span in kept.get_finished_spans()}
    run, apply = finished["transition"], finished["apply"]
    assert {"transition", "probe", "apply"} <= set(finished)
    assert run.attributes is not None and apply.attributes is not None and apply.parent is not None
    assert (run.attributes["journal.task"], run.attributes["journal.epoch"]) == ("T-1", 1)
    assert run.attributes["journal.to_stage"] == "deploy"
    assert run.events[0].name == "acquired"
    assert "stage_moved" in [event.name for event in run.events]
    assert apply.parent.span_id == run.context.span_id
    assert (apply.attributes["journal.step"], apply.attributes["journal.outcome"]) == ("merge_pr", "applied")
    assert (apply.attributes["journal.epoch"], apply.attributes["journal.attempt"]) == (1, 1)
    with open_evidence(tmp_path / "journal.db") as db:
        found = audit(db, "T-1", 2**63 - 1)
    assert [term.trace for term in found.story.epochs] == [f"{run.context.trace_id:032x}"]
    assert [e.schema for e in found.events if e.kind is Kind.ACQUIRED] == [2]
    assert found.findings.intact


async def test_without_a_collector_the_events_are_those_of_a_journal_without_traces(tmp_path: Path) -> None:
    steps, wrap = dict.fromkeys(PIPELINE.steps, FileStep(tmp_path)), spans.tracing()
    assert wrap is not None
    async with Journal.open(tmp_path / "journal.db", pipeline=PIPELINE, steps=steps, wrap=wrap) as journal:
        await journal.open_task(NewTask("T-1", "acme/widgets", "feature/one"), actor="tracker")
        assert isinstance(await journal.advance("T-1", actor="worker"), Advanced)
        events = await journal.log.events(task="T-1")
    assert {e.schema for e in events} == {1}
    assert not any("trace" in e.body_text for e in events)


def test_without_opentelemetry_nothing_stands_before_the_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert spans.tracing() is None


async def test_whatever_is_logged_within_a_step_says_whose_step_it_is(tmp_path: Path) -> None:
    class Talking(FileStep):
        async def apply(self, call: Call) -> Reply:
            structlog.get_logger().info("pushed")
            return await super().apply(call)

    before = structlog.get_config()
    lines = LogCapture()
    everything = structlog.make_filtering_bound_logger(0)  # whatever level a test before this one chose
    structlog.configure(processors=[structlog.contextvars.merge_contextvars, lines], wrapper_class=everything)
    try:
        steps = dict.fromkeys(PIPELINE.steps, Talking(tmp_path))
        async with Journal.open(tmp_path / "journal.db", pipeline=PIPELINE, steps=steps) as journal:
            await journal.open_task(NewTask("T-1", "acme/widgets", "feature/one"), actor="tracker")
            await journal.advance("T-1", actor="worker")
    finally:
        structlog.configure(**before)
    (line,) = [entry for entry in lines.entries if entry["event"] == "pushed"]
    assert (line["task"], line["actor"], line["step"], line["epoch"]) == ("T-1", "worker", "merge_pr", 1)
    assert structlog.contextvars.get_contextvars() == {}
