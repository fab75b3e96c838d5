"""One task as a template draws it: what it is, why it is there, its verbs, its picture and its story; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from integrations.page.timeline import Timeline, draw
from integrations.page.verbs import Verb, verbs_for
from journal.events import Event
from journal.words import Evidence
from projections.as_of import row_of
from projections.history import Decision, EpochStory, StepStory, Story, tell
from projections.row import TaskRow
from recovery.explain import Explanation, explain

EVENTS = 200
"""Events listed at once, newest first."""

JOURNAL_SAID = {
    "fresh": "no attempt was begun",
    "open": "an attempt was begun and has no outcome",
    "retry": "every attempt is closed as not applied",
}
WORLD_SAID = {
    "ours": "the effect is there and carries our key",
    "others": "the effect is there, somebody else's",
    "absent": "the effect is not there",
    "unknown": "no answer that counts",
    "conflict": "sources contradict each other",
}
SO = {
    "drive": "run it",
    "converge": "record what is there; run nothing",
    "reject": "record that the attempt did nothing",
    "wait": "look again later",
    "park": "leave it to a person",
    "halt": "an older copy of the journal: leave it to a person",
}


@dataclass(frozen=True, slots=True)
class Told:
    """A decision in words."""

    position: int
    epoch: int
    step: str
    attempt: int
    actor: str
    journal: str
    world: str
    verdict: str
    so: str
    seen: Evidence
    reply: Evidence


@dataclass(frozen=True, slots=True)
class TaskPage:
    """Everything on a task's page."""

    task: str
    row: TaskRow
    now_us: int
    alive: bool
    explained: Explanation
    verbs: Sequence[Verb]
    stages: Sequence[str]
    timeline: Timeline | None
    steps: Sequence[StepStory]
    epochs: Sequence[EpochStory]
    decisions: Sequence[Told]
    events: Sequence[Event]  # newest first
    earlier: int  # the list goes on before this version; 0 = it is complete
    past: int = 0  # as of this position; 0 = now
    before: int = 0  # position of the task's event before, for stepping through its history; 0 = none
    after: int = 0  # of the one behind

    @property
    def ended(self) -> bool:
        return self.row.state.ended

    @property
    def in_doubt(self) -> bool:
        """An attempt has no outcome, and nobody is at it."""
        return self.row.state.open and not self.alive

    @property
    def last(self) -> Told:
        """The last decision."""
        return self.decisions[0]

    @property
    def mark(self) -> str:
        """Changes when anything on the page does, ages aside."""
        return f"{self.row.version}.{int(self.alive)}"

    @property
    def verbs_mark(self) -> str:
        """Changes when other verbs are offered, or one of them would do something else."""
        return ".".join(f"{v.name}{len(v.effect)}" for v in self.verbs)


def told(decision: Decision) -> Told:
    """Put a cell of the table into words."""
    d = decision
    return Told(
        d.position, d.epoch, d.step, d.attempt, d.actor, JOURNAL_SAID.get(d.row, d.row),
        WORLD_SAID.get(d.fact, d.fact), d.verdict, SO.get(d.verdict, ""), d.seen, d.reply,
    )  # fmt: skip


def task_page(
    row: TaskRow,
    story: Story,
    events: Sequence[Event],
    explained: Explanation,
    *,
    now_us: int,
    alive: bool,
    stages: Sequence[str],
    before: int = 0,
) -> TaskPage:
    """
    Build the page of a task.

    Args:
        row: The task, folded.
        story: Its story.
        events: Its whole stream, in order.
        explained: Why it is where it is.
        now_us: Microseconds since 1970.
        alive: Its lock is held at this moment.
        stages: Of the pipeline, for whoever reopens it.
        before: List events before this version; 0 = the newest.
    """
    end = min(before - 1, len(events)) if before else len(events)
    listed = events[max(0, end - EVENTS) : max(0, end)]
    return TaskPage(
        task=row.task,
        row=row,
        now_us=now_us,
        alive=alive,
        explained=explained,
        verbs=verbs_for(row.task, row.state, alive=alive),
        stages=stages,
        timeline=draw(events, now_us=now_us, owned=bool(row.state.owner) and alive),
        steps=story.steps[::-1],
        epochs=story.epochs[::-1],
        decisions=[told(d) for d in reversed(story.decisions)],
        events=listed[::-1],
        earlier=listed[0].version if listed and listed[0].version > 1 else 0,
    )


def task_page_at(
    task: str, history: Sequence[Event], position: int, *, stages: Sequence[str], before: int = 0
) -> TaskPage:
    """
    The page of a task as of a position: what the journal knew then, and nobody may act on it.

    Args:
        task: Its id.
        history: Its whole stream, in order; its first event is not behind the position.
        position: Everything up to it, it included, had happened.
        stages: Of the pipeline.
        before: List events before this version; 0 = the newest.
    """
    events = [event for event in history if event.position <= position]
    behind = [event.position for event in history if event.position > position]
    row, story, then_us = row_of(task, events), tell(events), max(event.at for event in events)
    # Whether the owner lived is not known any more; the journal said that it owned.
    page = task_page(
        row, story, events, explain(row, story, now_us=then_us), now_us=then_us, alive=bool(row.state.owner),
        stages=stages, before=before,
    )  # fmt: skip
    earlier = [event.position for event in events[:-1]]
    return replace(
        page, verbs=(), past=position, before=earlier[-1] if earlier else 0, after=behind[0] if behind else 0
    )
