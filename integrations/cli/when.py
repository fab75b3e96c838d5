"""Points in the log as people write them: a position, a time, or how long ago."""

from __future__ import annotations

import re
import sqlite3
from datetime import UTC, datetime

from journal.clock import SystemClock
from journal.errors import InvalidInputError
from journal.names import MAX_INTEGER, shown

_AGO = re.compile(r"([0-9]{1,9})(s|m|min|h|d)\Z")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


def parse(text: str, option: str) -> tuple[int | None, int]:
    """
    Read a point: (position, 0), or (None, microseconds since 1970).

    Raises:
        InvalidInputError: It is none.
    """
    text = text.strip()
    if re.fullmatch("[0-9]{1,19}", text):
        return min(int(text), MAX_INTEGER), 0
    if match := _AGO.match(text):
        return None, max(0, SystemClock().now_us() - int(match[1]) * _SECONDS[match[2]] * 1_000_000)
    try:
        then = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInputError(
            what=f"{option} '{shown(text)}'", why="use a position, a time such as 2026-01-31T12:00:00Z, or 30m, 2h, 7d"
        ) from None
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    return None, max(0, int(then.timestamp() * 1_000_000))


def position_in(db: sqlite3.Connection, text: str, option: str) -> int:
    """
    The position that a point means in a log: of a time, the last one that is not later.

    Raises:
        InvalidInputError: It is no point, or a position that the log does not reach.
    """
    from projections.as_of import position_at
    from projections.base import answer

    position, at_us = parse(text, option)
    if position is None:
        return answer(db, position_at(at_us))
    last = int(db.execute("SELECT coalesce(max(position), 0) FROM journal_events").fetchone()[0])
    if position > last:
        raise InvalidInputError(what=f"{option} {position}", why=f"the log ends at position {last}")
    return position
