"""
One task as the views show it: the decision state, folded by `journal.state`, beside what people and schedulers need.

A row is the only mutable value here: it is built up event by event inside one transaction and thrown away when that is
rolled back. It can be stored and loaded at any event, so continuing costs one row, however long the history is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import Any

import orjson

from journal.errors import DamagedError
from journal.events import (
    NOBODY,
    Acquired,
    Applied,
    Body,
    Canceled,
    HeadChanged,
    Intended,
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
    Unread,
)
from journal.plan import EdgePlan
from journal.projection import Drafted, Past
from journal.state import TaskState, evolve
from journal.words import Hold

# Python 3.11 takes twenty times longer to look a member up in its class than a name in its module.
_FREE, _PARKED = Hold.NONE, Hold.PARKED

COLUMNS = (
    "opened", "task", "repo", "branch", "base", "head", "pr", "stage", "status", "hold", "open", "generation", "epoch",
    "version", "position", "run", "actor", "instance", "host", "pid", "from_stage", "to_stage", "step", "attempts",
    "in_doubt", "begun", "lane", "acquired_us", "stage_position", "stage_since_us", "look_us", "reason", "parked_us",
    "alert", "cancel", "opened_us", "changed_us", "memory",
)  # fmt: skip
"""
Of `journal_view_tasks`, in order; `opened` is the position of the task's first event and the table's key.

The plan, which is longer than all of them and the same for a whole term, has a table of its own.
"""

ATTEMPTING: frozenset[type[Body]] = frozenset({Intended, Applied, Rejected})
"""Bodies that change nothing but `QUIET` columns: most of all, so they rewrite neither the whole row nor an index."""

_SHOWN = frozenset({"stage", "generation", "epoch", "owner", "plan", "hold", "cancel", "open", "lane"})
_OF_THE_LOG = frozenset({"floor"})
MEMORY = tuple(name for name in TaskState._fields if name not in _SHOWN | _OF_THE_LOG)
"""What else of the decision state is stored, so that a fold can go on from a row; grows with it."""

_memory_of = attrgetter(*MEMORY)


@dataclass(slots=True)
class TaskRow:
    """A task up to `version`. Times are event times in microseconds UTC; 0 = never."""

    task: str
    state: TaskState = TaskState()
    version: int = 0
    position: int = 0
    opened: int = 0
    opened_us: int = 0
    changed_us: int = 0
    repo: str = ""
    branch: str = ""
    base: str = ""
    head: str = ""
    pr: int = 0
    owner: Owner = field(default=NOBODY)
    actor: str = ""  # who acquired the running term
    acquired_us: int = 0
    stage_position: int = 0  # where the task entered its stage: the queue's order
    stage_since_us: int = 0
    look_us: int = 0  # when the next look is due; 0 = at once
    reason: str = ""  # of the last waiting, parking or pause
    parked_us: int = 0
    alert: str = ""

    @property
    def open(self) -> bool:
        """Neither done nor canceled."""
        return not self.state.ended

    @property
    def stay(self) -> int:
        """Position at which the present stay in a stage began; 0 = the task is not open."""
        return self.stage_position if self.open else 0

    @property
    def handed_over(self) -> bool:
        """The step that ends its own process was begun or closed, and the edge is not over (FR-4)."""
        state = self.state
        plan = _running(state)
        enders = _enders(plan) if plan is not None else ()
        return bool(enders) and any(step in state.closed or step in dict(state.intents) for step in enders)

    @property
    def status(self) -> str:
        """One word for people; a hold says more than who owns, and handed over says more than waiting."""
        state = self.state
        if state.hold is not _FREE:
            return str(state.hold)
        if self.handed_over:
            return "handed_over"
        if state.owner:
            return "owned"
        return "waiting" if self.look_us else "free"

    def take(self, event: Past, state: TaskState | None = None) -> bool:
        """
        Take in the next event; says whether it was new. One that was taken already changes nothing (R94).

        Args:
            event: The event.
            state: The fold with it, if the caller has it already.

        Raises:
            DamagedError: Events between this row and the event are missing, so the view is not of this log.
        """
        version = event.version
        if version != self.version + 1:
            if version <= self.version:
                return False
            raise DamagedError(
                path=f"view of task {self.task}",
                why=f"reaches version {self.version} and the next event is version {version}",
                remedy="run `journal projections rebuild`",
            )
        self.version, self.position, self.changed_us = version, event.position, event.at
        if self.state.unread:
            return True
        draft = event.draft
        self.state = state = evolve(self.state, draft) if state is None else state
        if type(draft.body) not in ATTEMPTING:
            self._people(event, draft)
            if not state.owner:
                self.owner, self.actor, self.acquired_us = NOBODY, "", 0
            if state.hold is not _PARKED:
                self.parked_us, self.alert = 0, ""
        if state.hold is not _FREE and state.ended:
            self.state = _at_its_end(state)
        return True

    def _people(self, event: Past, draft: Drafted) -> None:
        """What the decision state leaves out."""
        match draft.body:
            case Acquired(owner=owner):
                self.owner, self.actor, self.acquired_us = owner, draft.actor, event.at
                self.look_us, self.reason = 0, ""
            case Released(look_ms=look_ms, reason=reason):
                self.look_us, self.reason = (event.at + look_ms * 1000 if look_ms else 0), reason
            case StageMoved():
                self._entered(event)
            case Unread(why=why):
                self.reason, self.parked_us = why, event.at
                self.alert = f"{self.task}/{self.state.generation}/unread"
            case Parked(reason=reason, alert=alert):
                self.reason, self.parked_us, self.alert = reason, event.at, alert
            case Opened() as body:
                self.opened, self.opened_us = event.position, event.at
                self.repo, self.branch, self.base = body.repo, body.branch, body.base
                self.head, self.pr = body.head, body.pr
                self._entered(event)
            case HeadChanged(head=head) | Reopened(head=head):
                self.head = head or self.head
                self.look_us = 0
                self._entered(event)
            case Paused(reason=reason) | Canceled(reason=reason):
                self.reason = reason
            case Settled() | Resumed():
                self.look_us, self.reason = 0, ""  # a person asked: look at once
            case _:
                pass

    def _entered(self, event: Past) -> None:
        self.stage_position, self.stage_since_us, self.reason = event.position, event.at, ""


def store(row: TaskRow) -> tuple[Any, ...]:
    """A row as `journal_view_tasks` stores it."""
    state, owner, plan = row.state, row.owner, _running(row.state)
    step, attempts, begun = _cursor(state, plan)
    return (
        row.opened, row.task, row.repo, row.branch, row.base, row.head, row.pr, state.stage, row.status,
        str(state.hold), int(row.open), state.generation, state.epoch, row.version, row.position, state.owner,
        row.actor, owner.instance, owner.host, owner.pid, plan.source if plan else "", plan.target if plan else "",
        step, attempts, int(state.open), begun, state.lane, row.acquired_us,
        row.stage_position, row.stage_since_us, row.look_us, row.reason, row.parked_us, row.alert, int(state.cancel),
        row.opened_us, row.changed_us, _memory_text(state),
    )  # fmt: skip


QUIET = (
    "status", "version", "position", "step", "attempts", "in_doubt", "begun", "lane", "changed_us", "memory",
)  # fmt: skip
"""Columns that an attempt or its outcome can change: in no index, and few."""


def store_quiet(row: TaskRow) -> tuple[Any, ...]:
    """What `QUIET` names of a row, and the row's key."""
    state = row.state
    step, attempts, begun = _cursor(state, _running(state))
    return (
        row.status, row.version, row.position, step, attempts, int(state.open), begun, state.lane, row.changed_us,
        _memory_text(state), row.opened,
    )  # fmt: skip


def _cursor(state: TaskState, plan: EdgePlan | None) -> tuple[str, int, int]:
    """The step that is next in a running plan, its attempts, and whether the edge was begun."""
    if plan is None:
        return "", 0, 0
    current, begun = state.current, bool(state.intents or state.closed) and state.begun
    if current is None:
        return "", 0, int(begun)
    return current.name, dict(state.intents).get(current.name, 0), int(begun)


def _memory_text(state: TaskState) -> str:
    return orjson.dumps(_memory_of(state)).decode()


def row_data(row: TaskRow) -> dict[str, Any]:
    """A row in the words of `queue.TASK_JSON`, for points in time that no table holds."""
    state, owner, plan = row.state, row.owner, _running(row.state)
    current = state.current if plan else None
    return {
        "task": row.task, "repo": row.repo, "branch": row.branch, "base": row.base, "head": row.head, "pr": row.pr,
        "stage": state.stage, "status": row.status, "generation": state.generation, "epoch": state.epoch,
        "version": row.version, "position": row.position,
        "owner": {
            "run": owner.run, "actor": row.actor, "instance": owner.instance, "host": owner.host, "pid": owner.pid
        } if state.owner else None,
        "from_stage": plan.source if plan else "", "to_stage": plan.target if plan else "",
        "step": current.name if current else "", "attempts": state.attempts if current else 0,
        "in_doubt": state.open, "cancel_requested": state.cancel, "lane": state.lane, "acquired_us": row.acquired_us,
        "stage_position": row.stage_position, "stage_since_us": row.stage_since_us, "look_us": row.look_us,
        "waiting_for": row.reason if state.hold is Hold.NONE else "",
        "parked": {
            "reason": row.reason, "since_us": row.parked_us, "alert": row.alert
        } if state.hold is Hold.PARKED else None,
        "opened_us": row.opened_us, "changed_us": row.changed_us,
    }  # fmt: skip


def load(stored: tuple[Any, ...], plan: EdgePlan | None) -> TaskRow:
    """The row that `store` made this of, and its plan."""
    v = dict(zip(COLUMNS, stored, strict=True))
    known = dict(zip(MEMORY, orjson.loads(v["memory"]), strict=True))
    state = TaskState(
        v["stage"], v["generation"], v["epoch"], v["run"], plan, hold=Hold(v["hold"]), cancel=bool(v["cancel"]),
        open=bool(v["in_doubt"]), lane=v["lane"], **{name: _hashable(value) for name, value in known.items()},
    )  # fmt: skip
    owner = Owner(v["run"], v["instance"], v["host"], v["pid"]) if v["run"] else NOBODY
    same = ("version", "position", "opened", "opened_us", "changed_us", "repo", "branch", "base", "head", "pr", "actor",
            "acquired_us", "stage_position", "stage_since_us", "look_us", "reason", "parked_us", "alert")  # fmt: skip
    return TaskRow(v["task"], state, owner=owner, **{name: v[name] for name in same})


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _at_its_end(state: TaskState) -> TaskState:
    """Nothing but `reopened` follows, which begins anew: what only a running edge needs is not kept for ever."""
    return TaskState(
        state.stage, state.generation, state.epoch, state.owner, hold=state.hold, cancel=state.cancel, floor=state.floor
    )


def _running(state: TaskState) -> EdgePlan | None:
    """The plan, while it is about the stage the task is in and somebody owns or has begun it."""
    plan = state.plan
    return plan if plan is not None and plan.source == state.stage else None


@lru_cache(maxsize=4096)
def _enders(plan: EdgePlan) -> tuple[str, ...]:
    """Steps that end their own process; asked after every event, and most plans have none."""
    return tuple(step.name for step in plan.steps if step.ends_owner)
