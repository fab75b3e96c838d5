"""
Between bodies and their stored text: canonical JSON, strict validation, schema numbers and upcasters (L4, L6).

Canonical means: sorted keys, no blanks, UTF-8, no floats, fields that equal their default left out. A body that was
stored is decoded and encoded to the same bytes, so `verify` can tell an edited body from a canonical one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import MISSING, fields
from enum import StrEnum
from functools import cache, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import orjson

from journal import events
from journal.errors import DamagedError, InvalidInputError, UnknownEventError
from journal.events import Applied, Body, Owner, Rejected, Unread
from journal.names import MAX_INTEGER, shown
from journal.plan import EdgePlan, plan_data, plan_from_data, plan_text
from journal.quick import reader_of
from journal.words import Evidence, Kind

if TYPE_CHECKING:
    from pydantic import BaseModel

BODY_LIMIT = 64 * 1024
"""Bytes of a canonical body (L6)."""

BODIES: dict[Kind, type[Body]] = {body.kind: body for body in get_args(Body) if body is not Unread}

_KINDS = {kind.value: kind for kind in BODIES}

SCHEMAS: dict[Kind, int] = dict.fromkeys(BODIES, 1) | {Kind.ACQUIRED: 2}
"""The newest shape, per kind."""

ADDED: dict[tuple[Kind, int], str] = {(Kind.ACQUIRED, 2): "trace"}
"""(kind, schema) -> the field that came with it, where that is all that came (decision 0020).

Such a body is stored in the schema before while the field has its default, so that the version before still reads it,
and is read without being lifted: what is left out has its default."""

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]
UPCASTERS: dict[tuple[Kind, int], Upcaster] = {}
"""(kind, old schema) -> what turns its data into the next schema's, where the shape itself changed."""

_EVIDENCE = frozenset({"seen", "reply", "expected"})


def encode(body: Body) -> str:
    """
    The canonical text of a body.

    Raises:
        InvalidInputError: It is too large, or holds what could not be read back: a float, a list, an object of some
            class, a lone surrogate, an integer beyond 64 bits.
    """
    if isinstance(body, Unread):
        raise InvalidInputError(what=f"body of {shown(body.word)}", why="only the version that knows it writes it")
    try:
        # The same bytes as json.dumps with sorted keys and no blanks; a test holds the two against each other.
        text = orjson.dumps(_data(body, _plan_piece), option=orjson.OPT_SORT_KEYS)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(what=f"body of {body.kind}", why=f"not encodable: {shown(str(error))}") from error
    if len(text) > BODY_LIMIT:
        raise InvalidInputError(what=f"body of {body.kind}", why=f"{len(text)} bytes, the limit is {BODY_LIMIT}")
    return text.decode()


@lru_cache(maxsize=4096)
def _plan_piece(plan: EdgePlan) -> orjson.Fragment:
    """A plan's canonical text, made once: plans are interned and stand in every `acquired`."""
    return orjson.Fragment(plan_text(plan).encode())


def decode(kind: str, schema: int, text: str) -> Body:
    """
    Read a stored body of any schema this program knows.

    Raises:
        UnknownEventError: Unknown kind or newer schema (L4).
        DamagedError: A text that is no such body.
    """
    known = _KINDS.get(kind)
    if known is None:
        raise UnknownEventError(
            path=f"event kind {shown(kind)}", why="unknown to this program", remedy="install the newer version"
        )
    if schema > SCHEMAS[known]:
        raise UnknownEventError(
            path=f"{kind} schema {schema}",
            why=f"newer than {SCHEMAS[known]}, the newest known here",
            remedy="install the newer version",
        )
    lifts = _lifts(known, schema)
    if not lifts:
        return _build(known, text)
    data = json.loads(text)
    for lift in lifts:
        data = lift(data)
    return _build(known, json.dumps(data))


def gist(kind: str, schema: int, text: str) -> Body:
    """
    A stored body without its evidence: all that a fold of states asks for, in half the time (P10).

    What is left out is not checked either; that is `verify`'s business.

    Raises:
        UnknownEventError, DamagedError: As `decode`.
    """
    known = _KINDS.get(kind)
    if known is None or schema > (newest := SCHEMAS[known]) or (schema < newest and _lifts(known, schema)):
        return decode(kind, schema, text)
    if (bare := BARE.get(known)) is not None:
        return bare
    quick = _gist_reader(known)(text)
    return _strictly(known, text) if quick is None else quick


BARE: dict[Kind, Body] = {Kind.APPLIED: Applied("apply"), Kind.REJECTED: Rejected()}
"""Kinds that say no more than that it happened, evidence and how it came to be known apart; nobody reads the text."""


def schema_of(body: Body) -> int:
    """The schema a body is stored in: the lowest that holds it, so that an older version reads whatever it can."""
    number = SCHEMAS[body.kind]
    while (added := ADDED.get((body.kind, number))) and getattr(body, added) == dict(_DEFAULTS[body.kind])[added]:
        number -= 1
    return number


def is_canonical(body: Body, schema: int, text: str) -> bool:
    """Whether a stored text and its schema are what this program stores for the body; a lifted body's are not asked."""
    return bool(_lifts(body.kind, schema)) or (encode(body) == text and schema_of(body) == schema)


def _lifts(kind: Kind, schema: int) -> list[Upcaster]:
    """What brings a body of an older schema up to the newest; nothing where only fields were added since."""
    older = range(schema, SCHEMAS[kind])
    return [UPCASTERS[kind, number] for number in older if (kind, number + 1) not in ADDED] if older else []


def _build(kind: Kind, text: str) -> Body:
    if (quick := _reader(kind)(text)) is not None:
        return quick
    return _strictly(kind, text)


def _strictly(kind: Kind, text: str) -> Body:
    """Let pydantic decide, and word what is wrong. Loaded here, since a healthy journal never needs it."""
    from pydantic import ValidationError

    try:
        model = _model(kind).model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "body"
        raise DamagedError(
            path=f"body of {kind}", why=f"{where}: {first['msg']}", remedy="run `journal verify`"
        ) from error
    try:
        values = {name: _value(name, getattr(model, name)) for name in model.model_fields_set}
        return BODIES[kind](**values)
    except (KeyError, TypeError, ValueError) as error:  # a plan is checked only by its own constructors
        raise DamagedError(path=f"body of {kind}", why=shown(repr(error)), remedy="run `journal verify`") from error


def _value(name: str, value: Any) -> Any:
    if name in _EVIDENCE:
        return tuple(sorted(value.items()))
    if name == "plan":
        return plan_from_data(value)
    return value


def _data(body: Body, plan: Callable[[EdgePlan], Any]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for name, default in _DEFAULTS.get(body.kind, _UNREAD):
        value = getattr(body, name)
        if default is MISSING or value != default:
            data[name] = value if type(value) in _EASY else _plain(name, value, plan)
    return data


_DEFAULTS = {kind: tuple((field.name, field.default) for field in fields(body)) for kind, body in BODIES.items()}
_UNREAD = tuple((field.name, field.default) for field in fields(Unread))

_EASY = frozenset({str, bool, type(None)})
"""Types of which every value can be stored, and read back as it was."""


def _plain(name: str, value: Any, plan: Callable[[EdgePlan], Any]) -> Any:
    if name in _EVIDENCE:
        seen = dict(value)
        for key, one in seen.items():
            if type(key) is not str:
                _scalar("name", key)
            if type(one) not in _EASY:
                _scalar(key, one)
        return seen
    if isinstance(value, StrEnum):
        return str(value)  # what its `value` is, which 3.11 takes eight times as long to say
    match value:
        case EdgePlan():
            return plan(value)
        case Owner():
            return {f.name: getattr(value, f.name) for f in fields(value) if getattr(value, f.name) != f.default}
        case _:
            return _scalar(name, value)


def _scalar(name: str, value: Any) -> Any:
    # Whatever is stored must be readable for ever: one odd value would make its whole stream unreadable.
    if type(value) is int and -MAX_INTEGER <= value <= MAX_INTEGER:
        return value
    if value is not None and not isinstance(value, (str, int)):
        why = "only text, whole numbers, true, false and nothing are stored; a fraction in a smaller unit"
        raise InvalidInputError(what=f"'{name}' of type {type(value).__name__}", why=why)
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise InvalidInputError(what=f"'{name}'", why="an integer beyond 64 bits")
    return value


@cache
def _reader(kind: Kind) -> Callable[[str], Body | None]:
    """The quick way to read a body of this kind; None from it means: ask pydantic."""
    return reader_of(BODIES[kind], get_type_hints(BODIES[kind], vars(events)))


@cache
def _gist_reader(kind: Kind) -> Callable[[str], Body | None]:
    read = reader_of(BODIES[kind], get_type_hints(BODIES[kind], vars(events)), without=_EVIDENCE)
    if kind is Kind.INTENDED:
        same = lru_cache(maxsize=4096)(read)
        return lambda text: same(_without_expected(text))
    return lru_cache(maxsize=1024)(read) if kind is Kind.RELEASED else read


def _without_expected(text: str) -> str:
    """
    An intent's canonical text without its evidence: what is left is the same for many, and so is read once.

    No text in JSON holds a quote of its own, so what stands between quotes here are names. Cut where the order is
    another one, it lacks a field or is no JSON, and is read whole.
    """
    first, last = text.find('"expected":'), text.rfind('"guard":')
    return text[:first] + text[last:] if 0 < first < last else text


@cache
def _model(kind: Kind) -> type[BaseModel]:
    """A strict pydantic model of one body; evidence is an object of scalars, a plan is checked by `journal.plan`."""
    from pydantic import ConfigDict, StrictBool, StrictInt, StrictStr, create_model

    hints = get_type_hints(BODIES[kind], vars(events))
    shapes: dict[str, Any] = {}
    for field in fields(BODIES[kind]):
        hint = hints[field.name]
        if hint == Evidence:
            hint = dict[str, StrictBool | StrictInt | StrictStr | None]
        elif hint is EdgePlan:
            hint = dict[str, Any]
        shapes[field.name] = (hint, ... if field.default is MISSING else field.default)
    config = ConfigDict(extra="forbid", strict=True, frozen=True)
    return create_model(f"{BODIES[kind].__name__}Body", __config__=config, **shapes)


def as_data(body: Body) -> dict[str, Any]:
    """A body as plain data for JSON answers."""
    return _data(body, plan_data)


EMPTY: MappingProxyType[str, Evidence] = MappingProxyType({})
