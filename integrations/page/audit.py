"""An audit as one file: no scripts, nothing from elsewhere, everything a ticket needs to hold on to (A2, DC-5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from integrations.page.render import render, statics
from integrations.page.task import Told, told
from integrations.page.timeline import Timeline, draw
from journal.events import Event
from journal.ports import Anchor
from projections.history import EpochStory, StepStory, Story
from projections.row import TaskRow
from recovery.explain import Explanation


@dataclass(frozen=True, slots=True)
class AuditedTask:
    """One task's section."""

    task: str
    row: TaskRow
    explained: Explanation
    timeline: Timeline | None
    steps: Sequence[StepStory]
    epochs: Sequence[EpochStory]
    decisions: Sequence[Told]
    events: Sequence[Event]
    faults: Sequence[str]


def audited(
    row: TaskRow, story: Story, events: Sequence[Event], explained: Explanation, faults: Sequence[str], now_us: int
) -> AuditedTask:
    """A task's section, oldest first: it is read like a report."""
    return AuditedTask(
        row.task, row, explained, draw(events, now_us=now_us, owned=False), story.steps, story.epochs,
        [told(d) for d in story.decisions], events, faults,
    )  # fmt: skip


def audit_page(
    tasks: Sequence[AuditedTask], *, journal: str, head: Anchor, now_us: int, left_out: int, faults: Sequence[str]
) -> str:
    """
    The document.

    Args:
        tasks: Its sections.
        journal: The journal's id.
        head: Where the log ended.
        now_us: When it was made, microseconds since 1970.
        left_out: Tasks that found no room in it.
        faults: What verification found beside the tasks' own parts.
    """
    given = {"tasks": tasks, "journal": journal, "head": head, "now_us": now_us, "left_out": left_out, "faults": faults}
    return render("audit.html", **given, style=statics()["page.css"].body.decode())
