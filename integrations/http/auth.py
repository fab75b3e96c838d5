"""
Who may: a bearer token for writing always, for reading when the service is reachable from elsewhere.

Three scopes: the operator's and the local token do everything, the reader's only reads, and a sender's secret (in
`integrations.hooks`) only lets its webhooks in.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import structlog
from fastapi import Request

from integrations.http.problems import too_many, unauthorized

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Tokens:
    """The secrets that open the API; an empty one opens nothing."""

    operator: str = field(default="", repr=False)
    local: str = field(default="", repr=False)  # in a file of mode 0600, for command lines on this machine
    reading: bool = False  # a token is needed to read, too: the service listens beyond this machine
    reader: str = field(default="", repr=False)  # opens reading and nothing else
    operator_file: Path | None = None  # holds the operator's token; read at every question, so that it can be changed
    reader_file: Path | None = None
    failures: Failures = field(default_factory=lambda: Failures(), repr=False, compare=False)

    def admits(self, header: str) -> bool:
        """A token that does everything."""
        return _fits(header, (_current(self.operator, self.operator_file), self.local))

    def reads(self, header: str) -> bool:
        """A token that may read: the reader's, or one that does everything."""
        reader = _current(self.reader, self.reader_file)
        return _fits(header, (_current(self.operator, self.operator_file), self.local, reader))


class Failures:
    """
    Wrong tokens of the last minute. Beyond `FAILURES` each further one is told to wait, and the log names it once.

    A right token is never kept waiting: else a stranger's guesses would lock the operator out.

    Args:
        what: How the log names them.
    """

    def __init__(self, what: str = "wrong_tokens") -> None:
        self._what, self._since_s, self._count = what, 0.0, 0

    def wait_s(self, now_s: float) -> int:
        """Count one more; the seconds its sender is to wait, 0 = none."""
        if now_s - self._since_s >= WINDOW_S:
            self._since_s, self._count = now_s, 0
        self._count += 1
        if self._count == FAILURES + 1:
            logger.warning(self._what, count=self._count, within_s=int(now_s - self._since_s))
        return math.ceil(self._since_s + WINDOW_S - now_s) if self._count > FAILURES else 0


FAILURES, WINDOW_S = 20, 60.0
"""Wrong tokens within so many seconds before their senders are told to wait."""


def _current(token: str, file: Path | None) -> str:
    if file is None:
        return token
    try:
        return file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""  # a file that cannot be read opens nothing, rather than what it held once


def _fits(header: str, tokens: Sequence[str]) -> bool:
    """Compare in constant time; every secret is looked at, whichever fits."""
    scheme, _, given = header.partition(" ")
    digest = _digest(given.strip())
    fits = [hmac.compare_digest(digest, _at_rest(token)) for token in tokens if token]
    return scheme.lower() == "bearer" and any(fits)


def _at_rest(token: str) -> bytes:
    """The digest of a secret, which may itself be all that is kept of it: `sha256:` and 64 hex digits."""
    kept = _KEPT.fullmatch(token)
    return bytes.fromhex(kept[1]) if kept else _digest(token)


_KEPT = re.compile(r"sha256:([0-9a-f]{64})")
COOKIE = "journal-reader"
SESSIONS = 256
"""Browsers that may read at once; the one that came first is asked for its token again."""


class Readers:
    """Browsers that showed a token where reading needs one. Their cookie opens reading and nothing else."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, None] = OrderedDict()

    def enter(self) -> str:
        """A new cookie's value."""
        value = secrets.token_urlsafe(32)
        self._known[_digest(value).hex()] = None
        while len(self._known) > SESSIONS:
            self._known.popitem(last=False)
        return value

    def admits(self, value: str) -> bool:
        """Looked up by its digest, so that the time it takes tells nothing about a value that fits."""
        return bool(value) and _digest(value).hex() in self._known


def _digest(token: str) -> bytes:
    # Of equal length whatever was sent, so that not even the length of a secret can be measured.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def require_token(request: Request) -> None:
    """
    Let only a token's bearer through.

    Raises:
        Problem: 401, or 429 after many wrong ones.
    """
    tokens: Tokens = request.app.state.tokens
    header = request.headers.get("authorization", "")
    if not tokens.admits(header):
        _refuse(request, header)


def may_read(request: Request) -> None:
    """Let everybody through, or only who showed a token if reading needs one."""
    readers: Readers = request.app.state.readers
    if request.app.state.tokens.reading and not readers.admits(request.cookies.get(COOKIE, "")):
        header = request.headers.get("authorization", "")
        if not request.app.state.tokens.reads(header):
            _refuse(request, header)


def _refuse(request: Request, header: str) -> NoReturn:
    tokens: Tokens = request.app.state.tokens
    wait_s = tokens.failures.wait_s(request.app.state.service.clock.monotonic_s()) if header else 0
    raise too_many(wait_s) if wait_s else unauthorized()
