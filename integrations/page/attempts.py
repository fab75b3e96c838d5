"""Attempts as bars of the timeline: each intent from its beginning to whatever closed it; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from journal.events import Applied, Event, Intended, Observed, Rejected, Settled


@dataclass(slots=True)
class Attempt:
    """An intent, and what became of it."""

    step: str
    number: int
    epoch: int
    begun: Event
    over: Event | None = None
    decided: list[Event] = field(default_factory=list)

    @property
    def look(self) -> str:
        """How a bar is drawn: a class of the style sheet, or open."""
        body = self.over.draft.body if self.over else None
        if body is None:
            return "open"
        doubtful = bool(self.decided) or isinstance(body, Settled) or (self.over and self.over.draft.epoch > self.epoch)
        match body:
            case Rejected():
                return "rejected"
            case Applied() | Settled(applied=True):
                return "doubt settled" if doubtful else "applied"
            case _:
                return "doubt"

    def outcome(self, *, owned: bool) -> str:
        """How it ended, in words; `owned`: a living run is at it."""
        match self.over.draft.body if self.over else None:
            case None:
                return "running" if owned else "in doubt"
            case Applied(via="apply"):
                return "applied"
            case Applied(via=via):
                return f"applied (found by {via})"
            case Rejected():
                return "rejected"
            case Settled(applied=applied):
                return f"settled by a person as {'applied' if applied else 'not applied'}"
            case _:
                return "in doubt, then run again"


def attempts_of(events: Sequence[Event]) -> list[Attempt]:
    """Every intent, and what became of it."""
    attempts: list[Attempt] = []
    open_by_key: dict[str, Attempt] = {}
    for event in events:
        match event.draft.body:
            case Intended():
                if before := open_by_key.get(event.key):
                    before.over = event
                attempt = Attempt(event.draft.step, event.draft.attempt, event.draft.epoch, event)
                attempts.append(attempt)
                open_by_key[event.key] = attempt
            case Observed():
                if known := open_by_key.get(event.key):
                    known.decided.append(event)
            case Applied() | Rejected() | Settled():
                if known := open_by_key.pop(event.key, None):
                    known.over = event
            case _:
                pass
    return attempts
