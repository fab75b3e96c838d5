"""The queue, now and as of any earlier point; the block about ownership is additive and read-only (FR-6)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from integrations.http.auth import may_read
from integrations.http.context import Cursor, Limit, json_response, lives, piece, service_of
from integrations.http.ports import Service
from integrations.http.problems import Problem
from integrations.http.shapes import DifferenceDocument, QueueDocument, answers, refusals
from projections.as_of import position_at, queue_at
from projections.base import ask
from projections.differences import difference
from projections.events import head
from projections.points import read_point
from projections.queue import snapshot

router = APIRouter(tags=["queue"])

At = Annotated[str, Query(max_length=64, description="A position, a time such as 2026-11-29T12:00:00Z, or 2h.")]


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
        each["alive"] = lives(service, each["task"], each["owner"]["instance"] if each["owner"] else "")
    return owned


@router.get("/queue/diff", responses=answers(DifferenceDocument) | refusals(401, 422))
async def diff(
    request: Request,
    since: Annotated[str, Query(alias="from", max_length=64, description="A position, a time or how long ago.")],
    until: Annotated[str, Query(alias="to", max_length=64, description="The same; left out: now.")] = "",
    repo: str = "",
    limit: Limit = 200,
) -> Response:
    """What became of the queue between two points: tasks opened, ended, moved or changed."""
    may_read(request)
    service = service_of(request)
    one = await position_of(service, since, "from")
    other = await position_of(service, until, "to") if until else await ask(service.reader, head())
    found = await difference(service.reader, one, other, limit=limit, repo=repo)
    changes = [asdict(change) for change in found.changes]
    return json_response({"from": found.earlier, "to": found.later, "changes": changes, "left_out": found.left_out})


async def _earlier(service: Service, at: str, repo: str, limit: int, cursor: int) -> Response:
    position = await position_of(service, at, "at")
    page = await queue_at(service.reader, position, limit=limit, cursor=cursor, repo=repo)
    return json_response(
        {
            "position": position,
            "counts": page.counts,
            "tasks": [orjson.Fragment(task) for task in page.tasks],
            "next_cursor": page.cursor or None,
        }
    )


async def position_of(service: Service, text: str, name: str, *, zone: bool = True) -> int:
    """
    The position that a point means: of a time, the last one that is not later.

    Args:
        service: Whose log.
        text: A position, a time, or how long ago.
        name: Of the parameter, for the refusal.
        zone: A time must name its zone; else one that names none is UTC.

    Raises:
        InvalidInputError: It is no point.
        Problem: 422, the log does not reach so far.
    """
    position, at_us = read_point(text, service.clock.now_us(), name, zone=zone)
    if position is None:
        return await ask(service.reader, position_at(at_us))
    last = await ask(service.reader, head())
    if position > last:
        raise Problem(422, "invalid-input", f"{name}: the log ends at position {last}", {"position": last})
    return position
