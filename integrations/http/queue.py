"""The queue, now and as of any earlier point; the block about ownership is additive and read-only (FR-6)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from integrations.http.auth import may_read
from integrations.http.context import Cursor, Limit, json_response, piece, service_of
from integrations.http.ports import Service
from integrations.http.problems import Problem
from integrations.http.shapes import QueueDocument, answers, refusals
from journal.errors import InvalidInputError
from journal.names import MAX_INTEGER, shown
from journal.ownership import is_held
from projections.as_of import position_at, queue_at
from projections.base import ask
from projections.events import head
from projections.queue import snapshot

router = APIRouter(tags=["queue"])

At = Annotated[str, Query(max_length=64, description="A position, or a time such as 2026-11-29T12:00:00Z.")]


@router.get("/queue", responses=answers(QueueDocument) | refusals(401, 422))
async def queue(request: Request, at: At = "", repo: str = "", limit: Limit = 200, cursor: Cursor = 0) -> Response:
    """Open tasks, oldest stage entry first, with who owns what; `at` shows it as of an earlier position or time."""
    may_read(request)
    service = service_of(request)
    if at:
        return await _earlier(service, at, repo, limit, cursor)
    seen = await ask(service.reader, snapshot(service.clock.now_us(), limit, cursor, repo))
    ownership = {
        "enabled": True,
        "held": _living(service, seen.held),
        "deferred": piece(seen.deferred),
        "reclaims": seen.reclaims,
        "parked": piece(seen.parked),
    }
    return json_response(
        {
            "position": seen.position,
            "counts": piece(seen.counts),
            "tasks": piece(seen.page.tasks),
            "next_cursor": seen.page.cursor or None,
            "jobs": {"due": seen.due, "waiting": seen.waiting} | dict(service.jobs()),
            "transition_ownership": ownership,
        }
    )


def _living(service: Service, held: bytes) -> list[dict[str, Any]]:
    """Each holder with whether its lock is held at this moment: for showing, never for deciding."""
    owned: list[dict[str, Any]] = orjson.loads(held)
    for each in owned:
        each["alive"] = is_held(service.locks.task_path(each["task"]))
    return owned


async def _earlier(service: Service, at: str, repo: str, limit: int, cursor: int) -> Response:
    position = await _position(service, at)
    page = await queue_at(service.reader, position, limit=limit, cursor=cursor, repo=repo)
    return json_response(
        {
            "position": position,
            "counts": page.counts,
            "tasks": [orjson.Fragment(task) for task in page.tasks],
            "next_cursor": page.cursor or None,
        }
    )


async def _position(service: Service, at: str) -> int:
    last = await ask(service.reader, head())
    if at.isascii() and at.isdigit():
        if len(at) > 19 or int(at) > last:
            raise Problem(422, "invalid-input", f"at: the log ends at position {last}", {"position": last})
        return int(at)
    return await ask(service.reader, position_at(when(at)))


def when(text: str) -> int:
    """
    A time as microseconds since 1970.

    Raises:
        InvalidInputError: It is none, or names no zone.
    """
    try:
        moment = datetime.fromisoformat(text.replace(" ", "+"))  # a '+' in a query arrives as a blank
        micros = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    except (ValueError, TypeError, OverflowError) as error:
        why = "a position such as 1234, or a time with its zone such as 2026-11-29T12:00:00Z"
        raise InvalidInputError(what=f"at '{shown(text)}'", why=why) from error
    return max(0, min(micros, MAX_INTEGER))
