"""
Parking a task from outside its edge: for what no step of it can say, such as a stage's job that failed for good.

The same path as everything else: take the lock, take the epoch, park under it. So the alert, the queue's block and the
operator's `retry` know it as they know any other parking.
"""

from __future__ import annotations

from dataclasses import replace

from journal.actions import (
    Appended,
    Locked,
)
from journal.events import Acquired, Body, Draft, Parked, Released
from journal.journal import Journal
from journal.results import Deferred, LostRace, Refused
from journal.results import Parked as ParkedResult
from journal.run import plan_of
from journal.shell import TaskPorts
from journal.words import Cause, Ending, Hold, Standing


async def park(
    journal: Journal, task: str, *, expect: str, reason: str, actor: str, begun: bool = False
) -> ParkedResult | Deferred | LostRace | Refused:
    """
    Leave a task to a person, if it still stands in the expected stage and nobody drives it.

    Args:
        journal: Open and driving.
        task: Its id.
        expect: The stage it was seen in.
        reason: For the person.
        actor: Who parks it.
        begun: Also in the middle of an edge: what is in doubt stays in doubt for whoever frees it.

    Raises:
        StoreError: Nothing was written, or it is not known.
    """
    number = f"{journal.me.instance[:12]}.park"
    ports = TaskPorts(journal.tools, task, actor, number)
    try:
        if not isinstance(await ports.take_lock(), Locked):
            return Deferred(task, "", 0)
        seen = await ports.read()
        state = seen.state
        if state.owner and seen.owner is Standing.ALIVE:
            return Deferred(task, "", state.epoch)
        plan = plan_of(journal.pipeline.route(ports.stream.subject).edge, state)
        if state.hold is not Hold.NONE or plan is None:
            return Refused(task, f"the task is {state.hold or 'at the end'}", state.stage)
        if state.stage != expect or (state.begun and not begun):
            return LostRace(task, state.stage, state.epoch, "the task moved on meanwhile")
        epoch = state.next_epoch

        def draft(body: Body) -> Draft:
            return Draft(body, epoch, state.generation, actor)

        owner, cause = replace(journal.me, run=number), Cause.GONE if state.owner else Cause.NONE
        unit = (
            draft(Acquired(owner, plan, state.owner, cause)),
            draft(Parked(reason, f"{task}/{state.generation}/{epoch}")),
            draft(Released(Ending.PARKED, reason)),
        )
        if not isinstance(await ports.append(unit), Appended):
            return LostRace(task, ports.stream.state.stage, ports.stream.state.epoch, "the task moved on meanwhile")
        return ParkedResult(task, state.stage, reason)
    finally:
        ports.drop_lock()
