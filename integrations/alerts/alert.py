"""Which events are alerts, and in what words. Pure: an alert's id follows from the event, so a repeat is recognised."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from journal.errors import JournalError
from journal.events import Acquired, Applied, Event, HazardFound, Parked
from journal.words import Cause, Scalar


class What(StrEnum):
    """What a person is told."""

    PARKED = "parked"
    HAZARD = "hazard"
    STALE = "stale reclaim"  # a run outlived its budget and was ended
    FORCED = "forced reclaim"  # an operator took a task away
    RECORD = "forge record stale"  # the change is in its base, and its pull request was still open
    STOPPED = "journal stopped"


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that a person must learn of."""

    id: str  # one per task, epoch, kind and reason
    what: What
    task: str  # "" = the journal itself
    reason: str
    step: str = ""
    position: int = 0  # of the event
    at_us: int = 0

    @property
    def is_reclaim(self) -> bool:
        """A task was taken from whoever drove it."""
        return self.what in (What.STALE, What.FORCED)


def alert_of(event: Event) -> Alert | None:
    """
    Name the alert that an event is; None for most.

    A term whose process died (`gone`) is none: that is what a restart looks like, and a self-deploy is one. A merge
    that the forge confirmed is none either: its record may lag a moment (R05). One that was found unconfirmed may have
    lost the forge's own bookkeeping for good, which only a person can mend (R04).
    """
    match event.draft.body:
        case Parked(reason=reason):
            return _alert(event, What.PARKED, reason)
        case HazardFound(reason=reason):
            return _alert(event, What.HAZARD, reason)
        case Acquired(cause=Cause.BUDGET, before=before):
            return _alert(event, What.STALE, f"the run {before or 'before'} outlived its budget and was ended")
        case Acquired(cause=Cause.OPERATOR, before=before):
            return _alert(event, What.FORCED, f"taken from the run {before or 'before'} by {event.draft.actor}")
        case Applied(via="probe" | "other", seen=seen) if (seen_of := dict(seen)).get("pr_state") == "open":
            return _alert(event, What.RECORD, _stale_record(seen_of))
        case _:
            return None


def stopped(error: JournalError) -> Alert:
    """The journal can no longer be written: nothing is driven until a person has looked (S6)."""
    return Alert(f"journal/{_digest(str(error))}", What.STOPPED, "", str(error))


def _alert(event: Event, what: What, reason: str) -> Alert:
    draft = event.draft
    identity = f"{event.task}/{draft.generation}/{draft.epoch}/{_digest(f'{what} {reason}')}"
    return Alert(identity, what, event.task, reason, draft.step, event.position, event.at)


def _stale_record(seen: Mapping[str, Scalar]) -> str:
    pull, landed, base = seen.get("pr", ""), seen.get("landed", ""), seen.get("base_sha", "")
    where = f"as {landed}" if landed else f"below {base}"
    return (
        f"the change is in its base branch {where}, and the forge showed #{pull} open: close it there if it stays open"
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:8]
