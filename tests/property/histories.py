"""Random histories that the log would have admitted: at each step one of the units that `admit` allows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import strategies as st

from journal.admit import admit
from journal.chain import GENESIS
from journal.errors import InadmissibleError
from journal.events import (
    Acquired,
    Applied,
    Body,
    Canceled,
    CancelRequested,
    Draft,
    Event,
    HazardFound,
    HeadChanged,
    Intended,
    JournalCreated,
    Observed,
    Opened,
    Owner,
    Parked,
    Paused,
    Rejected,
    Released,
    Reopened,
    Resumed,
    Settled,
    StageMoved,
)
from journal.log.rows import place
from journal.plan import EdgePlan, StepPlan, intern_plan
from journal.state import TaskState
from journal.stream import Stream
from journal.words import Cause, Ending, Fact, Guard

TASKS = ("T-1", "T-2", "t-3")
PLANS = {
    "review": intern_plan(
        EdgePlan("review", "deploy", (StepPlan("merge", Guard.EXCLUSIVE), StepPlan("ratchet", Guard.EXCLUSIVE)),
                 lane="merge:a/b", on_failure="development")
    ),
    "development": intern_plan(EdgePlan("development", "review")),
    "deploy": intern_plan(
        EdgePlan("deploy", "done", (StepPlan("seen", Guard.AWAITED, irreversible=False),
                                    StepPlan("deploy_init", Guard.EXCLUSIVE, ends_owner=True)), final=True)
    ),
}  # fmt: skip
HEAD = "b" * 40


@dataclass
class History:
    """A log in the making; its own fold is the core's."""

    events: list[Event] = field(default_factory=list)
    streams: dict[str, Stream] = field(default_factory=dict)
    at: int = 1_800_000_000_000_000

    def __post_init__(self) -> None:
        self._place("", (Draft(JournalCreated("j" * 32), actor="journal"),))

    def grow(self, task: str, choice: int, pause_us: int) -> None:
        """Append one of the admissible units of a task."""
        self.at += pause_us
        stream = self.streams.get(task, Stream(task))
        units = [unit for unit in _units(stream.state, self.at) if _admissible(stream.state, unit)]
        onward = [unit for unit in units if _goes_on(stream.state, unit)]
        straight = [unit for unit in onward if not _detour(unit)]
        # Mostly straight on, or hardly any history would come to an end before somebody cancels it.
        chosen = (units, onward or units, straight or onward or units)[min(choice % 5, 2)]
        if chosen:
            self._place(task, chosen[choice // 5 % len(chosen)])

    def _place(self, task: str, drafts: tuple[Draft, ...]) -> None:
        for draft in drafts:
            stream = self.streams.get(task, Stream(task))
            last = self.events[-1] if self.events else None
            event = place(
                task, draft, position=len(self.events) + 1, version=stream.version + 1, at=self.at,
                prev_hash=last.hash if last else GENESIS, basis=stream.basis,
            )  # fmt: skip
            self.events.append(event)
            self.streams[task] = stream.after(event)


ONWARD = (Opened, Acquired, Intended, Applied, Rejected, Released, Resumed, Settled)


def _goes_on(state: TaskState, unit: tuple[Draft, ...]) -> bool:
    return isinstance(unit[-1].body, ONWARD) and not (state.owner and isinstance(unit[0].body, Acquired))


def _detour(unit: tuple[Draft, ...]) -> bool:
    body = unit[-1].body
    return isinstance(body, Rejected) or (isinstance(body, Released) and body.ending is not Ending.ADVANCED)


def _admissible(state: TaskState, unit: tuple[Draft, ...]) -> bool:
    try:
        admit(state, unit)
    except InadmissibleError:
        return False
    return True


def _units(s: TaskState, salt: int) -> Iterator[tuple[Draft, ...]]:
    step = s.current
    name, guard = (step.name, step.guard) if step else ("", Guard.BLIND)

    def d(body: Body, *, epoch: int = s.epoch, generation: int = s.generation, attempt: int = 0) -> Draft:
        about = isinstance(body, Intended | Applied | Rejected | Observed | Settled)
        return Draft(
            body, epoch, generation, f"actor{salt % 3}", name if about else "", attempt or s.attempts if about else 0
        )

    if not s.stage:
        yield (Draft(Opened(("acme/a", "acme/b")[salt % 2], "f/x", "main", HEAD, 7, "review"), 0, 1, "operator"),)
        return
    plan = PLANS.get(s.stage)
    if plan is not None:
        cause = (Cause.GONE, Cause.BUDGET, Cause.OPERATOR)[salt % 3] if s.owner else Cause.NONE
        owner = Owner(f"run{salt}", "i", "host", 12, "boot", 3)
        yield (d(Acquired(owner, plan, s.owner, cause), epoch=s.epoch + 1),)
    yield (d(Intended(guard, True, s.plan.lane if s.plan else "", 1000), attempt=s.attempts + 1),)
    seen = Observed("P2", Fact.OURS, guard, "converge", (("source", "test"),))
    yield (d(Applied("apply")),)
    yield (d(seen), d(Applied("probe")))
    yield (d(Rejected()),)
    absent = Observed("P2", Fact.ABSENT, guard, "redrive")
    yield (d(absent), d(Intended(guard, True, s.plan.lane if s.plan else "", 1000), attempt=s.attempts + 1))
    yield (d(seen),)
    if s.plan is not None:
        moved = StageMoved(s.plan.source, s.plan.target, s.plan.final)
        yield (d(moved), d(Released(Ending.ADVANCED)))
        yield (d(StageMoved(s.plan.source, s.plan.on_failure)), d(Released(Ending.ROLLED_BACK)))
    yield (d(Released(Ending.WAITING, "forge down", 1500)),)
    yield (d(Released(Ending.LOST, "lost")),)
    yield (d(Parked("unknown fact", f"alert{salt}")), d(Released(Ending.PARKED, "unknown fact")))
    yield (d(Settled(True, "looked", "is there")),)
    yield (d(Settled(False, "looked", "is not there")),)
    yield (d(HazardFound("reverted")),)
    yield (d(HeadChanged("c" * 40, "review"), generation=s.generation + 1),)
    yield (d(Paused("holiday")),)
    yield (d(Resumed("go on")),)
    yield (d(CancelRequested("no more")),)
    yield (d(Canceled("no more")),)
    yield (d(Reopened("review", HEAD, "again"), generation=s.generation + 1),)


@st.composite
def histories(draw: st.DrawFn, size: int = 60) -> History:
    """A history of three tasks, up to so many units."""
    history = History()
    moves = st.tuples(st.sampled_from(TASKS), st.integers(0, 1000), st.integers(0, 3_000_000))
    for task, choice, pause_us in draw(st.lists(moves, max_size=size)):
        history.grow(task, choice, pause_us)
    return history
