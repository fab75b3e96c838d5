"""
One lesson per forced or stale reclaim, in a table of the host's, with source "auto" (FR-6).

The lesson's text holds the alert's id, and a row of that text is written once: told again after a crash it changes
nothing. The connection is open for one statement and never checkpoints, since the file may be the journal's own.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from integrations.alerts.alert import Alert
from integrations.alerts.config import AlertsConfig
from integrations.alerts.outbox import NotDeliveredError

BUSY_S = 5.0
RETRY_S = 60.0


class Lessons:
    """A sink that is a table."""

    def __init__(self, config: AlertsConfig, db: Path) -> None:
        table, source, text = (f'"{n}"' for n in (config.lessons_table, config.lessons_source, config.lessons_text))
        self._insert = (
            f"INSERT INTO {table} ({source}, {text}) SELECT 'auto', ?1 "  # noqa: S608 - names are checked words
            f"WHERE NOT EXISTS (SELECT 1 FROM {table} WHERE {source} = 'auto' AND {text} = ?1)"
        )
        self._uri = f"file:{quote(str(db.absolute()))}?mode=rw"

    def wants(self, alert: Alert) -> bool:
        """Reclaims only."""
        return alert.is_reclaim

    async def deliver(self, alerts: Sequence[Alert]) -> int:
        """Write a row for each."""
        texts = [f"{alert.what} of {alert.task}: {alert.reason} (id {alert.id})" for alert in alerts]
        try:
            await asyncio.to_thread(self._write, texts)
        except sqlite3.Error as error:
            raise NotDeliveredError(why=f"lessons: {error}", retry_s=RETRY_S) from error
        return len(alerts)

    def _write(self, texts: Sequence[str]) -> None:
        with closing(sqlite3.connect(self._uri, uri=True, timeout=BUSY_S, isolation_level=None)) as db:
            db.execute("PRAGMA wal_autocheckpoint = 0")
            db.execute("BEGIN IMMEDIATE")
            for text in texts:
                db.execute(self._insert, (text,))
            db.execute("COMMIT")
