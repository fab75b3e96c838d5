"""
The log that a copy follows: where events become durable when several hosts share one journal (decision 0017).

Each host keeps an SQLite file of the same shape, with its own views and side tables. It is the writer's working copy:
what stands in it stands in the log at the same position, or the copy is refused.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from journal.errors import StoreError
from journal.events import Event
from journal.log.rows import Row

COPY_MARK = 0x434F5059
"""`user_version` of a file that follows: nobody may append to it alone."""


class BehindError(StoreError):
    """Somebody else appended since: nothing was written; follow, decide anew, ask again."""

    def __init__(self) -> None:
        super().__init__("the log grew elsewhere")


class Upstream(Protocol):
    """The shared log, asked from the writer's thread; every call blocks it."""

    @property
    def shown(self) -> str:
        """Where it is, without a secret, for messages."""
        ...

    def open(self) -> None:
        """
        Reach it and look whether it can be relied upon; makes its tables where they are missing.

        Raises:
            StoreError: Why not, and what to change.
        """
        ...

    def head(self) -> tuple[int, bytes]:
        """Position and hash of the last event; (0, zeros) = none."""
        ...

    def after(self, position: int, limit: int) -> Sequence[Row]:
        """Rows after a position, in order."""
        ...

    def append(self, position: int, digest: bytes, events: Sequence[Event]) -> None:
        """
        Append events if the log still ends at this position with this hash: all of them or none, durable on return.

        Raises:
            BehindError: It does not end there any more.
            CommitUnknownError: The connection went before the answer came; `holds` looks.
            StoreUnavailableError: Nothing was written.
        """
        ...

    def holds(self, event: Event) -> bool:
        """
        Whether an event whose append was not answered is in the log, durable now. False does not mean never.

        Raises:
            StoreError: It could not be asked.
        """
        ...

    def alone(self) -> AbstractContextManager[int]:
        """Keep every other host from appending until the next `append`; gives the position of the last event."""
        ...

    def watch(self, nudge: Callable[[int], None]) -> None:
        """From now on call this, from any thread, with the log's position when it may have grown."""
        ...

    def close(self) -> None: ...


def mark_copy(db: sqlite3.Connection) -> None:
    """Say in the file itself that it follows a log elsewhere."""
    db.execute(f"PRAGMA user_version = {COPY_MARK}")


def is_copy(db: sqlite3.Connection) -> bool:
    """Whether the file says that it follows a log elsewhere."""
    return bool(db.execute("PRAGMA user_version").fetchone()[0] == COPY_MARK)
