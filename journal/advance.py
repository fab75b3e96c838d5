"""`advance_stage`: the small loop between the engine and the ports, and what its endings mean to the caller."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

import structlog
from structlog.contextvars import bind_contextvars, bound_contextvars, unbind_contextvars

from journal.actions import (
    Action,
    Append,
    Apply,
    Ask,
    EndHolder,
    Finished,
    Probe,
    Quiesce,
    Read,
    Result,
    TakeLock,
    Unlock,
    Wait,
)
from journal.engine import next_action
from journal.events import Owner
from journal.learn import learn
from journal.pipeline import Pipeline
from journal.plan import StepPlan
from journal.results import Advanced, Deferred, LostRace, Parked, Refused, RolledBack, Unavailable, Waiting
from journal.results import Result as Answer
from journal.run import Run
from journal.shell import Ports, TaskPorts
from journal.stream import Stream
from journal.tools import Tools
from journal.words import Cause, Ending

logger = structlog.get_logger(__name__)

Wrap = Callable[[Ports, str], Ports]
"""Stands something before the ports of a run (crash points); gets the task's id too."""

_numbers = itertools.count(1)


async def drive(
    tools: Tools,
    pipeline: Pipeline,
    me: Owner,
    task: str,
    *,
    expect: str = "",
    actor: str,
    cause: Cause = Cause.GONE,
    wrap: Wrap | None = None,
) -> Answer:
    """
    Run one actor's try at one task to its end.

    Raises:
        StoreError: The log failed; the run is dropped as a crash would drop it, the lock is given back.
    """
    stream = await tools.log.read(task)
    if not stream.version:
        return Refused(task, "no such task; `journal open` opens one")
    number = f"{me.instance[:12]}.{next(_numbers)}"
    own = replace(me, run=number)
    run = Run(actor, own, pipeline.route(stream.subject), task, expect, cause)
    ports = TaskPorts(tools, task, actor, number)
    before = stream
    try:
        with bound_contextvars(task=task, actor=actor, run=number, step=..., epoch=...):  # ... = not said yet
            run = await _loop(wrap(ports, task) if wrap else ports, run)
    except asyncio.CancelledError:
        # Told to go by a reaper, an operator or the closing journal: that ends the run, not whoever called for it.
        if (why := _ended(ports)) is None:
            raise
        return Unavailable(task, why)
    else:
        _ended(ports)  # an adapter swallowed the cancellation: the caller must not be left with its mark
    finally:
        # A bug or a cancellation: the intent stays open for whoever comes next, the lock must not stay taken.
        ports.drop_lock()
    assert run.ending is not None or run.busy is not None
    return _answer(tools, run, before, ports)


def _ended(ports: TaskPorts) -> str | None:
    """Why the run was told to go; None if it was not, or if its caller was cancelled as well."""
    work, running = asyncio.current_task(), ports.running
    if running is None or not running.ended or work is None or work.uncancel():
        return None
    return running.ended


async def _loop(ports: Ports, run: Run) -> Run:
    log = logger.bind(task=run.task, actor=run.actor, run=run.me.run)
    tells = log.is_enabled_for(logging.DEBUG)  # asked once: there are two dozen actions in a run
    told: StepPlan | None = None  # the step that lines of the log name
    while not isinstance(action := next_action(run), Finished):
        if isinstance(action, (Probe, Apply, Quiesce)) and action.step is not told:
            if told is None:
                bind_contextvars(epoch=run.epoch)
            told = action.step
            bind_contextvars(step=told.name)
        result = await perform(ports, action, run)
        if tells:
            log.debug("engine_step", action=type(action).__name__, result=type(result).__name__, epoch=run.epoch)
        run = learn(run, action, result)
    unbind_contextvars("step")
    log.info("run_finished", ending=action.ending, reason=action.reason, epoch=run.state.epoch if run.state else 0)
    return run._replace(ending=action.ending, reason=action.reason)


def perform(ports: Ports, action: Action, run: Run) -> Awaitable[Result]:
    """Do the one thing that the engine named; the most frequent first."""
    match action:
        case Probe(step=step):
            return ports.probe(step, run.pending)
        case Append(drafts=drafts):
            return ports.append(drafts)
        case Apply(step=step, fence=fence):
            return ports.apply(step, fence)
        case Quiesce(step=step, fence=fence):
            return ports.quiesce(step, fence, run.pending)
        case TakeLock():
            return ports.take_lock()
        case EndHolder():
            return ports.end_holder()
        case Read():
            return ports.read()
        case Ask(plan=plan):
            return ports.ask(plan, run.pending)
        case Wait(nth=nth, step=step):
            return ports.wait(nth, step)
        case Unlock():
            return ports.unlock()
        case Finished():
            raise AssertionError(action)


def _answer(tools: Tools, run: Run, before: Stream, ports: TaskPorts) -> Answer:
    """The ending in the caller's terms."""
    after = ports.stream
    task, stage, epoch = run.task, after.state.stage or before.state.stage, after.state.epoch
    assert run.ending is not None
    match run.ending:
        case Ending.ADVANCED:
            return Advanced(task, before.state.stage, stage, epoch)
        case Ending.DEFERRED:
            tools.log.count("deferred", run.actor, task)
            owner = after.owner  # read only by who had the lock: then it lives on another host
            holder = f"{owner.run}@{owner.host}:{owner.pid}" if owner else str(tools.locks.holder_of(task))
            return Deferred(task, holder, before.state.epoch)
        case Ending.LOST:
            return LostRace(task, stage, epoch, ports.astray or run.reason)
        case Ending.PARKED:
            return Parked(task, stage, run.reason)
        case Ending.WAITING:
            return Waiting(task, stage, run.reason, max(0, after.look_us - tools.clock.now_us()) // 1000)
        case Ending.ROLLED_BACK:
            return RolledBack(task, stage, run.reason)
        case Ending.REFUSED:
            if after.state.hold == "parked":
                return Parked(task, stage, after.reason or run.reason)
            return Refused(task, run.reason, stage)
