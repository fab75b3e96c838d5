"""
Request bodies: bounded, strict JSON, then a strict model (R96, R101, R102).

Refused before anything else happens: more bytes than a body may have, text that is not UTF-8, lone surrogates, NaN,
a key that stands twice, nesting deeper than any honest body, integers beyond 64 bits.
"""

from __future__ import annotations

import json
from typing import Any, Literal, TypeVar

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from integrations.http.problems import Problem
from journal import names
from journal.errors import InvalidInputError
from journal.names import MAX_INTEGER, shown

BODY_LIMIT = 64 * 1024
"""Bytes."""

M = TypeVar("M", bound=BaseModel)


class Body(BaseModel):
    """Strict: no unknown names, no conversions."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class OpenTask(Body):
    """Open a task."""

    task: str = Field(description="Letters, digits, '.', '_', '-'; at most 64; unique ignoring case.")
    repo: str = Field(description="Such as `acme/widgets`.")
    branch: str
    base: str = "main"
    head: str = Field("", description="Full commit id of the change; empty = none yet.")
    pr: int = Field(0, ge=0, le=MAX_INTEGER, description="Number of the pull request; 0 = none.")
    stage: str = Field("", description="Empty = the pipeline's first.")
    actor: str = "operator"


class AdvanceTask(Body):
    """Move a task over its next edge."""

    expect: str = Field("", description="The stage you believe it is in; another one answers 409. Empty = any.")
    actor: str = "operator"


class ReleaseTask(Body):
    """Take a stuck ownership away."""

    reason: str = Field("released over HTTP", description="Stands in the log for ever.")
    actor: str = "operator"


class VerbBody(Body):
    """What every operator's verb is told."""

    reason: str = Field(description="Stands in the log for ever; 1 to 2000 visible characters.")
    actor: str = "operator"

    def check(self) -> None:
        """
        Refuse what the journal would refuse, before anything is asked of it.

        Raises:
            InvalidInputError: With the name of what is wrong.
        """
        names.prose(self.reason, "reason")
        names.word(self.actor, "actor")


class PauseTask(VerbBody):
    """Stop a task from being driven."""


class ResumeTask(VerbBody):
    """Let a paused or parked task be driven again."""


class CancelTask(VerbBody):
    """End a task before its next irreversible call."""


class ReopenTask(VerbBody):
    """Begin a new generation."""

    stage: str = Field(description="Where it begins again.")
    head: str = Field("", description="Full commit id of the change's new head; empty = as it is.")

    def check(self) -> None:
        super().check()
        names.word(self.stage, "stage")
        if self.head:
            names.commit_id(self.head)


class SettleTask(VerbBody):
    """Say how an attempt in doubt ended."""

    outcome: Literal["applied", "not-applied"] = Field(alias="as", description="What you found.")
    evidence: str = Field(description="Where you saw it; 1 to 2000 visible characters.")

    def check(self) -> None:
        super().check()
        names.prose(self.evidence, "evidence")

    @property
    def applied(self) -> bool:
        """The effect is in the world."""
        return self.outcome == "applied"


async def read_bytes(request: Request, limit: int = BODY_LIMIT) -> bytes:
    """
    The body, read no further than it may be long.

    Raises:
        Problem: 413.
    """
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            # The rest is not read: the connection cannot be used again, and the sender learns it at once.
            raise Problem(413, "too-large", f"a body has at most {limit} bytes", headers={"Connection": "close"})
        parts.append(part)
    return b"".join(parts)


def parse(model: type[M], raw: bytes) -> M:
    """
    A body as its model; an empty one stands for `{}`.

    Raises:
        Problem: 422, naming what is wrong.
        InvalidInputError: The same, from the strict reading.
    """
    data = strict_json(raw) if raw.strip() else {}
    try:
        return model.model_validate(data)
    except ValidationError as error:
        found = [
            {"where": shown(".".join(map(str, e["loc"])) or "body"), "why": shown(e["msg"], 200)}
            for e in error.errors(include_url=False, include_input=False, include_context=False)
        ]
        detail = f"{found[0]['where']}: {found[0]['why']}"
        raise Problem(422, "invalid-input", detail, {"errors": found[:20]}) from error


def strict_json(raw: bytes) -> Any:
    """
    Read JSON as strictly as the log stores it.

    Raises:
        InvalidInputError: With the reason.
    """
    try:
        data = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_int)
        json.dumps(data, ensure_ascii=False).encode("utf-8")  # finds lone surrogates, in names too
    except InvalidInputError:
        raise
    except RecursionError as error:
        raise InvalidInputError(what="body", why="nested too deeply") from error
    except ValueError as error:
        raise InvalidInputError(what="body", why=f"not JSON in UTF-8: {shown(str(error), 120)}") from error
    return data


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        raise InvalidInputError(what="body", why="a key stands in it twice")
    return data


def _no_constant(text: str) -> Any:
    raise InvalidInputError(what="body", why=f"{text} is no JSON number")


def _int(text: str) -> int:
    if len(text) > 20 or abs(value := int(text)) > MAX_INTEGER:
        raise InvalidInputError(what="body", why="an integer beyond 64 bits")
    return value


def documented(model: type[Body], *, required: bool) -> dict[str, Any]:
    """What OpenAPI says about a body that is read by hand."""
    schema = model.model_json_schema()
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}
