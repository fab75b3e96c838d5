"""
Looking at one task because of the outside: a notice came, or it is time to poll. Both end here, so both end alike.

Nothing is taken from a notice: forge and tracker are asked anew, and what follows is decided from their answers and the
journal (R70). So the order in which notices come does not matter, a repeat changes nothing (R74), our own writes coming
back change nothing (R75), and neither do notices that never come (R73, R76).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import structlog

from journal.journal import Journal
from journal.results import Deferred, Done, Refused, Unavailable
from journal.stream import Stream
from journal.words import Hold
from recovery.outside import ForgeFacts, Tracker
from recovery.runs import Submit

logger = structlog.get_logger(__name__)


POLLING = "reconciler"
"""The actor that looks without having been told anything: it wakes nobody."""


class Looked(StrEnum):
    """What came of a look."""

    NOTHING = "nothing to do"
    NEW_HEAD = "a new head"
    ADVANCED = "asked to advance"
    DEFERRED = "deferred: another run holds the task"
    UNKNOWN = "the outside could not be asked"


class Attention:
    """Asks forge and tracker about a task, and acts on it through the journal's own doors."""

    def __init__(
        self,
        journal: Journal,
        *,
        submit: Submit,
        hint: Callable[[str], None],
        forge: ForgeFacts | None = None,
        tracker: Tracker | None = None,
    ) -> None:
        """
        Prepare to look.

        Args:
            journal: An open journal that drives.
            submit: Asks for a run.
            hint: Tells the dispatcher to look at a task soon.
            forge: Reads changes; None = there is no forge.
            tracker: Reads what people ask for; None = there is no tracker.
        """
        self._journal, self._submit, self._hint = journal, submit, hint
        self._forge, self._tracker = forge, tracker

    async def look(self, task: str, actor: str, *, counted: bool = False) -> Looked:
        """
        Look at one task.

        Defers to an owner, silently and counted (FR-5), and to a person: what is paused, parked or ended stays so.

        Args:
            task: Its id.
            actor: On whose behalf.
            counted: That somebody drives it is known and counted already.
        """
        stream = await self._journal.log.read(task)
        if not stream.version or stream.state.hold is not Hold.NONE or stream.state.cancel:
            return Looked.NOTHING
        if await self._journal.driven(stream):
            if not counted:
                self._journal.log.count("deferred", actor, task)
            return Looked.DEFERRED
        looked = await self._forge_says(stream, actor)
        if looked is Looked.NOTHING:
            looked = await self._tracker_says(stream, actor)
        if looked is Looked.NOTHING and actor != POLLING:
            self._hint(task)  # it may wait for just what has changed
        return looked

    async def _forge_says(self, stream: Stream, actor: str) -> Looked:
        if self._forge is None:
            return Looked.NOTHING
        pull = await self._forge.pull(stream.subject)
        if pull is None:
            return Looked.UNKNOWN
        known = stream.subject.head
        if pull.merged or pull.closed or not known or pull.head in ("", known) or not self._takes_heads(stream):
            return Looked.NOTHING
        match await self._journal.change_head(stream.task, head=pull.head, actor=actor):
            case Done():
                logger.info("head_changed", task=stream.task, actor=actor, head=pull.head)
                return Looked.NEW_HEAD
            case Deferred():
                return Looked.DEFERRED
            case Unavailable():
                return Looked.UNKNOWN
            case _:
                return Looked.NOTHING

    def _takes_heads(self, stream: Stream) -> bool:
        """A new head sends a task back: not one that has not come that far, nor one whose change has landed."""
        pipeline, state = self._journal.pipeline, stream.state
        order = pipeline.stages.index
        if state.landed or state.open or state.stage not in pipeline.stages:
            return False
        return not pipeline.on_new_head or order(state.stage) >= order(pipeline.on_new_head)

    async def _tracker_says(self, stream: Stream, actor: str) -> Looked:
        if self._tracker is None:
            return Looked.NOTHING
        asked = await self._tracker.asked(stream.task)
        if asked is None:
            return Looked.UNKNOWN
        if not asked or asked != stream.state.stage:
            return Looked.NOTHING  # an echo of ours, or a wish that came true: another stage holds by now
        # The stage is compared again by whoever takes the lock: of several notices one advances (FR-2).
        match result := await self._submit(stream.task, actor, asked):
            case Deferred():
                return Looked.DEFERRED
            case Unavailable():
                return Looked.UNKNOWN
            case Refused():
                logger.info("wish_refused", task=stream.task, actor=actor, reason=result.reason)
                return Looked.NOTHING
            case _:
                return Looked.ADVANCED
