"""Who may: a bearer token for writing always, for reading when the service is reachable from elsewhere."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field

from fastapi import Request

from integrations.http.problems import unauthorized


@dataclass(frozen=True, slots=True)
class Tokens:
    """The secrets that open the API; an empty one opens nothing."""

    operator: str = field(default="", repr=False)
    local: str = field(default="", repr=False)  # in a file of mode 0600, for command lines on this machine
    reading: bool = False  # a token is needed to read, too: the service listens beyond this machine

    def admits(self, header: str) -> bool:
        """Compare in constant time; every secret is looked at, whichever fits."""
        scheme, _, given = header.partition(" ")
        digest = _digest(given.strip())
        fits = [hmac.compare_digest(digest, _digest(token)) for token in (self.operator, self.local) if token]
        return scheme.lower() == "bearer" and any(fits)


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
        Problem: 401.
    """
    tokens: Tokens = request.app.state.tokens
    if not tokens.admits(request.headers.get("authorization", "")):
        raise unauthorized()


def may_read(request: Request) -> None:
    """Let everybody through, or only who showed a token if reading needs one."""
    readers: Readers = request.app.state.readers
    if request.app.state.tokens.reading and not readers.admits(request.cookies.get(COOKIE, "")):
        require_token(request)
