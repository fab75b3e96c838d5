"""Points in the log as options name them, looked up in a file."""

from __future__ import annotations

import sqlite3

from journal.clock import SystemClock
from journal.errors import InvalidInputError
from projections.as_of import position_at
from projections.base import answer
from projections.points import read_point


def parse(text: str, option: str) -> tuple[int | None, int]:
    """
    Read a point: (position, 0), or (None, microseconds since 1970).

    Raises:
        InvalidInputError: It is none.
    """
    return read_point(text, SystemClock().now_us(), option)


def position_in(db: sqlite3.Connection, text: str, option: str) -> int:
    """
    The position that a point means in a log: of a time, the last one that is not later.

    Raises:
        InvalidInputError: It is no point, or a position that the log does not reach.
    """
    position, at_us = parse(text, option)
    if position is None:
        return answer(db, position_at(at_us))
    last = int(db.execute("SELECT coalesce(max(position), 0) FROM journal_events").fetchone()[0])
    if position > last:
        raise InvalidInputError(what=f"{option} {position}", why=f"the log ends at position {last}")
    return position
