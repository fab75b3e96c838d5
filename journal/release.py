"""
The operator's release of a stuck ownership: a reclaim with cause `operator` (FR-6, R103).

The holder is ended, the epoch is taken, and the term ends at once: nothing is driven here. The old owner is fenced from
then on, and an attempt it had begun is in doubt for the next run, which asks the world.
"""

from __future__ import annotations

from dataclasses import replace

from journal.actions import (
    Appended,
    Locked,
)
from journal.events import Acquired, Body, Draft, Owner, Parked, Released
from journal.pipeline import Pipeline
from journal.plan import EdgePlan
from journal.results import Freed, LostRace, Refused
from journal.results import Parked as ParkedResult
from journal.run import plan_of
from journal.shell import TaskPorts
from journal.state import TaskState
from journal.tools import Tools
from journal.words import Cause, Ending


async def take_away(
    tools: Tools, pipeline: Pipeline, me: Owner, task: str, *, actor: str, reason: str
) -> Freed | ParkedResult | LostRace | Refused:
    """End whoever holds the task and leave it free; if its lock does not come free, park it."""
    number = f"{me.instance[:12]}.release"
    ports = TaskPorts(tools, task, actor, number)
    try:
        locked = isinstance(await ports.take_lock(), Locked)
        if not locked:
            await ports.end_holder()
            locked = isinstance(await ports.take_lock(), Locked)
        state = (await ports.read()).state
        if not state.owner:
            return Refused(task, "nobody owns the task; there is nothing to release", state.stage)
        plan = plan_of(pipeline.route(ports.stream.subject).edge, state)
        if plan is None:
            return Refused(task, f"the pipeline has no edge from stage {state.stage}", state.stage)
        unit = _unit(replace(me, run=number), state, plan, actor, reason, parks=not locked)
        answer = await ports.append(unit)
        stream = ports.stream
        if not isinstance(answer, Appended):
            return LostRace(task, stream.state.stage, stream.state.epoch, "the task moved on meanwhile")
        return Freed(task, stream.state.epoch) if locked else ParkedResult(task, stream.state.stage, reason)
    finally:
        ports.drop_lock()


def _unit(owner: Owner, state: TaskState, plan: EdgePlan, actor: str, reason: str, *, parks: bool) -> tuple[Draft, ...]:
    epoch = state.next_epoch

    def draft(body: Body) -> Draft:
        return Draft(body, epoch, state.generation, actor)

    acquired = draft(Acquired(owner, plan, state.owner, Cause.OPERATOR))
    if not parks:
        return (acquired, draft(Released(Ending.LOST, reason)))
    why = f"released by hand ({reason}), but the task's lock did not come free"
    return (
        acquired,
        draft(Parked(why, f"{owner.run}/{state.generation}/{epoch}")),
        draft(Released(Ending.PARKED, why)),
    )
