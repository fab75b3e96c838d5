"""
Plane's HTTP API v1, paced: what a key may ask in a minute is little, and one place keeps count (plane.md 1).

Every call made here is safe to repeat: reads, setting a state, and comments that carry an external id. The key travels
in a header of each request and stands in no message, log or event.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from integrations.plane.config import PlaneConfig
from journal.errors import JournalError
from journal.names import shown
from journal.ports import Clock

TIMEOUT_S = 20.0
BODY_LIMIT = 8 << 20
WAIT_LIMIT_S = 65.0
"""The longest wait for our turn; the far side's window is a minute."""
TRIES = 3
"""Of one call that is answered with 429."""
_WINDOW_S = 60.0
_ANSWERS = frozenset({200, 201, 204, 400, 404, 409})


class PlaneError(JournalError):
    """The tracker did not answer: nothing is known, and asking again later is safe."""

    def __init__(self, *, what: str, why: str, status: int = 0) -> None:
        self.what, self.why, self.status = what, why, status
        super().__init__(f"{what}: {why}")


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int  # 200, 201, 204, 400, 404 or 409
    data: Any = None


class Pace:
    """Lets calls through at the far side's own rate: at most so many in any minute, and none before it allows."""

    def __init__(self, clock: Clock, per_minute: int) -> None:
        self._clock, self._most = clock, per_minute
        self._made: deque[float] = deque(maxlen=per_minute)
        self._not_before_s = 0.0
        self._turn = asyncio.Lock()

    async def turn(self, what: str) -> None:
        """
        Wait for our turn.

        Raises:
            PlaneError: It would take longer than `WAIT_LIMIT_S`.
        """
        async with self._turn:
            wait_s = self._wait_s()
            if wait_s > WAIT_LIMIT_S:
                raise PlaneError(what=what, why=f"the tracker allows no call for {wait_s:.0f} s", status=429)
            if wait_s > 0:
                await self._clock.sleep(wait_s)
            self._made.append(self._clock.monotonic_s())

    def rest(self, seconds: float) -> None:
        """No call before so many seconds from now."""
        self._not_before_s = max(self._not_before_s, self._clock.monotonic_s() + seconds)

    def _wait_s(self) -> float:
        now_s = self._clock.monotonic_s()
        full_s = self._made[0] + _WINDOW_S - now_s if len(self._made) == self._most else 0.0
        return max(0.0, full_s, self._not_before_s - now_s)


class PlaneClient:
    """One project under one key."""

    def __init__(self, config: PlaneConfig, token: str, clock: Clock) -> None:
        self._root = f"{config.url.rstrip('/')}/api/v1/workspaces/{config.workspace}"
        self._project = f"{self._root}/projects/{config.project}"
        self._token, self._clock = token, clock
        self._pace = Pace(clock, config.calls_per_minute)
        self._tls = httpx.create_ssl_context() if self._root.startswith("https:") else False

    async def get(self, path: str, **query: str | int) -> Answer:
        """Read one thing of the project."""
        return await self._call("GET", f"{self._project}/{path}", None, query)

    async def send(self, method: str, path: str, body: Mapping[str, Any]) -> Answer:
        """Change one thing of the project, in a way that may be repeated."""
        return await self._call(method, f"{self._project}/{path}", body, {})

    async def by_key(self, key: str) -> Answer:
        """Read a work item by its key, such as ORCH-114."""
        return await self._call("GET", f"{self._root}/work-items/{key}/", None, {})

    async def _call(
        self, method: str, url: str, body: Mapping[str, Any] | None, query: Mapping[str, str | int]
    ) -> Answer:
        what = f"{method} {url.removeprefix(self._root)}"
        for _ in range(TRIES):
            await self._pace.turn(what)
            status, headers, text = await self._request(method, url, body, query, what)
            self._heed(status, headers)
            if status != 429:
                return _answer(what, status, text)
        raise PlaneError(what=what, why="the tracker has no time for us", status=429)

    async def _request(
        self, method: str, url: str, body: Mapping[str, Any] | None, query: Mapping[str, str | int], what: str
    ) -> tuple[int, httpx.Headers, str]:
        headers = {"X-Api-Key": self._token, "Accept": "application/json"}
        async with httpx.AsyncClient(verify=self._tls, trust_env=False, timeout=TIMEOUT_S, headers=headers) as http:
            try:
                async with http.stream(method, url, json=body, params=dict(query) or None) as answer:
                    content = bytearray()
                    async for chunk in answer.aiter_bytes():
                        content += chunk
                        if len(content) > BODY_LIMIT:
                            raise PlaneError(what=what, why="the answer is too long to be read")
                    return answer.status_code, answer.headers, content.decode("utf-8", "replace")
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise PlaneError(what=what, why=f"no answer ({type(error).__name__})") from error

    def _heed(self, status: int, headers: httpx.Headers) -> None:
        """Take the far side's word for how long to rest; its reset is always a minute away, so never longer (1)."""
        if status == 429:
            self._pace.rest(_seconds(headers.get("retry-after", ""), _WINDOW_S))
        elif headers.get("x-ratelimit-remaining") == "0":
            left_s = _seconds(headers.get("x-ratelimit-reset", ""), 0.0) - self._clock.now_us() / 1e6
            self._pace.rest(min(max(left_s, 1.0), _WINDOW_S))


def _answer(what: str, status: int, text: str) -> Answer:
    if status in (401, 403):
        raise PlaneError(
            what=what, why="the key is refused; check ORCH_PLANE_TOKEN and its user's membership", status=status
        )
    if status not in _ANSWERS:
        raise PlaneError(what=what, why=f"status {status}: {shown(text, 200)}", status=status)
    try:
        return Answer(status, json.loads(text) if text else None)
    except (ValueError, RecursionError) as error:
        raise PlaneError(what=what, why=f"status {status} without JSON: {shown(text, 200)}", status=status) from error


def _seconds(text: str, otherwise: float) -> float:
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 12 else otherwise
