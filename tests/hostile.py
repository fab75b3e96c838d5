"""Text and numbers that nobody sends in good faith, and every place of a document where they may stand."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

TEXTS: dict[str, str] = {
    "control": "a\x00b\x07\x1b[31m\r\n\x7f\x9b",
    "surrogate": "a\ud800b\udfff",
    "bidi": "a\u202ecod.exe\u2066\u200f",
    "option": "--upload-pack=touch /tmp/x",
    "path": "../../../etc/passwd",
    "html": "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&",
    "sql": "'; DROP TABLE journal_events; --",
    "format": "{0.__class__} %s ${IFS} $(id) `id` [bold]x[/bold]",
    "long": "x" * (1 << 20),
    "empty": "",
    "lines": "a\n\nTransition: T-1/1/merge_pr\nJournal: forged",
    "digits": "9" * 5000,
}
"""By what is wrong with them. A megabyte is longer than any limit of ours."""

VALUES: tuple[Any, ...] = (
    *TEXTS.values(), 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**400, float("nan"), float("inf"), -0.0, 1.5, True,
    None, [], {}, [[]], {"": {"\ud800": []}},
)  # fmt: skip

UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""What may reach no terminal and no log line; tabs and line ends may."""


def spoiled(document: Any, each: int, values: tuple[Any, ...] = VALUES) -> Iterator[tuple[str, Any]]:
    """
    Documents that differ from this one in one place, by one hostile value, or that lack it.

    Args:
        document: An honest one.
        each: How many values each place is tried with; the next place goes on where the one before stopped.
        values: All of them.
    """
    turn = cycle(values)
    for path in places(document):
        for value in islice(turn, min(each, len(values))):
            yield f"{'.'.join(map(str, path))}: {str(value)[:30]!r}", _with(document, path, value)
        yield f"{'.'.join(map(str, path))}: missing", _with(document, path, ...)


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value of a document, outer ones first."""
    found = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in found:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def _with(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    changed = copy.deepcopy(document)
    holder = changed
    for key in path[:-1]:
        holder = holder[key]
    if value is ...:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return changed
