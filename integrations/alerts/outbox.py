"""
Follows the log and hands alerts to a sink, at least once: what is told stands in `journal_cursors`, stored afterwards.

A crash between telling and storing tells again, under the same id. One round makes one delivery, so a storm of alerts
becomes few messages, and the sink's own limits are kept without counting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import structlog

from integrations.alerts.alert import Alert, alert_of, stopped
from journal.errors import JournalError
from journal.hosts.port import ALONE, Hosts
from journal.log.port import EventLog
from journal.log.unit import Side
from journal.ports import Clock
from journal.words import Kind

logger = structlog.get_logger(__name__)

PERIOD_S = 3.0
"""Between two rounds; one message a round is what a Telegram group takes (20 a minute)."""
TAKEN = 100
"""Alerts looked at in one round."""
FIRST_US = 86_400_000_000
"""A journal that is followed for the first time is told back this far, in microseconds."""
UNTOLD = 10_000
"""Events without any alert, after which the cursor is stored all the same."""

_WANTED = (
    "SELECT position FROM journal_events WHERE position > ? AND position <= ? "
    "AND kind IN ('parked', 'hazard_found', 'acquired', 'applied') "
    "AND (kind <> 'acquired' OR json_extract(body, '$.cause') IN ('budget', 'operator')) "
    "AND (kind <> 'applied' OR json_extract(body, '$.seen.pr_state') = 'open') ORDER BY position LIMIT ?"
)
_REPEATED = (
    "SELECT 1 FROM journal_events WHERE task = ? AND version < ? AND kind = ? AND epoch = ? AND generation = ? "
    "AND json_extract(body, '$.reason') IS ? LIMIT 1"
)
_STORE = (
    "INSERT INTO journal_cursors (name, position, changed_us) VALUES (?, ?, ?) "
    "ON CONFLICT (name) DO UPDATE SET position = excluded.position, changed_us = excluded.changed_us"
)


class NotDeliveredError(JournalError):
    """It could not be told now; telling it again later is right."""

    def __init__(self, *, why: str, retry_s: float) -> None:
        self.why, self.retry_s = why, retry_s
        super().__init__(why)


class Sink(Protocol):
    """Takes alerts."""

    def wants(self, alert: Alert) -> bool:
        """Tell whether this alert is for this sink."""
        ...

    async def deliver(self, alerts: Sequence[Alert]) -> int:
        """
        Tell as many of them as fit into one delivery, in order, at least one.

        Returns:
            How many.

        Raises:
            NotDeliveredError: None, or it is not known whether any.
        """
        ...


class Outbox:
    """
    A duty of the service: one follower of the log.

    Args:
        name: Of its cursor.
        log: The log, which this process writes.
        sink: Where alerts go.
        clock: Paces the rounds.
        hosts: Where several share the log, one of them tells, and the next one goes on where it was.
    """

    def __init__(self, name: str, log: EventLog, sink: Sink, clock: Clock, hosts: Hosts = ALONE) -> None:
        self._name, self._log, self._sink, self._clock, self._hosts = name, log, sink, clock, hosts
        self._told: int | None = None  # position up to which everything is told; None = not read yet
        self._stored = 0
        self._since_us = 0
        self._said_stopped = ""

    async def serve(self) -> None:
        """Follow until cancelled; from where the last one that did this has come to."""
        self._told = None
        while True:
            await self._clock.sleep(await self.rest_after_round())

    async def rest_after_round(self) -> float:
        """Make a round, and say after how many seconds the next one is due."""
        try:
            await self.round()
        except NotDeliveredError as error:
            logger.warning("alerts_not_delivered", sink=self._name, why=error.why, retry_s=error.retry_s)
            return max(PERIOD_S, error.retry_s)
        return PERIOD_S

    async def round(self) -> None:
        """
        Make one delivery, if anything waits.

        Raises:
            NotDeliveredError: It waits on.
            StoreError: The log could not be read.
        """
        if await self._tell_stopped():
            return
        told = await self._where()
        head, _ = await self._log.head()
        alerts, looked = await self._waiting(told, head)
        if alerts:
            count = await self._sink.deliver(alerts)
            looked = alerts[count - 1].position if count < len(alerts) else looked
        self._told = looked
        if alerts or looked - self._stored >= UNTOLD:
            await self._store(looked)

    async def _waiting(self, told: int, head: int) -> tuple[list[Alert], int]:
        """Find what is to be told next, and the position up to which there is nothing else."""
        rows = await self._log.query(_WANTED, (told, head, TAKEN))
        found = [await self._alert(position) for (position,) in rows]
        looked = rows[-1][0] if len(rows) == TAKEN else head
        return [alert for alert in found if alert is not None], looked

    async def _alert(self, position: int) -> Alert | None:
        (event,) = await self._log.events(after=position - 1, limit=1)
        alert = alert_of(event)
        if alert is None or alert.at_us < self._since_us or not self._sink.wants(alert):
            return None
        if event.kind is not Kind.ACQUIRED:
            asked = (event.task, event.version, event.kind, event.draft.epoch, event.draft.generation, alert.reason)
            if await self._log.query(_REPEATED, asked):
                return None  # the same story of the same term: told once
        return alert

    async def _where(self) -> int:
        if self._told is None:
            rows = await self._log.query("SELECT position FROM journal_cursors WHERE name = ?", (self._name,))
            marked = await self._hosts.marked(self._name)
            self._told = self._stored = max(marked, int(rows[0][0]) if rows else 0)
            self._since_us = 0 if self._told else self._clock.now_us() - FIRST_US
        return self._told

    async def _store(self, position: int) -> None:
        try:
            await self._log.side(Side(_STORE, (self._name, position, self._clock.now_us())))
            await self._hosts.mark(self._name, position)
        except JournalError as error:  # told again after a restart, under the same ids
            logger.warning("alerts_cursor_not_stored", sink=self._name, error=str(error))
        else:
            self._stored = position

    async def _tell_stopped(self) -> bool:
        """Tell once that the journal cannot be written; nothing about it can be stored."""
        broken = self._log.broken
        if broken is None or str(broken) == self._said_stopped:
            return False
        alert = stopped(broken)
        if self._sink.wants(alert):
            await self._sink.deliver([alert])
        self._said_stopped = str(broken)
        return True
