"""
`Idempotency-Key`: the same request sent again gets the first one's answer (CONTRACT "HTTP").

Remembered in memory and bounded. That is a courtesy to senders; what keeps effects single is the journal itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from fastapi import Request
from starlette.responses import Response

from integrations.http.problems import Problem

REMEMBERED = 1024
"""Answers."""

_KEY = re.compile(r"[\x21-\x7e]{1,255}\Z")


@dataclass(frozen=True, slots=True)
class _Known:
    mark: bytes  # of the request; the same key for another request is a mistake
    answer: asyncio.Future[Response | None]  # None: it failed and may be tried again


class Answers:
    """What was answered to which key."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def once(self, request: Request, body: bytes, make: Callable[[], Awaitable[Response]]) -> Response:
        """
        Answer a request, or give the answer that its key got before; a twin that is under way is waited for.

        Raises:
            Problem: 422, no such key can be, or it was used for another request.
        """
        key = request.headers.get("idempotency-key")
        if key is None:
            return await make()
        if not _KEY.match(key):
            raise Problem(422, "invalid-input", "Idempotency-Key: 1 to 255 visible ASCII characters")
        mark = _mark(request, body)
        while (known := self._known.get(key)) is not None:
            if known.mark != mark:
                raise Problem(422, "idempotency-key-reused", "this Idempotency-Key came with another request before")
            if (answer := await asyncio.shield(known.answer)) is not None:
                return _again(answer)
        return await self._first(key, mark, make)

    async def _first(self, key: str, mark: bytes, make: Callable[[], Awaitable[Response]]) -> Response:
        known = self._known[key] = _Known(mark, asyncio.get_running_loop().create_future())
        answer: Response | None = None
        try:
            answer = await make()
        except Problem as problem:
            answer = problem.response()
        finally:
            if answer is None or answer.status_code >= 500:
                # Nothing is known to have happened; the sender should try again and not be told the same for ever.
                self._known.pop(key, None)
                known.answer.set_result(None)
            else:
                known.answer.set_result(answer)
                self._bound()
        return answer

    def _bound(self) -> None:
        for key in list(self._known):
            if len(self._known) <= REMEMBERED:
                break
            if self._known[key].answer.done():
                del self._known[key]


def _mark(request: Request, body: bytes) -> bytes:
    parts = (request.method.encode(), request.url.path.encode(), request.url.query.encode(), body)
    return hashlib.sha256(b"\0".join(hashlib.sha256(part).digest() for part in parts)).digest()


def _again(answer: Response) -> Response:
    kept = {name: value for name, value in answer.headers.items() if name not in ("content-length", "content-type")}
    kept["Idempotency-Replayed"] = "true"
    return Response(answer.body, answer.status_code, kept, answer.headers.get("content-type"))
