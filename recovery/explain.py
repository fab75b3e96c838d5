"""
Why a task is where it is, in words a person can act on (CONTRACT `explain`; DESIGN 1).

Over the journal alone: where it stands, what it waits for, what happens next by itself, which verb a person may use;
then the cell of the decision table that fired last, what was seen and how old that is, and the cells that did not fire.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from journal.doubt import TABLE, Table
from journal.state import TaskState
from journal.words import Evidence, Hold
from projections.history import Decision, EpochStory, Story
from projections.row import TaskRow
from recovery.account import account
from recovery.cells import Cell, not_fired


@dataclass(frozen=True, slots=True)
class Explanation:
    """What `journal explain` prints. Ages are whole seconds."""

    task: str
    stage: str
    status: str
    stands: str  # where it stands
    waits_for: str
    by_itself: str  # what happens next without anybody
    verbs: tuple[str, ...]  # commands a person may use now
    decision: Decision | None = None  # the last one about the step at the cursor
    decision_age_s: int = 0
    facts: Evidence = ()
    fired: Cell | None = None
    others: tuple[Cell, ...] = ()
    doubts: tuple[str, ...] = ()  # every attempt that was in doubt, and what settled it

    @property
    def paragraph(self) -> str:
        """The four answers as one paragraph."""
        verbs = f" You may: {', '.join(self.verbs)}." if self.verbs else ""
        return f"{self.stands} {self.waits_for} {self.by_itself}{verbs}"


def explain(
    row: TaskRow, story: Story, *, now_us: int, held: bool | None = None, advance: str = "", table: Table = TABLE
) -> Explanation:
    """
    Explain a task from its history.

    Args:
        row: The task as the view of tasks has it, folded from its events.
        story: The same events, told.
        now_us: Microseconds since 1970, for ages only.
        held: Whether the task's lock is held at this moment; None = cannot be seen from here.
        advance: Of the edge that leaves the stage: auto, job, manual; empty = not known.
        table: The decision table.
    """
    state = row.state
    stands, waits, by_itself, verbs = _words(row, story, now_us, held, advance)
    decision = story.decisions[-1] if story.decisions else None
    base = Explanation(row.task, state.stage, row.status, stands, waits, by_itself, verbs, doubts=account(story))
    if decision is None:
        return base
    fired = Cell(
        decision.row, decision.fact, decision.verdict, f"this is what was found at position {decision.position}"
    )
    return replace(
        base,
        decision=decision,
        decision_age_s=max(0, now_us - decision.at) // 1_000_000,
        facts=decision.seen,
        fired=fired,
        others=not_fired(decision.row, decision.fact, decision.guard, table),
    )


def _words(
    row: TaskRow, story: Story, now_us: int, held: bool | None, advance: str
) -> tuple[str, str, str, tuple[str, ...]]:
    task, state = row.task, row.state
    match state.hold:
        case Hold.DONE:
            return (
                f"{task} is done: it came to {state.stage} {_ago(row.changed_us, now_us)}.",
                "It waits for nothing.",
                "Nothing happens by itself.",
                (f"journal reopen {task} --stage STAGE --reason TEXT",),
            )
        case Hold.CANCELED:
            return (
                f"{task} was canceled in {state.stage} {_ago(row.changed_us, now_us)}.",
                "It waits for nothing.",
                "Nothing happens by itself.",
                (f"journal reopen {task} --stage STAGE --reason TEXT",),
            )
        case Hold.PARKED:
            return _parked(row, now_us)
        case Hold.PAUSED:
            return (
                f"{task} is paused in {state.stage}{_doubt(state)}.",
                "It waits for a person.",
                "Nothing happens by itself.",
                (f"journal resume|cancel {task} --reason TEXT",),
            )
        case _:
            return _owned(row, story, now_us, held) if state.owner else _free(row, now_us, held, advance)


def _parked(row: TaskRow, now_us: int) -> tuple[str, str, str, tuple[str, ...]]:
    task, state = row.task, row.state
    verbs = [f"journal retry|cancel {task} --reason TEXT"]
    if state.current is not None and state.plan is not None and state.plan.source == state.stage:
        verbs.append(f"journal settle {task} --as applied|not-applied --evidence TEXT --reason TEXT")
    return (
        f"{task} was parked in {state.stage} {_ago(row.parked_us, now_us)}: {row.reason}{_doubt(state)}.",
        "It waits for a person.",
        "By itself it goes on only if the effect it is about is seen in the world.",
        tuple(verbs),
    )


def _owned(row: TaskRow, story: Story, now_us: int, held: bool | None) -> tuple[str, str, str, tuple[str, ...]]:
    task, state = row.task, row.state
    epoch = story.epochs[-1]
    step = state.current
    what = (
        f"step {step.name}, attempt {state.attempts}" if step and state.open else f"step {step.name if step else '?'}"
    )
    stands = (
        f"{task} is in {state.stage} on its way to {epoch.to_stage}: {_who(epoch)} owns it in epoch {epoch.epoch}, "
        f"begun {_ago(epoch.acquired_at, now_us)}, and is at {what}."
    )
    verbs = (f"journal release|pause|cancel {task} --reason TEXT",)
    if held is False:
        return (
            stands,
            "Its lock is free, so that term is over although its end is not written." + _next_asks(state),
            "The next look takes it over under a new epoch and asks the world before anything else.",
            (f"journal advance {task}", f"journal pause|cancel {task} --reason TEXT"),
        )
    budget = f" The step is ended after {step.budget_ms // 1000} s at the latest." if step and step.budget_ms else ""
    return (
        stands,
        "It waits for the end of that step." + budget,
        "The owner goes on, or is replaced when it ends.",
        verbs,
    )


def _free(row: TaskRow, now_us: int, held: bool | None, advance: str) -> tuple[str, str, str, tuple[str, ...]]:
    state = row.state
    task, plan, step = row.task, state.plan, state.current
    verbs = (f"journal advance {task}", f"journal pause|cancel {task} --reason TEXT")
    middle = plan is not None and plan.source == state.stage and state.begun
    if held:
        return (
            f"{task} is in {state.stage}, and a run has just taken its lock.",
            "It waits for that run.",
            "It goes on.",
            verbs,
        )
    if row.look_us or middle or state.open:
        waits = f"It waits for: {row.reason}." if row.reason else "It waits for the next look." + _next_asks(state)
        due = row.look_us - now_us
        when = f"in {max(1, due // 1_000_000)} s" if due > 0 else "now"
        where = f"{state.stage} on its way to {plan.target}" if plan and middle else state.stage
        cursor = f", at step {step.name}" if step and middle else ""
        return (
            f"{task} is in {where}{cursor}{_doubt(state)}; nobody owns it.",
            waits,
            f"The next look is due {when}, and the service takes it by itself.",
            verbs,
        )
    mode = {
        "auto": "The service moves it on by itself.",
        "job": "The worker moves it on when its job is done.",
        "manual": "Nothing happens by itself: its next edge is a manual one.",
    }.get(advance, "If its next edge is automatic, the service moves it on by itself.")
    return (
        f"{task} is in {state.stage}; nobody owns it and nothing is in doubt.",
        "It waits for its next move.",
        mode,
        verbs,
    )


def _doubt(state: TaskState) -> str:
    step = state.current
    return f"; attempt {state.attempts} of {step.name} is in doubt" if state.open and step else ""


def _next_asks(state: TaskState) -> str:
    step = state.current
    return f" Whether {step.name} happened is not known until the world is asked." if state.open and step else ""


def _who(epoch: EpochStory) -> str:
    owner = epoch.owner
    return f"{epoch.actor}@{owner.host or '?'}:{owner.pid or '?'}"


def _ago(at_us: int, now_us: int) -> str:
    seconds = max(0, now_us - at_us) // 1_000_000
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"
