"""The service that holds the writer lock, asked over HTTP from the machine it runs on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from integrations.cli import exits
from journal.errors import InvalidInputError, NotWriterError, StoreUnavailableError, UnknownTaskError
from journal.events import NOBODY
from journal.locks import Holder, is_held, read_holder
from journal.names import shown
from journal.ownership import Locks, lock_folder

CONNECT_S = 5.0
ANSWER_S = 630.0
"""Longer than a run is waited for: the service says when it ends, and a run outlives who asked."""

WAIT_S = 0.5

WORDS = {
    "advanced": exits.YES, "done": exits.YES, "freed": exits.YES, "released": exits.YES,
    "parked": exits.NO, "rolled_back": exits.NO, "refused": exits.NO,
    "waiting": exits.LATER, "held": exits.LATER, "deferred": exits.LATER, "lost-race": exits.LATER,
    "storage": exits.BROKEN,
}  # fmt: skip
"""What a service calls a result."""


class Remote:
    """Who drives a journal, as its lock file tells."""

    def __init__(self, db: Path) -> None:
        self._db, self._lock = db, Locks(db, NOBODY).writer_path()

    @property
    def driving(self) -> bool:
        """Somebody holds the lock and says where it listens."""
        return is_held(self._lock) and bool(self.holder.address)

    @property
    def holder(self) -> Holder:
        return read_holder(self._lock)

    def wait(self) -> None:
        """A short-lived holder, such as another command line, will be gone in a moment."""
        import asyncio

        from journal.clock import SystemClock

        asyncio.run(SystemClock().sleep(WAIT_S))

    def ask(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """
        Put a request to the service; None if it ended at this moment and the lock may be free.

        Raises:
            StoreUnavailableError: It does not answer.
            JournalError: It refuses, as its problem document says.
        """
        import httpx

        address = self.holder.address
        headers = {"Authorization": f"Bearer {self._token()}"}
        try:
            timeout = httpx.Timeout(ANSWER_S, connect=CONNECT_S)
            # Straight to this machine: a proxy of the environment has no business with the token.
            with httpx.Client(base_url=address, headers=headers, timeout=timeout, trust_env=False) as client:
                response = client.request(method, path, json=body)
        except httpx.ConnectError:
            if not is_held(self._lock):
                return None
            raise StoreUnavailableError(
                path=address, why="the service that drives the journal does not answer", remedy="see its log, or end it"
            ) from None
        except httpx.HTTPError as error:
            raise StoreUnavailableError(
                path=address,
                why=f"its answer broke off ({type(error).__name__}); what was asked may have been done",
                remedy="look with `journal inspect`",
            ) from error
        return self._read(response.status_code, response)

    def _read(self, status: int, response: Any) -> dict[str, Any]:
        try:
            data = response.json()
        except ValueError:
            data = None
        if not isinstance(data, dict):
            raise StoreUnavailableError(path=str(response.url), why=f"answered {status} without a document")
        if status < 400 or "task" in data:
            return data | {"status_code": status, "result": data.get("result") or _slug(data) or data.get("state", "")}
        raise _error(self._db, self.holder, status, data)

    def _token(self) -> str:
        file = lock_folder(self._db) / "local-token"
        try:
            return file.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise StoreUnavailableError(
                path=str(file), why="the service's local token cannot be read", remedy="run this as the service's user"
            ) from error


def code_of(data: dict[str, Any]) -> int:
    """The exit code of a service's document."""
    status = data["status_code"]
    fallback = exits.STATUSES.get(status, exits.YES if status < 400 else exits.BROKEN)
    if data.get("state") not in (None, "ended") and status < 400:
        return exits.LATER
    return WORDS.get(str(data["result"]), fallback)


def _slug(data: dict[str, Any]) -> str:
    return str(data.get("type", "")).rpartition(":")[2]


def _error(db: Path, holder: Holder, status: int, data: dict[str, Any]) -> Exception:
    detail = shown(str(data.get("detail") or data.get("title") or status), 500)
    match status:
        case 404 if _slug(data) == "unknown-task":
            return UnknownTaskError(task=detail.removeprefix("task ").partition(" ")[0])
        case 409 | 413 | 422:
            return InvalidInputError(what="the service refused", why=detail)
        case 503 if _slug(data) == "standby":
            return NotWriterError(path=str(db), holder=str(holder))
        case _:
            return StoreUnavailableError(path=str(holder.address), why=f"the service answered {status}: {detail}")
