"""What actions and units are called in traces, matrices and stories."""

from __future__ import annotations

import re

from journal.actions import (
    Action,
    Append,
    Apply,
    Probe,
    Quiesce,
)
from journal.events import Draft
from journal.words import Kind

ROLES = {"A": "worker", "B": "reaper", "C": "second reaper"}
"""Who acts, by the letter that schedules call them by."""

_ACTOR = re.compile(r"(^|; )([ABC]) ")


def in_words(label: str) -> str:
    """The label of a move as a line of a story."""
    return _ACTOR.sub(lambda m: f"{m[1]}{ROLES[m[2]]} ", label)


def tell(drafts: tuple[Draft, ...]) -> str:
    """A unit of events in a few words."""
    words = []
    for d in drafts:
        tag = f"{d.step}#{d.attempt}" if d.step else str(d.epoch) if d.kind is Kind.ACQUIRED else ""
        words.append(f"{d.kind}({tag})" if tag and d.kind is not Kind.OBSERVED else str(d.kind))
    return "+".join(words)


def describe(action: Action) -> str:
    """An action in a few words, without epochs: the name of a crash point."""
    match action:
        case Append(drafts=drafts):
            last = next((d for d in reversed(drafts) if d.kind is not Kind.RELEASED), drafts[-1])
            return f"append {last.kind}{f' {last.step}' if last.step else ''}"
        case Probe(step=step) | Quiesce(step=step) | Apply(step=step):
            return f"{type(action).__name__.lower()} {step.name}"
        case _:
            return type(action).__name__.lower()
