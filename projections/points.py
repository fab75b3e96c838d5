"""Points in the log as people name them: a position, a time, or how long ago; pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from journal.errors import InvalidInputError
from journal.names import MAX_INTEGER, shown

_AGO = re.compile(r"([0-9]{1,9})(s|m|min|h|d)\Z")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)


def read_point(text: str, now_us: int, name: str, *, zone: bool = False) -> tuple[int | None, int]:
    """
    Read a point: (position, 0), or (None, microseconds since 1970).

    Args:
        text: What was written.
        now_us: The present, microseconds since 1970, for "2h".
        name: Of the option or parameter, for the refusal.
        zone: A time must name its zone; else one that names none is UTC.

    Raises:
        InvalidInputError: It is none.
    """
    text = text.strip()
    if re.fullmatch("[0-9]{1,40}", text):
        return min(int(text), MAX_INTEGER), 0
    if match := _AGO.match(text):
        return None, max(0, now_us - int(match[1]) * _SECONDS[match[2]] * 1_000_000)
    return None, time_us(text, name, zone=zone)


def time_us(text: str, name: str, *, zone: bool = True) -> int:
    """
    A time as microseconds since 1970, nothing before it.

    Raises:
        InvalidInputError: It is none, or names no zone where one is needed.
    """
    try:
        moment = datetime.fromisoformat(text.replace(" ", "+") if zone else text)  # a '+' in a query arrives as a blank
        if moment.tzinfo is None and not zone:
            moment = moment.replace(tzinfo=UTC)
        micros = (moment - _BEGINNING) // timedelta(microseconds=1)
    except (ValueError, TypeError, OverflowError) as error:
        why = "use a position such as 1234, a time with its zone such as 2026-11-29T12:00:00Z, or 30m, 2h, 7d"
        raise InvalidInputError(what=f"{name} '{shown(text)}'", why=why) from error
    return max(0, min(micros, MAX_INTEGER))
