"""
Between bodies and their stored text: canonical JSON, strict validation, schema numbers and upcasters (L4, L6).

Canonical means: sorted keys, no blanks, UTF-8, no floats, fields that equal their default left out. A body that was
stored is decoded and encoded to the same bytes, so `verify` can tell an edited body from a canonical one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import MISSING, fields
from enum import Enum
from functools import cache
from types import MappingProxyType
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, StrictBool, StrictInt, StrictStr, ValidationError, create_model

from journal import events
from journal.errors import DamagedError, InvalidInputError
from journal.events import Body, Owner
from journal.names import MAX_INTEGER, shown
from journal.plan import EdgePlan, plan_data, plan_from_data
from journal.words import Evidence, Kind

BODY_LIMIT = 64 * 1024
"""Bytes of a canonical body (L6)."""

BODIES: dict[Kind, type[Body]] = {body.kind: body for body in get_args(Body)}

SCHEMAS: dict[Kind, int] = dict.fromkeys(Kind, 1)
"""The shape that is written today, per kind."""

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]
UPCASTERS: dict[tuple[Kind, int], Upcaster] = {}
"""(kind, old schema) -> what turns its data into the next schema's. Empty while every kind is in its first shape."""

_EVIDENCE = frozenset({"seen", "reply", "expected"})


def encode(body: Body) -> str:
    """
    The canonical text of a body.

    Raises:
        InvalidInputError: It is too large, or holds what could not be read back: a float, a list, an object of some
            class, a lone surrogate, an integer beyond 64 bits.
    """
    try:
        text = json.dumps(_data(body), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        size = len(text.encode("utf-8"))
    except (ValueError, UnicodeEncodeError) as error:
        raise InvalidInputError(what=f"body of {body.kind}", why=f"not encodable: {shown(str(error))}") from error
    if size > BODY_LIMIT:
        raise InvalidInputError(what=f"body of {body.kind}", why=f"{size} bytes, the limit is {BODY_LIMIT}")
    return text


def decode(kind: str, schema: int, text: str) -> Body:
    """
    Read a stored body of any schema this program knows.

    Raises:
        DamagedError: Unknown kind or newer schema (L4), or a text that is no such body.
    """
    try:
        known = Kind(kind)
    except ValueError:
        raise DamagedError(
            path=f"event kind {shown(kind)}", why="unknown to this program", remedy="install the newer version"
        ) from None
    if schema > SCHEMAS[known]:
        raise DamagedError(
            path=f"{kind} schema {schema}",
            why=f"newer than {SCHEMAS[known]}, the newest known here",
            remedy="install the newer version",
        )
    if schema == SCHEMAS[known]:
        return _build(known, text)
    data = json.loads(text)
    for number in range(schema, SCHEMAS[known]):
        data = UPCASTERS[known, number](data)
    return _build(known, json.dumps(data))


def _build(kind: Kind, text: str) -> Body:
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


def _data(body: Body) -> dict[str, Any]:
    data = {}
    for field in fields(body):
        value = getattr(body, field.name)
        if field.default is MISSING or value != field.default:
            data[field.name] = _plain(field.name, value)
    return data


def _plain(name: str, value: Any) -> Any:
    if name in _EVIDENCE:
        return {_scalar("name", k): _scalar(k, v) for k, v in value}
    match value:
        case EdgePlan():
            return plan_data(value)
        case Owner():
            return {f.name: getattr(value, f.name) for f in fields(value) if getattr(value, f.name) != f.default}
        case Enum():
            return value.value
        case _:
            return _scalar(name, value)


def _scalar(name: str, value: Any) -> Any:
    # Whatever is stored must be readable for ever: one odd value would make its whole stream unreadable.
    if value is not None and not isinstance(value, (str, int)):
        why = "only text, whole numbers, true, false and nothing are stored; a fraction in a smaller unit"
        raise InvalidInputError(what=f"'{name}' of type {type(value).__name__}", why=why)
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise InvalidInputError(what=f"'{name}'", why="an integer beyond 64 bits")
    return value


@cache
def _model(kind: Kind) -> type[BaseModel]:
    """A strict pydantic model of one body; evidence is an object of scalars, a plan is checked by `journal.plan`."""
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
    return _data(body)


EMPTY: MappingProxyType[str, Evidence] = MappingProxyType({})
