"""
The chain of a log: every place, hash and link, as the rows lie there; nothing is decoded (A1, I1).

Also how rows are walked at all: memory is bounded, and damaged text does not end the walk.
"""

# Statements are made of this project's own constants; every value is bound.
# ruff: noqa: S608

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from journal.chain import GENESIS, hash_body, header, link
from journal.log.schema import COLUMNS
from journal.names import MAX_INTEGER
from recovery.invariants import Violation

CHUNK = 2000
KEPT = 100
"""Violations told one by one; the rest is counted. A broken link is followed by as many as there are events."""

_AFTER = f"SELECT {COLUMNS} FROM journal_events WHERE position > ? ORDER BY position LIMIT {CHUNK}"

Progress = Callable[[int, int], None]
"""Called with (position reached, head)."""


@dataclass(slots=True)
class Findings:
    """What was found; `violations` are in order of position once `verify` has returned."""

    position: int = 0
    hash: str = ""
    events: int = 0
    total: int = 0  # of violations, also those not kept
    violations: list[Violation] = field(default_factory=list)

    def add(self, *found: Violation) -> None:
        self.total += len(found)
        self.violations += found[: max(0, KEPT - len(self.violations))]

    @property
    def intact(self) -> bool:
        return not self.total


def verify_chain(db: sqlite3.Connection, progress: Progress | None = None) -> Findings:
    """Check places, hashes and links only, nearly as fast as hashing goes; nothing is decoded."""
    found, before = Findings(), GENESIS
    db.text_factory = lenient
    try:
        end = db.execute("SELECT coalesce(max(position), 0) FROM journal_events").fetchone()[0]
        for row in rows(db):
            position = row[0]
            if position != found.position + 1:
                found.add(Violation(found.position + 1, "I1", _gap(found.position + 1, position), row[1]))
            elif row[14] != before:
                found.add(Violation(position, "I1", "prev_hash is not the hash of the event before", row[1]))
            if (fault := hash_fault(row)) is not None:
                found.add(Violation(position, "I1", fault, row[1]))
            found.position, before = position, row[15]
            found.events += 1
            if progress is not None and not position % CHUNK:
                progress(position, end)
    except sqlite3.DatabaseError as error:
        found.add(Violation(found.position + 1, "I1", f"SQLite cannot read on from here: {error}"))
    found.hash = before.hex() if found.events else ""
    return found


def hash_fault(row: Sequence[Any]) -> str | None:
    """What its own hashes say against a row; None = nothing."""
    (
        position, task, version, generation, epoch, kind, schema, step, attempt, key, actor, text, body_hash, at, prev,
        own,
    ) = row  # fmt: skip
    try:
        if hash_body(text) != body_hash:
            return "the body is not the one that was hashed"
        head = header(position, task, version, generation, epoch, kind, schema, step, attempt, key, actor, at)
        if link(prev, body_hash, head) != own:
            return "the hash does not fit the event's columns and the event before"
    except UnicodeEncodeError:
        return "holds text that is no UTF-8"
    return None


def rows(db: sqlite3.Connection) -> Iterator[Any]:
    """Every row of the event table in order of position, also those at places where none may be."""
    position = -MAX_INTEGER
    while chunk := _chunk(db, position):
        yield from chunk
        position = chunk[-1][0]


def _chunk(db: sqlite3.Connection, after: int) -> list[Any]:
    """Sound text is decoded by SQLite's own module; only a chunk with damaged text takes the slow way, cell by cell."""
    db.text_factory = str
    try:
        return db.execute(_AFTER, (after,)).fetchall()
    except sqlite3.OperationalError:
        db.text_factory = lenient
        return db.execute(_AFTER, (after,)).fetchall()
    finally:
        db.text_factory = lenient


def _gap(expected: int, got: int) -> str:
    if got < expected:
        return f"position {got} lies before the first place"
    missing = f"position {expected} is" if got == expected + 1 else f"positions {expected} to {got - 1} are"
    return f"{missing} missing"


def lenient(data: bytes) -> str:
    """Damaged text must not end the walk: the hash tells that it is damaged."""
    return data.decode("utf-8", "surrogateescape")
