"""Times, ages and evidence as a page shows them; outside text is made visible here and escaped by the templates."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_UNITS = ((86_400_000_000, "d"), (3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s"))
_HASH = re.compile(r"((?:sha256:|[0-9]{1,19}:)?[0-9a-f]{12})[0-9a-f]{20,52}\Z")
_INVISIBLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff]")

SHOWN = 300
"""Characters of one value."""


def moment(at_us: int) -> str:
    """Microseconds since 1970 as a time in UTC, to the second; empty for never."""
    then = _then(at_us)
    return then.strftime("%Y-%m-%d %H:%M:%S") if then else ""


def machine(at_us: int) -> str:
    """The same for `<time datetime>`, to the microsecond."""
    then = _then(at_us)
    return then.isoformat().replace("+00:00", "Z") if then else ""


def aged(us: int) -> str:
    """An age, in the words in which the page's script counts on."""
    return lasted(us - us % 1_000_000, fine=False) if us >= 1_000_000 else "0 s"


def lasted(us: int, *, fine: bool = True) -> str:
    """A duration in its two largest units; `fine`: with tenths of a second, where that says something."""
    us = max(0, us)
    if us < 1_000_000:
        return f"{us // 1000} ms"
    for place, (size, unit) in enumerate(_UNITS):
        if us >= size:
            whole, rest = divmod(us, size)
            if place + 1 == len(_UNITS):
                return f"{us / size:.1f} s" if fine and whole < 10 else f"{whole} s"
            smaller, name = _UNITS[place + 1]
            return f"{whole} {unit}" + (f" {rest // smaller} {name}" if rest >= smaller else "")
    return ""


def visible(value: object, limit: int = SHOWN) -> str:
    """A value from outside: nothing invisible in it, no direction mark, not longer than a person reads."""
    text = str(value)
    if digest := _HASH.match(text):
        return f"{digest[1]}…"
    text = _INVISIBLE.sub(lambda m: f"\\u{ord(m[0]):04x}", text)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _then(at_us: int) -> datetime | None:
    if not at_us:
        return None
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_us)
    except OverflowError:
        return None
