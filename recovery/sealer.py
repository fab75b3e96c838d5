"""
Anchoring the head outside the log: a file, a log line, and `sealed` as the record of it (A2).

A head that somebody else wrote down is what proves that nothing was cut off and no older copy was put in its place.
"""

from __future__ import annotations

import asyncio

import structlog

from journal.errors import JournalError
from journal.events import Draft, Sealed
from journal.journal import Journal
from journal.log import anchor
from journal.log.unit import Unit, Written
from journal.ports import Anchor
from journal.stream import Stream

logger = structlog.get_logger(__name__)

SEAL_S = 3600.0
"""Seconds between two seals; an idle log is not sealed again."""


class Sealer:
    """Writes the head down now and then while this process drives."""

    def __init__(self, journal: Journal, *, every_s: float = SEAL_S) -> None:
        self._journal, self._every_s = journal, every_s
        self._sealed = 0  # position of our last `sealed`

    async def serve(self) -> None:
        """Seal until cancelled."""
        while True:
            await self._journal.clock.sleep(self._every_s)
            try:
                await self.seal()
            except (JournalError, OSError):
                logger.warning("not_sealed", exc_info=True)

    async def seal(self) -> Anchor | None:
        """
        Write the head down and record that; None if nothing was written since the last time.

        Raises:
            OSError: The anchor could not be written; nothing is recorded then.
            StoreError: It is written and could not be recorded, which harms nothing.
        """
        head = await write_down(self._journal)
        if head.position <= self._sealed or not head.position:
            return None
        log = self._journal.log
        rows = await log.query("SELECT max(version) FROM journal_events WHERE task = ''")
        where = anchor.anchor_path(log.path).name
        draft = Draft(Sealed(head.position, head.hash, where), actor="sealer")
        answer = await log.append(Unit(Stream("", version=rows[0][0]), (draft,)))
        if isinstance(answer, Written):
            self._sealed = answer.events[-1].position
        return head


async def write_down(journal: Journal) -> Anchor:
    """
    Put the durable head into the anchor file and the service's log.

    Raises:
        OSError: It could not be written.
    """
    head = Anchor(*await journal.log.head())
    if head.position:
        await asyncio.to_thread(anchor.put, journal.log.path, head)
        logger.info("head_anchored", head=f"{head.position}:{head.hash}")
    return head
