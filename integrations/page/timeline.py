"""
One task's history as a picture: terms of ownership as bands, attempts as bars, doubt hatched, decisions as marks.

Pure: events in, coordinates out; a template draws them. Time is elastic, since a history holds milliseconds of work
between days of waiting: a pause is drawn by its logarithm, so order and simultaneity are true and lengths are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from integrations.page.attempts import Attempt, attempts_of
from integrations.page.scale import GUTTER, RIGHT, Scale
from integrations.page.words import lasted, moment
from journal.events import (
    Acquired,
    Applied,
    Event,
    HazardFound,
    HeadChanged,
    Observed,
    Opened,
    Parked,
    Released,
    Reopened,
    StageMoved,
)
from journal.words import OPERATOR_KINDS

NEWEST = 240
"""Events drawn; a longer history is cut at its old end, and the list below holds the rest."""

TOP = 34.0
LANE, BAR = 30.0, 16.0
STAGES, TERMS = 26.0, 24.0
MARK = 17.0


@dataclass(frozen=True, slots=True)
class Span:
    """Something that lasted."""

    x: float
    width: float
    row: int
    text: str  # inside it, if it is wide enough
    tip: str
    look: str  # a class of the style sheet


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened."""

    x: float
    row: int  # of a step's lane; -1 = on the axis
    tip: str
    look: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A moment on the axis."""

    x: float
    text: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """Everything to draw, in pixels."""

    width: float
    height: float
    lanes: tuple[str, ...]
    stages: tuple[Span, ...]
    terms: tuple[Span, ...]
    bars: tuple[Span, ...]
    marks: tuple[Mark, ...]
    ticks: tuple[Tick, ...]
    cut: int  # events at the old end that are not drawn
    summary: str

    def lane_y(self, row: int) -> float:
        """The top of a step's lane."""
        return TOP + STAGES + TERMS + 14 + row * LANE


def draw(events: Sequence[Event], *, now_us: int, owned: bool) -> Timeline | None:
    """
    Lay out a task's events.

    Args:
        events: The whole stream, in order; at least one.
        now_us: Microseconds since 1970: where what is still open ends.
        owned: A living run owns the task, so an open attempt is running and not in doubt.
    """
    drawn = events[-NEWEST:]
    if not drawn:
        return None
    scale = Scale(drawn, now_us)
    attempts = attempts_of(drawn)
    steps = list(dict.fromkeys([a.step for a in attempts] + [e.draft.step for e in drawn if e.draft.step]))
    height = TOP + STAGES + TERMS + 14 + LANE * len(steps) + 24
    return Timeline(
        width=round(scale.now + RIGHT, 1),
        height=height,
        lanes=tuple(steps),
        stages=tuple(_stages(drawn, scale)),
        terms=tuple(_terms(drawn, scale)),
        bars=tuple(_bar(a, steps.index(a.step), scale, now_us, owned) for a in attempts),
        marks=tuple(_marks(drawn, steps, scale)),
        ticks=tuple(_ticks(drawn, scale)),
        cut=len(events) - len(drawn),
        summary=_summary(drawn, attempts, steps),
    )


def _bar(a: Attempt, row: int, scale: Scale, now_us: int, owned: bool) -> Span:
    x = scale.of(a.begun)
    end = scale.of(a.over) if a.over else scale.now
    look = a.look
    if look == "open":
        look = "running" if owned else "doubt"
    took = lasted((a.over.at if a.over else now_us) - a.begun.at)
    outcome = a.outcome(owned=owned)
    tip = f"{a.step}, attempt {a.number}, epoch {a.epoch}: {outcome} after {took}; intent at {moment(a.begun.at)} UTC"
    return Span(x, max(3.0, round(end - x, 1)), row, f"#{a.number}", tip, look)


def _stages(events: Sequence[Event], scale: Scale) -> list[Span]:
    spans: list[Span] = []
    stage, since = "", events[0]

    def close(end: float) -> None:
        if stage:
            x = scale.of(since)
            spans.append(Span(x, max(2.0, round(end - x, 1)), len(spans) % 2, stage, f"in {stage}", "stage"))

    for event in events:
        match event.draft.body:
            case Opened(stage=new) | Reopened(stage=new) | HeadChanged(stage=new) | StageMoved(to_stage=new):
                if not stage and isinstance(event.draft.body, StageMoved):
                    stage = event.draft.body.from_stage
                close(scale.of(event))
                stage, since = new, event
            case _:
                pass
    close(scale.now)
    return spans


def _terms(events: Sequence[Event], scale: Scale) -> list[Span]:
    """Terms of ownership; one that ended without a word lasts until its successor, and says so."""
    spans: list[Span] = []
    begun: Event | None = None

    def close(end: Event | None, how: str, look: str) -> None:
        if begun is None:
            return
        x, until = scale.of(begun), scale.of(end) if end else scale.now
        d = begun.draft
        tip = f"epoch {d.epoch}, {d.actor}: {how}"
        spans.append(Span(x, max(3.0, round(until - x, 1)), d.epoch % 2, f"{d.epoch}", tip, look))

    for event in events:
        match event.draft.body:
            case Acquired(cause=cause):
                close(event, f"ended without a word, {cause.value or 'taken over'}", "term lost")
                begun = event
            case Released(ending=ending):
                close(event, ending.value, "term")
                begun = None
            case body if body.kind in OPERATOR_KINDS:
                close(event, f"taken away: {body.kind.value}", "term lost")
                begun = None
            case _:
                pass
    close(None, "still open", "term running")
    return spans


def _marks(events: Sequence[Event], steps: Sequence[str], scale: Scale) -> list[Mark]:
    marks: list[Mark] = []
    right_most: dict[int, float] = {}
    for event in events:
        d = event.draft
        row = steps.index(d.step) if d.step in steps else -1
        # Events of one unit share their moment; their marks stand side by side and not on top of each other.
        x = max(scale.of(event), right_most.get(row, 0.0) + MARK)
        drawn = len(marks)
        match d.body:
            case Observed() as o:
                cell = f"{o.row} x {o.fact.value} ({o.guard.value}) -> {o.verdict}"
                tip = f"decision at position {event.position}: {cell}"
                marks.append(Mark(x, row, tip, "decision"))
            case Applied(via="awaited" | "other" | "probe" as via):
                marks.append(Mark(x, row, f"{d.step}: {via}, position {event.position}", "found"))
            case Parked(reason=reason):
                marks.append(Mark(x, row, f"parked: {reason}", "parked"))
            case HazardFound(reason=reason):
                marks.append(Mark(x, row, f"hazard: {reason}", "parked"))
            case body if body.kind in OPERATOR_KINDS:
                marks.append(Mark(x, row, f"{body.kind.value} by {d.actor}: {getattr(body, 'reason', '')}", "person"))
            case _:
                pass
        if len(marks) > drawn:
            right_most[row] = x
    return marks


def _ticks(events: Sequence[Event], scale: Scale) -> list[Tick]:
    """Times since the first event, wherever there is room for one."""
    ticks: list[Tick] = []
    for event in events:
        x = scale.of(event)
        if not ticks or x - ticks[-1].x >= 74:
            ticks.append(Tick(x, f"+{lasted(event.at - events[0].at)}" if ticks else moment(event.at)[11:]))
        if len(ticks) == 1:
            ticks[0] = replace(ticks[0], x=GUTTER)
    return ticks


def _summary(events: Sequence[Event], attempts: Sequence[Attempt], steps: Sequence[str]) -> str:
    doubts = sum(1 for a in attempts if a.decided)
    terms = sum(1 for e in events if isinstance(e.draft.body, Acquired))
    decisions = sum(1 for e in events if isinstance(e.draft.body, Observed))
    return (
        f"{terms} terms of ownership, {len(attempts)} attempts of {len(steps)} steps, {doubts} of them in doubt, "
        f"{decisions} decisions; the tables below say the same in words"
    )
