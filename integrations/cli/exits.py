"""Exit codes: one table for results, one for errors (CONTRACT "CLI")."""

from __future__ import annotations

from journal.errors import CallerError, JournalError, NotWriterError, StoreError, UnknownTaskError
from journal.results import (
    Advanced,
    Deferred,
    Done,
    Freed,
    LostRace,
    Parked,
    Refused,
    Result,
    RolledBack,
    Unavailable,
    Waiting,
)

YES, NO, USAGE, LATER, BROKEN = 0, 1, 2, 3, 4

RESULTS: dict[type, int] = {
    Advanced: YES,
    Done: YES,
    Freed: YES,
    Parked: NO,
    RolledBack: NO,
    Refused: NO,
    Deferred: LATER,
    Waiting: LATER,
    LostRace: LATER,
    Unavailable: BROKEN,
}

ERRORS: tuple[tuple[type[JournalError], int], ...] = (
    (UnknownTaskError, NO),
    (CallerError, USAGE),
    (NotWriterError, LATER),  # held by another
    (StoreError, BROKEN),
    (JournalError, BROKEN),
)
"""The first that fits."""

STATUSES: dict[int, int] = {401: BROKEN, 404: NO, 409: LATER, 413: USAGE, 422: USAGE, 503: BROKEN}
"""What a running service answers, where the answer is no result; the rest is a broken service."""


def of_result(result: Result | Freed | Done) -> int:
    """The exit code of a result."""
    return RESULTS[type(result)]


def of_error(error: JournalError) -> int:
    """The exit code of an error."""
    return next(code for kind, code in ERRORS if isinstance(error, kind))
