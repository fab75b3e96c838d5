"""
The inbox: every authenticated webhook is recorded before it is answered, once per delivery (PROTOCOL 8, R69).

What stands in it is a hint and no truth: losing the table costs the time until the next poll.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from journal.log.port import EventLog
from journal.log.unit import Side
from journal.names import shown
from journal.ports import Clock
from recovery.outside import Hint

BACKLOG = 10_000
"""Unhandled notices at most; then a sender is told to come again, and polling finds what it said."""

KEEP_US = 30 * 86400 * 1_000_000
"""Handled notices are kept this long, so that a late repeat is still known."""

TEXT_LIMIT = 300
"""Characters of any text of a hint that are stored; no honest name is longer."""


class InboxFullError(Exception):
    """Too many notices wait; the sender may come again."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A recorded notice."""

    id: int
    source: str
    hint: Hint
    tries: int


class Inbox:
    """The table, and the bell that rings when something is put in."""

    def __init__(self, log: EventLog, clock: Clock) -> None:
        self._log, self._clock = log, clock
        self.bell = asyncio.Event()

    async def record(self, source: str, hint: Hint) -> bool:
        """
        Record a notice; durable when this returns. False: this delivery was recorded before.

        Raises:
            InboxFullError: Nothing was recorded.
            StoreError: Nothing was recorded, or it is not known; the sender must come again.
        """
        waiting = await self._log.query("SELECT count(*) FROM journal_inbox WHERE handled_us = 0")
        if waiting[0][0] >= BACKLOG:
            raise InboxFullError
        now = self._clock.now_us()
        changed = await self._log.side(
            Side(
                "INSERT OR IGNORE INTO journal_inbox (source, delivery, hint, received_us, due_us, tries, handled_us, "
                "note) VALUES (?, ?, ?, ?, ?, 0, 0, '')",
                (source, hint.delivery[:TEXT_LIMIT], _text(hint), now, now),
            )
        )
        if changed.count:
            self.bell.set()
        return bool(changed.count)

    async def due(self, limit: int) -> Sequence[Letter]:
        """Notices to be handled now, oldest first."""
        rows = await self._log.query(
            "SELECT id, source, hint, tries FROM journal_inbox WHERE handled_us = 0 AND due_us <= ? "
            "ORDER BY id LIMIT ?",
            (self._clock.now_us(), limit),
        )
        return [Letter(row[0], row[1], Hint(**json.loads(row[2])), row[3]) for row in rows]

    async def handled(self, ids: Iterable[int], note: str) -> None:
        """Take notices off the pile; one that was handled meanwhile keeps its first note."""
        await self._log.side(
            Side(
                "UPDATE journal_inbox SET handled_us = ?, note = ? WHERE handled_us = 0 AND id IN "
                "(SELECT value FROM json_each(?))",
                (self._clock.now_us(), shown(note, TEXT_LIMIT), json.dumps(list(ids))),
            )
        )

    async def later(self, ids: Iterable[int], *, after_s: float, tried: int, note: str) -> None:
        """Leave notices for a later look."""
        await self._log.side(
            Side(
                "UPDATE journal_inbox SET due_us = ?, tries = tries + ?, note = ? WHERE handled_us = 0 AND id IN "
                "(SELECT value FROM json_each(?))",
                (
                    self._clock.now_us() + int(after_s * 1e6),
                    tried,
                    shown(note, TEXT_LIMIT),
                    json.dumps(list(ids)),
                ),
            )
        )

    async def forget_old(self) -> None:
        """Remove what was handled long ago."""
        limit = self._clock.now_us() - KEEP_US
        await self._log.side(Side("DELETE FROM journal_inbox WHERE handled_us > 0 AND handled_us < ?", (limit,)))


def _text(hint: Hint) -> str:
    return json.dumps({k: v[:TEXT_LIMIT] if isinstance(v, str) else v for k, v in asdict(hint).items()})
