"""
The shapes of answers, for `/openapi.json` only: answers are made by SQLite and orjson, several times faster (P9).

A test holds real answers against these models. Readers must tolerate names that are not here.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Documented = dict[int | str, dict[str, Any]]
"""What a route says about its answers."""


class Shape(BaseModel):
    """Grows additively."""

    model_config = ConfigDict(extra="allow", strict=True)


class OwnerShape(Shape):
    """Who drives; recorded for people, decides nothing."""

    run: str
    actor: str
    instance: str
    host: str
    pid: int


class ParkedShape(Shape):
    """Why a task is left to a person."""

    reason: str
    since_us: int
    alert: str


class TaskShape(Shape):
    """A task. `*_us` are microseconds since 1970, UTC; 0 = never, for `look_us`: at once."""

    task: str
    repo: str
    branch: str
    base: str
    head: str
    pr: int
    stage: str
    status: Literal["free", "owned", "waiting", "parked", "paused", "canceled", "done", "handed_over"]
    generation: int
    epoch: int
    version: int
    position: int
    owner: OwnerShape | None
    from_stage: str
    to_stage: str
    step: str
    attempts: int
    in_doubt: bool
    cancel_requested: bool
    lane: str
    acquired_us: int
    stage_position: int
    stage_since_us: int
    look_us: int
    waiting_for: str
    parked: ParkedShape | None
    opened_us: int
    changed_us: int


class TaskDocument(TaskShape):
    """One task; `alive`: its lock is held at this moment."""

    alive: bool


class TasksDocument(Shape):
    """A page of tasks."""

    tasks: list[TaskShape]
    next_cursor: int | None


class HeldShape(Shape):
    """An ownership. `alive`: its lock is held at this moment."""

    task: str
    epoch: int
    from_stage: str
    to_stage: str
    step: str
    owner: OwnerShape
    alive: bool
    acquired_at: str
    age_s: int
    in_doubt: bool
    waiting_for: str


class ParkedTaskShape(Shape):
    """A parked task."""

    task: str
    reason: str
    since: str


class ReclaimsShape(Shape):
    """Terms taken over, by why the one before was over."""

    gone: int
    budget: int
    operator: int


class OwnershipShape(Shape):
    """Who owns what (FR-6)."""

    enabled: bool
    held: list[HeldShape]
    deferred: dict[str, int]
    reclaims: ReclaimsShape
    parked: list[ParkedTaskShape]


class QueueDocument(Shape):
    """The queue of one moment; as of an earlier one, `jobs` and `transition_ownership` are left out."""

    position: int
    counts: dict[str, int]
    tasks: list[TaskShape]
    next_cursor: int | None
    jobs: dict[str, int] = Field(default_factory=dict)
    transition_ownership: OwnershipShape | None = None


class ChangeShape(Shape):
    """A task that was not the same at both points; `before` and `after`: stage and status, empty = not open."""

    task: str
    change: Literal["opened", "ended", "moved", "changed"]
    before: str
    after: str


class DifferenceDocument(Shape):
    """What differs between two positions; `left_out`: tasks not looked at, since there were more than `limit`."""

    model_config = ConfigDict(extra="allow", strict=True, populate_by_name=True)

    since: int = Field(alias="from")
    to: int
    changes: list[ChangeShape]
    left_out: int


class EventShape(Shape):
    """An event as the log holds it; `at` in microseconds since 1970, UTC."""

    position: int
    version: int
    generation: int
    epoch: int
    kind: str
    step: str
    attempt: int
    key: str
    actor: str
    at: int
    body: dict[str, Any]
    hash: str
    prev_hash: str


class EventsDocument(Shape):
    """A task's events; ask on with `after=last_version`."""

    task: str
    events: list[EventShape]
    last_version: int


class ExplainDocument(Shape):
    """Why a task is where it is; `others` are the cells of the decision table that did not fire."""

    task: str
    stage: str
    status: str
    paragraph: str
    stands: str
    waits_for: str
    by_itself: str
    verbs: list[str]
    decision: dict[str, Any] | None
    facts: dict[str, Any]
    others: list[dict[str, Any]]


class AdvanceDocument(Shape):
    """Where a run stands. `result` once it has ended: advanced, rolled_back, parked, waiting."""

    task: str
    state: Literal["running", "ended"]
    result: str = ""


class VerbDocument(Shape):
    """An operator's verb was recorded. `what`: in a person's words; `version`: of the task's stream after it."""

    task: str
    state: Literal["ended"]
    result: Literal["done"]
    what: str
    stage: str
    version: int


class ProblemDocument(Shape):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str


class HealthDocument(Shape):
    """The process answers."""

    status: str


class ReadyDocument(Shape):
    """Whether every open task is decided and the log can be written."""

    ready: bool
    reason: str
    standby: bool


class VersionDocument(Shape):
    """What runs."""

    version: str
    instance: str
    started_at: int


WRITING = (401, 404, 409, 413, 422, 503)
"""Status codes of the problems that a request to write may meet."""


def answers(model: type[Shape], status: int = 200, **more: Any) -> Documented:
    """An answer in the shape of a model."""
    return {status: {"model": model, **more}}


def refusals(*codes: int) -> Documented:
    """Problem documents."""
    return {code: {"model": ProblemDocument} for code in codes}
