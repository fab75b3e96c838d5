"""Who may: a bearer token for writing always, for reading when the service is reachable from elsewhere."""

from __future__ import annotations

import hashlib
import hmac
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
    """Let everybody through, or only a token's bearer if reading needs one."""
    if request.app.state.tokens.reading:
        require_token(request)
