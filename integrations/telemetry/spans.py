"""
Spans of OpenTelemetry for runs and their steps, where the extra `otel` is installed; nothing at all where it is not.

Who collects them is the host's choice: without a provider the API's spans are empty, and the events are the same. With
one, `acquired` names the trace, so that an audit leads to what was collected; nothing is decided by it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from journal.actions import (
    Appended,
    Asked,
    Busy,
    Ended,
    Locked,
    Lost,
    Occupied,
    Probed,
    Quiet,
    Replied,
    Seen,
    Unlocked,
    Waited,
)
from journal.advance import Wrap
from journal.events import Acquired, Draft
from journal.plan import EdgePlan, StepPlan
from journal.shell import Ports

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer


def tracing() -> Wrap | None:
    """What stands before the ports of every run; None where OpenTelemetry is not installed."""
    if importlib.util.find_spec("opentelemetry") is None:
        return None
    from opentelemetry import trace

    tracer = trace.get_tracer("transition-journal")
    return lambda ports, task: Traced(ports, task, tracer)


class Traced:
    """`Ports` of one run: a span from its lock to its end, and one within it for each call to the world."""

    def __init__(self, ports: Ports, task: str, tracer: Tracer) -> None:
        self._inner, self._task, self._tracer = ports, task, tracer
        self._run: Span | None = None

    async def take_lock(self) -> Locked | Busy:
        self._run = self._tracer.start_span("transition", attributes={"journal.task": self._task})
        taken = await self._inner.take_lock()
        if isinstance(taken, Busy):
            self._run.set_attribute("journal.busy", True)
            self._run.end()
        return taken

    async def end_holder(self) -> Ended:
        return await self._inner.end_holder()

    async def read(self) -> Seen:
        return await self._inner.read()

    async def ask(self, plan: EdgePlan, pending: tuple[Draft, ...]) -> Asked:
        with self._within("ask", {"journal.to_stage": plan.target}):
            return await self._inner.ask(plan, pending)

    async def append(self, drafts: tuple[Draft, ...]) -> Appended | Lost | Occupied:
        if self._run is not None:
            for draft in drafts:
                self._tell(self._run, draft)
            drafts = tuple(_traced(draft, self._run) for draft in drafts)
        return await self._inner.append(drafts)

    def _tell(self, run: Span, draft: Draft) -> None:
        if isinstance(draft.body, Acquired):
            run.set_attribute("journal.epoch", draft.epoch)
            run.set_attribute("journal.actor", draft.actor)
            run.set_attribute("journal.from_stage", draft.body.plan.source)
            run.set_attribute("journal.to_stage", draft.body.plan.target)
        run.add_event(draft.kind.value, {"journal.step": draft.step} if draft.step else {})

    async def quiesce(self, step: StepPlan, fence: tuple[int, int], pending: tuple[Draft, ...]) -> Quiet:
        with self._within("quiesce", _of(step, fence)):
            return await self._inner.quiesce(step, fence, pending)

    async def probe(self, step: StepPlan, pending: tuple[Draft, ...]) -> Probed:
        with self._within("probe", _of(step)) as span:
            found = await self._inner.probe(step, pending)
            span.set_attribute("journal.fact", found.finding.fact.value)
            return found

    async def apply(self, step: StepPlan, fence: tuple[int, int]) -> Replied:
        with self._within("apply", _of(step, fence)) as span:
            replied = await self._inner.apply(step, fence)
            span.set_attribute("journal.outcome", replied.reply.outcome.value)
            return replied

    async def wait(self, nth: int, step: StepPlan) -> Waited:
        return await self._inner.wait(nth, step)

    async def unlock(self) -> Unlocked:
        try:
            return await self._inner.unlock()
        finally:
            if self._run is not None:
                self._run.end()

    @contextmanager
    def _within(self, name: str, attributes: dict[str, Any]) -> Iterator[Span]:
        from opentelemetry import trace

        context = trace.set_span_in_context(self._run) if self._run is not None else None
        attributes = {"journal.task": self._task} | attributes
        with self._tracer.start_as_current_span(name, context=context, attributes=attributes) as span:
            yield span


def _traced(draft: Draft, run: Span) -> Draft:
    """The beginning of a term says in which trace it stands; without a collector there is none, and nothing is said."""
    context = run.get_span_context()
    if not isinstance(draft.body, Acquired) or not context.is_valid:
        return draft
    return replace(draft, body=replace(draft.body, trace=f"{context.trace_id:032x}"))


def _of(step: StepPlan, fence: tuple[int, int] = (0, 0)) -> dict[str, Any]:
    known = {"journal.step": step.name, "journal.guard": step.guard.value}
    return known | ({"journal.epoch": fence[0], "journal.attempt": fence[1]} if fence[0] else {})
