"""
The operator's verbs: each is an event with actor and reason, written by the same compare-and-swap as everything else.

An operator's event moves the stream's version, so a run that owns the task loses its next append, writes no outcome,
and leaves; an attempt that is open is settled from facts by the next run (PROTOCOL 4.5). No verb performs an effect.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from journal import names
from journal.actions import (
    Appended,
    Locked,
)
from journal.errors import InadmissibleError
from journal.events import (
    Acquired,
    Body,
    Canceled,
    CancelRequested,
    Draft,
    HeadChanged,
    Owner,
    Paused,
    Released,
    Reopened,
    Resumed,
    Settled,
)
from journal.log.unit import Astray, Unit, Written
from journal.pipeline import Pipeline
from journal.plan import EdgePlan
from journal.results import Deferred, Done, LostRace, Refused
from journal.run import plan_of
from journal.shell import TaskPorts
from journal.state import TaskState
from journal.stream import Stream
from journal.tools import Tools
from journal.words import Cause, Ending, Hold, Standing

TRIES = 20
"""How often a verb is decided anew because the task moved meanwhile."""

Decide = Callable[[Stream], tuple[Draft, ...] | Refused]


async def pause(tools: Tools, task: str, actor: str, reason: str) -> Done | Refused:
    """Stop the task from being driven until `resume`; what is in doubt stays in doubt."""
    body = Paused(names.prose(reason, "reason"))
    return await _write(tools, task, "paused", lambda s: _unless_ended(s, actor, body))


async def resume(tools: Tools, task: str, actor: str, reason: str) -> Done | Refused:
    """Let a paused or parked task be driven again, with its attempts forgiven (`retry` is the same verb)."""
    body = Resumed(names.prose(reason, "reason"))

    def decide(s: Stream) -> tuple[Draft, ...] | Refused:
        if s.state.hold not in (Hold.PARKED, Hold.PAUSED):
            return Refused(s.task, "the task is neither parked nor paused; nothing to resume", s.state.stage)
        return (_draft(s, actor, body),)

    return await _write(tools, task, "resumed", decide)


async def cancel(tools: Tools, task: str, actor: str, reason: str) -> Done | Refused:
    """
    End the task before its next irreversible call (R104).

    With no attempt open the task is canceled at once. With one open it is too late for that effect: the outcome is
    settled first, then the task ends.
    """
    why = names.prose(reason, "reason")

    def decide(s: Stream) -> tuple[Draft, ...] | Refused:
        if s.state.ended:
            return Refused(s.task, f"the task is {s.state.hold} already", s.state.stage)
        asked = _draft(s, actor, CancelRequested(why))
        in_doubt = s.state.open or s.state.loose  # an attempt that was superseded may still land
        return (asked,) if in_doubt else (asked, _draft(s, actor, Canceled(why)))

    done = await _write(tools, task, "canceled", decide)
    if isinstance(done, Refused):
        return done
    after = await tools.log.read(task)
    if not after.state.ended:
        step = after.state.current
        name = step.name if step else "the attempt"
        return replace(done, what=f"cancel requested; too late for {name}, settling")
    if run := tools.running.get(task):
        run.end("canceled")  # it waits for something: it may leave at once, its next append would lose anyway
    return done


async def settle(tools: Tools, task: str, actor: str, reason: str, *, applied: bool, evidence: str) -> Done | Refused:
    """Say how an attempt that nobody can probe ended (V6); the next run rests on it."""
    body = Settled(applied, names.prose(evidence, "evidence"), names.prose(reason, "reason"))

    def decide(s: Stream) -> tuple[Draft, ...] | Refused:
        step = s.state.current
        if s.state.hold is not Hold.PARKED or step is None:
            return Refused(s.task, "only a parked task with a step in doubt can be settled", s.state.stage)
        return (_draft(s, actor, body, step.name, s.state.attempts),)

    return await _write(tools, task, "settled", decide)


async def reopen(
    tools: Tools, pipeline: Pipeline, task: str, actor: str, reason: str, *, stage: str, head: str = "", expect: str
) -> Done | Refused:
    """
    Begin a new generation at a stage: every step may run again, under new keys.

    Args:
        tools: What runs share.
        pipeline: Knows the stages.
        task: Its id.
        actor: Who asks.
        reason: For people.
        stage: Where the task goes.
        head: Its new head; "" = the old one.
        expect: "" = a person asks. A program names the stage that it believes in, and is refused once something
            irreversible was applied: only a person may decide that it happens again.
    """
    if stage not in pipeline.stages:
        return Refused(task, f"unknown stage '{names.shown(stage)}'; known: {', '.join(pipeline.stages)}")
    body = Reopened(stage, names.commit_id(head) if head else "", names.prose(reason, "reason"))

    def decide(s: Stream) -> tuple[Draft, ...] | Refused:
        if s.state.owner or s.state.open or s.state.loose:
            return Refused(s.task, "the task is owned or in doubt; release or settle it first", s.state.stage)
        if expect and s.state.stage != expect:
            return Refused(s.task, f"the task is in stage {s.state.stage}, not in {expect}", s.state.stage)
        if expect and s.state.landed:
            return Refused(s.task, "something irreversible was applied; only `journal reopen` goes back", s.state.stage)
        return (replace(_draft(s, actor, body), generation=s.state.generation + 1),)

    return await _write(tools, task, "reopened", decide)


async def change_head(
    tools: Tools, pipeline: Pipeline, me: Owner, task: str, actor: str, head: str
) -> Done | Deferred | LostRace | Refused:
    """
    The change got a new head: a new generation, back to `on_new_head` (R08, R25); only the owner may say so.

    Refused once something irreversible was applied: then a new head enters only through `reopen`.
    """
    head = names.commit_id(head)
    ports = TaskPorts(tools, task, actor, f"{me.instance[:12]}.head")
    try:
        if not isinstance(await ports.take_lock(), Locked):
            tools.log.count("deferred", actor, task)
            return Deferred(task, str(tools.locks.holder_of(task)), 0)
        seen = await ports.read()
        if seen.state.owner and seen.owner is Standing.ALIVE:
            tools.log.count("deferred", actor, task)
            return Deferred(task, str(ports.stream.owner and ports.stream.owner.host), seen.state.epoch)
        state = seen.state
        if refused := _no_new_head(ports.stream, head):
            return refused
        stage = pipeline.on_new_head or state.stage
        plan = plan_of(pipeline.route(ports.stream.subject).edge, state)
        if plan is None:
            return Refused(task, f"the pipeline has no edge from stage {state.stage}", state.stage)
        answer = await ports.append(
            _head_unit(replace(me, run=f"{me.instance[:12]}.head"), state, actor, plan, head, stage)
        )
        if not isinstance(answer, Appended):
            return LostRace(task, ports.stream.state.stage, ports.stream.state.epoch, "the task moved on meanwhile")
        return _done(ports.stream, f"head changed to {head[:12]}, back to {stage}")
    finally:
        ports.drop_lock()


def _no_new_head(s: Stream, head: str) -> Refused | None:
    state = s.state
    if not s.version:
        return Refused(s.task, "no such task")
    if s.subject.head == head:
        return Refused(s.task, "that is the head already", state.stage)
    if state.hold is not Hold.NONE:
        return Refused(s.task, f"the task is {state.hold}", state.stage)
    if state.open or state.loose:
        return Refused(s.task, "an attempt for the old head is in doubt; it is settled first", state.stage)
    if state.landed:
        return Refused(s.task, "something irreversible was applied; a new head enters through `reopen`", state.stage)
    return None


def _head_unit(owner: Owner, state: TaskState, actor: str, plan: EdgePlan, head: str, stage: str) -> tuple[Draft, ...]:
    epoch, generation = state.next_epoch, state.generation
    cause = Cause.GONE if state.owner else Cause.NONE
    return (
        Draft(Acquired(owner, plan, state.owner, cause), epoch, generation, actor),
        Draft(HeadChanged(head, stage), epoch, generation + 1, actor),
        Draft(Released(Ending.LOST, "new head"), epoch, generation + 1, actor),
    )


def _done(s: Stream, what: str) -> Done:
    return Done(s.task, what, s.state.stage, s.version)


def _unless_ended(s: Stream, actor: str, body: Body) -> tuple[Draft, ...] | Refused:
    if s.state.ended:
        return Refused(s.task, f"the task is {s.state.hold} already", s.state.stage)
    return (_draft(s, actor, body),)


def _draft(s: Stream, actor: str, body: Body, step: str = "", attempt: int = 0) -> Draft:
    return Draft(body, s.state.epoch, s.state.generation, names.word(actor, "actor"), step, attempt)


async def _write(tools: Tools, task: str, what: str, decide: Decide) -> Done | Refused:
    """Decide on the stream as it is, write, and decide anew if it moved meanwhile: an operator is not to lose races."""
    for _ in range(TRIES):
        stream = await tools.log.read(task)
        if not stream.version:
            return Refused(task, "no such task")
        drafts = decide(stream)
        if isinstance(drafts, Refused):
            return drafts
        try:
            answer = await tools.log.append(Unit(stream, drafts))
        except InadmissibleError as error:
            return Refused(task, str(error), stream.state.stage)
        if isinstance(answer, Written):
            return _done(answer.stream, what)
        if isinstance(answer, Astray):
            return Refused(task, answer.why, stream.state.stage)
    return Refused(task, f"the task kept moving through {TRIES} tries; try again", "")
