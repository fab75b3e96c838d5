"""
The forge's HTTP API, with what a decision needs in sight: status, body, and whether the request left at all.

No retries, no redirects, no exceptions for a status: whoever asks reads the answer (libraries.md "Forge clients").
The token travels in a header of each request and stands in no message, log or event.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

import httpx

from journal.names import shown

READ_TIMEOUT_S = 20.0
"""Seconds for one read; the forge answers those from its database and git, without side work."""
CONNECT_TIMEOUT_S = 5.0
BODY_LIMIT = 8 << 20
"""Bytes of one answer; a longer one is cut off and therefore no answer (V2)."""
PAGE = 50
"""Entries asked for at a time: the forge's own maximum (gitea.md 2)."""
PAGES = 40
"""Pages read at most; a longer list is not read to its end and therefore no answer."""
# Raised before a connection stood: nothing of the request has left this machine.
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


@dataclass(frozen=True, slots=True)
class Response:
    """What came back."""

    status: int  # 0 = no answer
    data: Any = None  # the body if it is JSON, else None
    text: str = ""  # the body if it is no JSON, shortened; or why there is no answer
    sent: bool = True  # False: it provably never left
    retry_after_s: int | None = None  # the far side's hint when to ask again
    total: int | None = None  # how many entries the whole list has, where the forge says so

    @property
    def message(self) -> str:
        """What the forge says in words; "" when it says none."""
        if isinstance(self.data, dict):
            return str(self.data.get("message") or "")
        return self.text


class Forge(Protocol):
    """The calls the adapters make; `GiteaClient` makes them."""

    async def get(self, path: str, **query: str | int) -> Response: ...
    async def list(self, path: str, **query: str | int) -> list[Any] | Response: ...
    async def send(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, timeout_s: float = READ_TIMEOUT_S
    ) -> Response: ...


class GiteaClient:
    """One forge under one account."""

    def __init__(self, url: str, token: str) -> None:
        self._base = url.rstrip("/") + "/api/v1"
        self._token = token
        self._tls = httpx.create_ssl_context() if self._base.startswith("https:") else False

    async def get(self, path: str, **query: str | int) -> Response:
        """Read one thing."""
        return await self._request("GET", path, None, query, READ_TIMEOUT_S)

    async def list(self, path: str, **query: str | int) -> list[Any] | Response:
        """Read a list to its end; the answer that stopped it when one page could not be read (V2: truncated page)."""
        found: list[Any] = []
        last: list[Any] = []
        for page in range(1, PAGES + 1):
            answer = await self.get(path, **query, page=page, limit=PAGE)
            if answer.status != 200 or not isinstance(answer.data, list):
                return answer
            # An instance may cut the limit below ours in silence, so a short page is no end. A list without paging
            # comes again whole.
            if not answer.data or answer.data == last:
                return found
            found += answer.data
            last = answer.data
            if answer.total is not None and len(found) >= answer.total:
                return found
        return Response(0, text="the list has no end")

    async def send(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, timeout_s: float = READ_TIMEOUT_S
    ) -> Response:
        """Ask for a change, once."""
        return await self._request(method, path, body, {}, timeout_s)

    async def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None, query: Mapping[str, str | int], timeout_s: float
    ) -> Response:
        timeout = httpx.Timeout(timeout_s, connect=min(CONNECT_TIMEOUT_S, timeout_s))
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if self._token:
            headers["Authorization"] = f"token {self._token}"
        # A connection a request: one that was kept may have been closed meanwhile, and then "never left" could not be
        # told from "lost". No proxy from the environment: with one, a refused connection would prove nothing.
        async with httpx.AsyncClient(verify=self._tls, trust_env=False, timeout=timeout, headers=headers) as client:
            try:
                url = self._base + path
                async with client.stream(method, url, json=body, params=dict(query) or None) as answer:
                    return await _read(answer)
            except _NEVER_SENT as error:
                return Response(0, text=_why(error), sent=False)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                return Response(0, text=_why(error))


def segment(text: str) -> str:
    """One part of a path: a slash in it stays inside the part (gitea.md 3.1)."""
    return quote(text, safe="")


async def _read(answer: httpx.Response) -> Response:
    body = bytearray()
    async for chunk in answer.aiter_bytes():
        body += chunk
        if len(body) > BODY_LIMIT:
            return Response(answer.status_code, text="the answer is too long to be read")
    wait_s, total = _number(answer, "retry-after"), _number(answer, "x-total-count")
    try:
        return Response(answer.status_code, json.loads(body), retry_after_s=wait_s, total=total)
    except (ValueError, RecursionError):
        return Response(answer.status_code, text=shown(body.decode("utf-8", "replace"), 300), retry_after_s=wait_s)


def _number(answer: httpx.Response, header: str) -> int | None:
    text = answer.headers.get(header, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else None


def _why(error: Exception) -> str:
    return shown(f"{type(error).__name__}: {error}", 200)
