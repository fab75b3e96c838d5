"""
The quick way to read a stored body: exact types, no coercion, and no opinion on anything odd (decision 0012).

It reads what this program wrote. Whatever differs in the least - an unknown field, a number with a fraction, a word
that the enumeration lacks - gets no answer here, and pydantic, which knows all the rules and can word what is wrong,
decides. So quick never accepts what strict validation refuses, which a property test holds it to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, fields
from enum import StrEnum
from functools import lru_cache
from typing import Any, Literal, TypeVar, get_args, get_origin

import orjson

from journal.events import Owner
from journal.plan import EdgePlan, StepPlan, plan_from_text
from journal.words import Evidence

T = TypeVar("T")
Read = Callable[[Any], Any]
"""Turns one JSON value into one field's, or raises `_OddError`."""


class _OddError(ValueError):
    """Not the exact shape that this program writes."""


def reader_of(body: type[T], hints: Mapping[str, Any], without: Collection[str] = ()) -> Callable[[str], T | None]:
    """A reader of one kind of body from its fields' types, made once for each kind; `without` some evidence."""
    reads: dict[str, tuple[type | None, Read]] = {
        name: (None, _leave_out) if name in without else (hint if hint in _PLAIN else None, _read(hint))
        for name, hint in ((field.name, hints[field.name]) for field in fields(body))  # type: ignore[arg-type]
    }

    def read(text: str) -> T | None:
        try:
            data = orjson.loads(text)
            if type(data) is not dict:
                return None
            for name, value in data.items():
                exact, convert = reads[name]
                if type(value) is not exact:  # a plain field of its own type is itself; most are
                    data[name] = convert(value)
            return body(**data)
        except (ValueError, KeyError, TypeError):  # odd, an unknown or a missing field, or a plan that is none
            return None

    return read


_PLAIN = frozenset({str, int, bool})


def _read(hint: Any) -> Read:
    if hint == Evidence:
        return _evidence
    if hint is EdgePlan:
        return _plan
    if hint is Owner:
        return _owner
    if get_origin(hint) is Literal:
        return _one_of(frozenset(get_args(hint)))
    if issubclass(hint, StrEnum):
        return _word(hint)
    return _refuse


def _leave_out(value: Any) -> Evidence:
    return ()


def _refuse(value: Any) -> Any:
    """A plain field that is not of its own type."""
    raise _OddError


def _one_of(words: frozenset[str]) -> Read:
    def read(value: Any) -> Any:
        if type(value) is not str or value not in words:
            raise _OddError
        return value

    return read


def _word(enumeration: type[StrEnum]) -> Read:
    words = {member.value: member for member in enumeration}

    def read(value: Any) -> StrEnum:
        return words[value]

    return read


_SCALARS = frozenset({str, bool, int, type(None)})


def _evidence(value: Any) -> Evidence:
    if type(value) is not dict:
        raise _OddError
    if not _SCALARS.issuperset(map(type, value.values())):
        raise _OddError
    return tuple(sorted(value.items()))


def _plan(value: Any) -> EdgePlan:
    if type(value) is not dict:
        raise _OddError
    return _same_plan(orjson.dumps(value, option=orjson.OPT_SORT_KEYS))


@lru_cache(maxsize=4096)
def _same_plan(text: bytes) -> EdgePlan:
    plan = plan_from_text(text.decode())
    # A number with a fraction, or one so large that it was read as one, is nothing that a plan holds.
    parts: tuple[EdgePlan | StepPlan, ...] = (plan, *plan.steps)
    if any(isinstance(getattr(part, field.name), float) for part in parts for field in fields(part)):
        raise _OddError
    return plan


_OWNER = {field.name: type(field.default) if field.default is not MISSING else str for field in fields(Owner)}


def _owner(value: Any) -> Owner:
    if type(value) is not dict or "run" not in value:
        raise _OddError
    for name, given in value.items():
        if type(given) is not _OWNER[name]:
            raise _OddError
    return _same_owner(tuple(value.items()))


@lru_cache(maxsize=1024)
def _same_owner(values: tuple[tuple[str, Any], ...]) -> Owner:
    return Owner(**dict(values))
