"""
Errors and refusals as RFC 9457 problem documents: one table for exceptions, one for results (CONTRACT "HTTP").

Whatever came from outside is shown escaped and shortened; a bug's text stays in the log and is not told to a caller.
"""

from __future__ import annotations

import sqlite3
from dataclasses import asdict
from typing import Any

import orjson
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from journal.errors import (
    CallerError,
    InadmissibleError,
    InvalidInputError,
    JournalError,
    NotWriterError,
    StoreError,
    TaskExistsError,
    UnknownTaskError,
)
from journal.names import shown
from journal.results import (
    Advanced,
    Deferred,
    Done,
    Freed,
    LostRace,
    Parked,
    Refused,
    Result,
    RolledBack,
    Unavailable,
    Waiting,
)

logger = structlog.get_logger(__name__)

TYPE = "urn:transition-journal:problem:"
MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = "5"

TITLES = {
    400: "Bad request",
    401: "A token is needed",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    413: "Too large",
    422: "Input refused",
    429: "Too many",
    500: "A bug; nothing was promised",
    503: "Not available now",
}

ERRORS: tuple[tuple[type[JournalError], int, str], ...] = (
    (UnknownTaskError, 404, "unknown-task"),
    (TaskExistsError, 409, "task-exists"),
    (InvalidInputError, 422, "invalid-input"),
    (InadmissibleError, 500, "bug"),
    (CallerError, 422, "invalid-input"),
    (NotWriterError, 503, "standby"),
    (StoreError, 503, "storage"),
)
"""(error, status, problem), the first that fits."""

RESULTS: dict[type, tuple[int, str]] = {
    Advanced: (200, "advanced"),
    RolledBack: (200, "rolled_back"),
    Parked: (200, "parked"),
    Freed: (200, "freed"),
    Done: (200, "done"),
    Waiting: (202, "waiting"),
    Deferred: (409, "held"),
    LostRace: (409, "lost-race"),
    Refused: (409, "refused"),
    Unavailable: (503, "storage"),
}
"""result -> status and the word for it. A run that ended as it had to is an answer, whatever the ending."""


class Problem(Exception):  # noqa: N818  (it is a document first, and raised to get out)
    """A refusal on its way to the caller."""

    def __init__(
        self,
        status: int,
        slug: str,
        detail: str,
        more: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.status, self.slug, self.detail = status, slug, detail
        self.more, self.headers = more or {}, headers or {}
        super().__init__(detail)

    def response(self) -> Response:
        """The document."""
        title = TITLES.get(self.status, "Refused")
        body = {"type": TYPE + self.slug, "title": title, "status": self.status, "detail": self.detail} | self.more
        headers = dict(self.headers)
        if self.status == 503:
            headers.setdefault("Retry-After", RETRY_AFTER_S)
        return Response(orjson.dumps(body), self.status, headers, MEDIA_TYPE)


def unauthorized() -> Problem:
    """No token, or a wrong one; which of the two is not told."""
    detail = "send 'Authorization: Bearer TOKEN' with the operator's token, or the local one from the state folder"
    return Problem(401, "unauthorized", detail, headers={"WWW-Authenticate": 'Bearer realm="journal"'})


def too_many(wait_s: int, what: str = "wrong tokens") -> Problem:
    """Wrong tokens or signatures without end."""
    detail = f"too many {what}; wait {wait_s} s before the next one"
    return Problem(429, "too-many-failures", detail, headers={"Retry-After": str(wait_s)})


def unknown_task(task: str) -> Problem:
    """No event names the task."""
    return from_error(UnknownTaskError(task=shown(task)))


def from_error(error: JournalError) -> Problem:
    """An exception of ours as a problem."""
    status, slug = next(((status, slug) for kind, status, slug in ERRORS if isinstance(error, kind)), (500, "bug"))
    if status == 500:
        logger.error("http_bug", error=str(error))
        return Problem(500, slug, "an internal rule was broken; see the service's log")
    more = {"holder": error.holder} if isinstance(error, NotWriterError) else {}
    return Problem(status, slug, str(error), more)


def from_result(result: Result | Freed | Done) -> Response:
    """A result as an answer: a plain document if the run ended as it had to, else a problem."""
    status, word = RESULTS[type(result)]
    facts = asdict(result)
    if status < 400:
        return Response(orjson.dumps({"result": word, "state": "ended"} | facts), status, media_type="application/json")
    detail = facts.pop("reason", "")
    if isinstance(result, Deferred):
        detail = f"another run holds the task ({result.holder or 'it cannot be read who'})"
    return Problem(status, word, detail, facts).response()


def install(app: FastAPI) -> None:
    """Answer every error of an application with a problem document."""

    @app.exception_handler(Problem)
    async def problem(request: Request, error: Problem) -> Response:
        return error.response()

    @app.exception_handler(JournalError)
    async def journal_error(request: Request, error: JournalError) -> Response:
        return from_error(error).response()

    @app.exception_handler(sqlite3.Error)
    async def store_error(request: Request, error: sqlite3.Error) -> Response:
        logger.warning("http_store_error", path=shown(request.url.path), error=str(error))
        return Problem(503, "storage", "the journal cannot be read now; `journal doctor` says more").response()

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        found = [
            {"where": shown(".".join(map(str, e["loc"]))), "why": shown(str(e["msg"]), 200)} for e in error.errors()
        ]
        first = found[0] if found else {"where": "request", "why": "not understood"}
        return Problem(422, "invalid-input", f"{first['where']}: {first['why']}", {"errors": found[:20]}).response()

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        slug = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "refused")
        detail = f"{request.method} {shown(request.url.path)}: {error.detail}"
        return Problem(error.status_code, slug, detail, headers=dict(error.headers or {})).response()

    @app.exception_handler(ClientDisconnect)
    async def gone(request: Request, error: ClientDisconnect) -> Response:
        # No bug of ours, and no traceback a request: else a stranger fills the log by hanging up.
        logger.debug("client_gone", path=shown(request.url.path))
        return Response(status_code=400)

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> Response:
        logger.error("http_bug", path=shown(request.url.path), exc_info=error)
        return Problem(500, "bug", "an internal error; see the service's log").response()
