"""Placeholders in argument lists: data may fill an argument, never add one and never become an option (R100)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from journal.errors import InvalidInputError
from journal.names import shown
from journal.ports import Call

_PLACEHOLDER = re.compile(r"\{([a-z_]+|[A-Za-z0-9_][A-Za-z0-9_-]*\.[a-z_]+)\}")
_FROM_OUTCOMES = ("landed", "digest")
_FROM_CALL = ("task", "repo", "branch", "head", "base", "pr", "key", "generation", "epoch", "attempt", "step")


class MissingValueError(InvalidInputError):
    """A placeholder has no value yet, or one that must not be used: the command cannot be built, nothing is run."""


def unknown_names(argv: Sequence[str]) -> list[str]:
    """Name the placeholders that no call can ever fill."""
    known = {*_FROM_CALL, *_FROM_OUTCOMES}
    return [name for part in argv for name in _PLACEHOLDER.findall(part) if "." not in name and name not in known]


def fill(argv: Sequence[str], call: Call) -> tuple[str, ...]:
    """
    Replace each placeholder inside each argument.

    Raises:
        MissingValueError: A value is missing, ambiguous, or would turn its argument into an option.
    """
    values = _values(call)
    return tuple(_filled(part, values) for part in argv)


def environment(call: Call) -> dict[str, str]:
    """Tell the command what it acts for; the same facts travel in every effect (F3)."""
    named = {
        "TRANSITION_KEY": call.key,
        "TRANSITION_FENCE": f"{call.epoch}.{call.attempt}",
        "TRANSITION_JOURNAL": call.journal_id,
        "TRANSITION_TASK": call.subject.task,
        "TRANSITION_GENERATION": str(call.generation),
        "TRANSITION_STEP": call.step,
        "TRANSITION_REPO": call.subject.repo,
        "TRANSITION_BRANCH": call.subject.branch,
        "TRANSITION_HEAD": call.subject.head,
        "TRANSITION_BASE": call.subject.base,
    }
    if call.anchor:
        named["TRANSITION_CITES"] = f"{call.anchor.position}:{call.anchor.hash}"
    return named


def _filled(part: str, values: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        if not (found := values.get(match[1], "")):
            raise MissingValueError(what=match[0], why="has no value, or more than one")
        return found

    text = _PLACEHOLDER.sub(value, part)
    if text.startswith("-") and not part.startswith("-"):
        raise MissingValueError(what=f"'{shown(text)}'", why="begins with '-' and would be read as an option")
    return text


def _values(call: Call) -> dict[str, str]:
    subject = call.subject
    values = {
        "task": subject.task,
        "repo": subject.repo,
        "branch": subject.branch,
        "head": subject.head,
        "base": subject.base,
        "pr": str(subject.pr or ""),
        "key": call.key,
        "generation": str(call.generation),
        "epoch": str(call.epoch),
        "attempt": str(call.attempt),
        "step": call.step,
    }
    seen = {(step, name): str(value) for step, pairs in call.outcomes.items() for name, value in pairs if value}
    values |= {f"{step}.{name}": value for (step, name), value in seen.items()}
    for bare in _FROM_OUTCOMES:
        found = {value for (_, name), value in seen.items() if name == bare}
        if len(found) == 1:
            values[bare] = found.pop()
    return values
