"""
Webhooks: checked over the bytes as they came, recorded, answered; what follows is the inbox's business (R69 to R72).

Nobody is told more than "no": an unsigned or wrongly signed request leaves nothing behind but a count in memory, and
after many of them in a minute each further one is told to wait. A rightly signed one never is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol, cast

import structlog
from fastapi import APIRouter, Request
from starlette.responses import Response

from integrations.http.auth import Failures
from integrations.http.bodies import read_bytes
from integrations.http.context import json_response, service_of
from integrations.http.problems import Problem, too_many
from integrations.http.shapes import ProblemDocument
from journal.errors import InvalidInputError
from recovery.inbox import Inbox, InboxFullError
from recovery.outside import Hooks

logger = structlog.get_logger(__name__)

router = APIRouter(tags=["webhooks"])

WEBHOOK_LIMIT = 1 << 20
"""Bytes of a notice; a push of many commits is long."""

REFUSED: dict[int | str, dict[str, Any]] = {code: {"model": ProblemDocument} for code in (401, 413, 422, 429, 503)}


class Receiver(Protocol):
    """What takes notices in."""

    @property
    def hooks(self) -> Mapping[str, Hooks]:
        """The senders whose secret is configured, by name."""
        ...

    @property
    def inbox(self) -> Inbox | None:
        """Where notices are recorded; None while this process does not drive."""
        ...


class Notices:
    """What became of the requests to the webhooks since the process began, and the unsigned ones of the last minute."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()  # (sender, outcome): recorded, repeated, or why not
        self.unsigned = Failures("unsigned_webhooks")


@router.post("/webhooks/gitea", responses=REFUSED)
async def gitea(request: Request) -> Response:
    """A notice from the forge: signed, recorded, acted upon later."""
    return await _take(request, "gitea")


@router.post("/webhooks/plane", responses=REFUSED)
async def plane(request: Request) -> Response:
    """A notice from the tracker: signed, recorded, acted upon later."""
    return await _take(request, "plane")


async def _take(request: Request, source: str) -> Response:
    notices: Notices = request.app.state.notices
    try:
        recorded = await _record(request, source)
    except Problem as problem:
        notices.counts[source, problem.slug] += 1
        if problem.slug == "unsigned" and (wait_s := notices.unsigned.wait_s(service_of(request).clock.monotonic_s())):
            raise too_many(wait_s, "unsigned notices") from problem
        raise
    except InvalidInputError:
        notices.counts[source, "invalid-input"] += 1
        raise
    notices.counts[source, "recorded" if recorded else "repeated"] += 1
    return json_response({"recorded": recorded})


async def _record(request: Request, source: str) -> bool:
    """Check and record a notice; False = it was recorded before."""
    receiver = cast("Receiver | None", request.app.state.receiver)
    hooks = receiver.hooks.get(source) if receiver else None
    if receiver is None or hooks is None:
        raise Problem(503, "unconfigured", f"webhooks of {source} are not configured: set its secret")
    raw = await read_bytes(request, WEBHOOK_LIMIT)
    hint = hooks.verify(raw, {name.lower(): value for name, value in request.headers.items()})
    if hint is None:
        raise Problem(401, "unsigned", "the signature is missing or does not fit the body")
    if receiver.inbox is None:
        raise Problem(503, "standby", "this process does not drive the journal; come again")
    try:
        recorded = await receiver.inbox.record(source, hint)
    except InboxFullError as error:
        raise Problem(503, "inbox-full", "too many notices wait; come again") from error
    logger.info("webhook_recorded", source=source, delivery=hint.delivery, what=hint.what, new=recorded)
    return recorded
