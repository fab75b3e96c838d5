"""What every route of one application shares, and how it gets at it."""

from __future__ import annotations

from typing import Annotated, cast

import orjson
from fastapi import Query, Request
from starlette.responses import Response

from integrations.http.feed import Feed
from integrations.http.ports import Service
from integrations.http.problems import Problem
from journal import names
from journal.errors import UnknownTaskError
from journal.journal import Journal
from journal.locks import read_holder
from journal.stream import Stream

Limit = Annotated[int, Query(ge=1, le=1000, description="At most this many.")]
Cursor = Annotated[int, Query(ge=0, le=names.MAX_INTEGER, description="`next_cursor` of the page before.")]
After = Annotated[int, Query(ge=0, le=names.MAX_INTEGER)]


def service_of(request: Request) -> Service:
    """The running service."""
    return cast("Service", request.app.state.service)


def feed_of(request: Request) -> Feed:
    """The application's feed of events."""
    return cast("Feed", request.app.state.feed)


def writing(service: Service) -> Journal:
    """
    The journal that drives.

    Raises:
        Problem: 503, this process is a standby; names who drives, and where it listens if that is known.
    """
    if service.journal is not None:
        return service.journal
    holder = read_holder(service.locks.writer_path())
    more = {"holder": str(holder)} | ({"address": holder.address} if holder.address else {})
    raise Problem(503, "standby", "this process is a standby; another one drives the journal", more)


def lives(service: Service, task: str, owner: str) -> bool:
    """
    Whether a run holds the task at this moment, here or on another host: for showing, never for deciding.

    Args:
        service: The running service.
        task: Its id.
        owner: The process that owns it, as the log has it; "" = nobody.
    """
    if service.locks.is_held(task):
        return True
    return service.journal is not None and service.journal.tools.hosts.lives(owner)


async def known(service: Service, task: str) -> Stream:
    """
    A task's stream.

    Raises:
        UnknownTaskError, InvalidInputError: There is none, or there can be none of that name.
    """
    stream = await service.reader.read(names.task_id(task))
    if not stream.version:
        raise UnknownTaskError(task=task)
    return stream


def json_response(data: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Plain data, or pieces of JSON within it, as an answer."""
    return Response(orjson.dumps(data), status, headers, "application/json")


def piece(json: bytes) -> orjson.Fragment:
    """JSON that is ready, to be put into other data."""
    return orjson.Fragment(json)
