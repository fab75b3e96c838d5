"""Evidence as the log takes it: whatever an adapter answers, its outcome can be written (L6, R96)."""

from __future__ import annotations

import json

from journal.names import MAX_INTEGER, shown
from journal.words import Evidence, Scalar

TEXT_LIMIT = 1000
"""Bytes of one piece of evidence that are kept, as JSON text."""

MAX_SEEN = 24
"""Pieces of evidence that are kept of one answer: together with the text limit a body stays below its own (L6)."""


def storable(seen: Evidence) -> Evidence:
    """
    An adapter's evidence as the log takes it: an odd or endless value must not keep an outcome from being written.

    Text is cut at `TEXT_LIMIT`, what is neither text nor whole number is written as text, and only so many stay.
    """
    if len(seen) <= MAX_SEEN and _is_plain(seen):
        return seen
    return tuple(sorted((shown(str(name), 64), _storable(value)) for name, value in dict(seen[:MAX_SEEN]).items()))


def _is_plain(seen: Evidence) -> bool:
    """In order, no name twice, nothing to be cut or escaped: what nearly every adapter answers."""
    last = ""
    for pair in seen:
        name, value = pair
        if type(pair) is not tuple or type(name) is not str or not last < name or shown(name, 64) is not name:
            return False
        if type(value) is str:
            if len(value) > TEXT_LIMIT or not (value.isascii() and value.isprintable()):
                return False
        elif value is not None and type(value) is not bool and (type(value) is not int or abs(value) > MAX_INTEGER):
            return False
        last = name
    return type(seen) is tuple


def _storable(value: object) -> Scalar:
    if value is None or isinstance(value, bool) or (isinstance(value, int) and abs(value) <= MAX_INTEGER):
        return value
    text = value if isinstance(value, str) else str(value)
    if len(text) <= TEXT_LIMIT and text.isascii() and text.isprintable():
        return text
    written = json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass")
    fits = len(written) <= TEXT_LIMIT and not any("\ud800" <= c <= "\udfff" for c in text)
    return text if fits else shown(text, TEXT_LIMIT // 2)
