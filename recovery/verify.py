"""
`journal verify`: is this file the untouched log it claims to be, and does it keep the protocol (A1-A3, I1-I26)?

Reads rows as they lie there, not through the codec's goodwill: a row that cannot be decoded is named by its position
and the walk goes on. Memory is bounded by the number of tasks and of violations kept.
"""

# Statements are made of this project's own constants and of its views' table names; every value is bound.
# ruff: noqa: S608

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from journal.chain import GENESIS
from journal.codec import is_canonical
from journal.errors import DamagedError, InvalidInputError, JournalError
from journal.events import Event, Sealed, Unread
from journal.log.rows import as_far_as_known, from_row
from journal.log.schema import APPLICATION_ID, COLUMNS, GUARDS, MIGRATIONS, schema_number, statements
from journal.names import MAX_INTEGER, shown
from journal.projection import Projection
from recovery.chain import CHUNK, Findings, Progress, hash_fault, lenient, rows, verify_chain
from recovery.invariants import Checker, Violation

_ANCHOR = re.compile(r"([1-9][0-9]{0,18}):([0-9a-fA-F]{64})\Z")
_OF_TASK = f"SELECT {COLUMNS} FROM journal_events WHERE task = ? ORDER BY version"
_LOG_BEFORE = f"SELECT {COLUMNS} FROM journal_events WHERE task = '' AND kind = 'incarnation_started' ORDER BY version"


@dataclass(frozen=True, slots=True)
class Head:
    """A place in the log and its hash, as written down outside (A2)."""

    position: int
    hash: str

    @classmethod
    def parse(cls, text: str) -> Head:
        """
        Read `POSITION:HASH`.

        Raises:
            InvalidInputError: It is none.
        """
        match = _ANCHOR.match(text.strip())
        if not match or int(match[1]) > MAX_INTEGER:
            raise InvalidInputError(what=f"head '{shown(text)}'", why="POSITION:HASH is a number and 64 hex digits")
        return cls(int(match[1]), match[2].lower())


def verify(
    db: sqlite3.Connection,
    *,
    head: Head | None = None,
    projections: Sequence[Projection] = (),
    deep: bool = False,
    progress: Progress | None = None,
) -> Findings:
    """
    Check the whole log.

    Args:
        db: A reading connection; `journal.log.offline.open_evidence` makes one that leaves no trace.
        head: An anchor from outside: proves that nothing was cut off the end and nothing was written anew.
        projections: The views to compare, with `deep`.
        deep: Also fold every view anew and compare, and let SQLite check its own pages and indexes.
        progress: Told how far it is.
    """
    found = verify_chain(db, progress)
    sealed: list[Event] = []
    try:
        found.add(*_guards(db))
        _walk_events(db, found, sealed)
        found.add(*_anchors(db, found, head, sealed))
        found.add(*_checkpoints(db, found.position))
        if deep:
            found.add(*_pages(db))
            for projection in projections:
                found.add(*_compare(db, projection))
    except sqlite3.DatabaseError as error:
        found.add(Violation(found.position + 1, "I1", f"SQLite cannot read on from here: {error}"))
    found.violations.sort(key=lambda v: v.position)
    return found


def verify_task(db: sqlite3.Connection, task: str) -> Findings:
    """Check one task's part: each event's own hash, the link to its neighbours, and the task's invariants."""
    found, checker = Findings(), Checker(part=True)
    db.text_factory = lenient
    # In their places: a floor binds the epochs after it, and a task may have had its own before.
    log = [event for event in map(as_far_as_known, db.execute(_LOG_BEFORE)) if not isinstance(event.draft.body, Unread)]
    log.reverse()
    for row in db.execute(_OF_TASK, (task,)):
        while log and log[-1].position < row[0]:
            checker.take(log.pop())
        found.position, found.hash, found.events = row[0], row[15].hex(), found.events + 1
        fault = hash_fault(row)
        faults, event = _body_faults(row)
        hashed = [("I1", fault)] if fault else []
        found.add(*(Violation(row[0], i, detail, task) for i, detail in (*hashed, *faults, *_neighbours(db, row))))
        if event is not None:
            found.add(*checker.take(event))
    found.add(*checker.owed())
    found.violations.sort(key=lambda v: v.position)
    return found


# -- the walk --------------------------------------------------------------------------------------------------------


def _walk_events(db: sqlite3.Connection, found: Findings, sealed: list[Event]) -> None:
    """What the rows tell: canonical bodies, keys, and the invariants."""
    checker = Checker()
    for row in rows(db):
        faults, event = _body_faults(row)
        if faults:
            found.add(*(Violation(row[0], invariant, detail, row[1]) for invariant, detail in faults))
        if event is not None:
            if broken := checker.take(event):
                # A gap was told with the chain, once; the checker would only repeat it.
                found.add(*(v for v in broken if v.invariant != "I1"))
            if isinstance(event.draft.body, Sealed):
                sealed.append(event)
    found.add(*checker.owed())


def _body_faults(row: Sequence[Any]) -> tuple[list[tuple[str, str]], Event | None]:
    """What is wrong with one row's content, and the event if it can be read."""
    faults = []
    try:
        event = from_row(row)
        if not is_canonical(event.draft.body, event.schema, event.body_text):
            faults.append(("I3", "the body is not in its canonical form"))
    except DamagedError as error:
        return [("I3", str(error))], None
    except (JournalError, ValueError, TypeError, KeyError) as error:
        return [("I3", f"the body cannot be read: {shown(str(error))}")], None
    if row[9] != event.key:
        faults.append(("I16", f"key {shown(row[9])} instead of {shown(event.key) or 'none'}"))
    return faults, event


def _neighbours(db: sqlite3.Connection, row: Sequence[Any]) -> list[tuple[str, str]]:
    position, prev_hash, own = row[0], row[14], row[15]
    faults = []
    before = db.execute("SELECT hash FROM journal_events WHERE position = ?", (position - 1,)).fetchone()
    if prev_hash != (before[0] if before else GENESIS if position == 1 else None):
        faults.append(
            ("I1", "prev_hash is not the hash of the event before" if before else "the event before is missing")
        )
    after = db.execute("SELECT prev_hash FROM journal_events WHERE position = ?", (position + 1,)).fetchone()
    if after and after[0] != own:
        faults.append(("I1", "the event after does not follow from it"))
    return faults


# -- around the rows -------------------------------------------------------------------------------------------------


def _guards(db: sqlite3.Connection) -> Iterator[Violation]:
    """Table, indexes and triggers must be the ones this program makes, not only have their names."""
    number = db.execute("PRAGMA application_id").fetchone()[0]
    alone = not db.execute(
        "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'journal\\_%' ESCAPE '\\' "
        "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    ).fetchone()
    if alone and number != APPLICATION_ID:  # in a host's file the number is the host's
        yield Violation(0, "I3", f"application id {number:#x} instead of {APPLICATION_ID:#x}")
    present = dict(db.execute("SELECT name, sql FROM sqlite_schema WHERE tbl_name = 'journal_events'"))
    expected = _expected(schema_number(db))
    for name in ("journal_events", *GUARDS):
        if name not in present:
            yield Violation(0, "I1", f"{name} is gone: rows could have been changed since")
        elif name in expected and present[name] != expected[name]:
            yield Violation(0, "I1", f"{name} is not the one this program makes: rows could have been changed since")


def _expected(number: int) -> dict[str, str]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        for known, _, script in MIGRATIONS:
            if known <= number:
                for statement in statements(script):
                    db.execute(statement)
        return dict(db.execute("SELECT name, sql FROM sqlite_schema WHERE tbl_name = 'journal_events'"))


def _anchors(
    db: sqlite3.Connection, found: Findings, head: Head | None, sealed: Sequence[Event]
) -> Iterator[Violation]:
    if head is not None:
        yield from _anchor(db, found, head, "the anchor")
    for event in sealed:
        body = event.draft.body
        assert isinstance(body, Sealed)
        yield from _anchor(db, found, Head(body.position, body.hash), f"sealed at {event.position}:")


def _anchor(db: sqlite3.Connection, found: Findings, head: Head, who: str) -> Iterator[Violation]:
    row = db.execute("SELECT hash FROM journal_events WHERE position = ?", (head.position,)).fetchone()
    if row is None:
        detail = f"{who} names position {head.position}, the log ends at {found.position}: its end was cut off"
        yield Violation(found.position + 1, "I1", detail)
    elif row[0].hex() != head.hash:
        detail = f"{who} names hash {head.hash[:16]}… here, the log has {row[0].hex()[:16]}…: it was written anew"
        yield Violation(head.position, "I1", detail)


def _checkpoints(db: sqlite3.Connection, end: int) -> Iterator[Violation]:
    """I24, the cheap part: no view reaches past the head or reflects another log."""
    for name, position, reflected in db.execute("SELECT name, position, hash FROM journal_projections"):
        at = db.execute("SELECT hash FROM journal_events WHERE position = ?", (position,)).fetchone()
        if position > end:
            yield Violation(end + 1, "I24", f"view {name} has seen position {position}, the log ends at {end}")
        elif position and (at is None or at[0] != reflected):
            yield Violation(
                position, "I24", f"view {name} reflects another log; `journal projections rebuild` mends it"
            )


def _pages(db: sqlite3.Connection) -> Iterator[Violation]:
    for (text,) in db.execute("PRAGMA integrity_check(10)"):
        if text != "ok":
            yield Violation(0, "I1", f"SQLite finds its own pages damaged: {shown(text, 300)}")


def _compare(db: sqlite3.Connection, projection: Projection) -> Iterator[Violation]:
    """I24: the stored view equals the fold up to its own position."""
    stored = db.execute(
        "SELECT version, position FROM journal_projections WHERE name = ?", (projection.name,)
    ).fetchone()
    if stored is None or stored[0] != projection.version:
        return  # not kept, or by another version: the next writer makes it anew
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
        for statement in statements(projection.script):
            fresh.execute(statement)
        projection.reset()
        for chunk in _chunks(db, stored[1]):
            projection.apply(fresh, chunk)
        projection.reset()
        for table in projection.tables:
            if (detail := _difference(db, fresh, table)) is not None:
                yield Violation(stored[1], "I24", f"view {projection.name}, {detail}; `journal projections rebuild`")


def _chunks(db: sqlite3.Connection, end: int) -> Iterator[list[Event]]:
    chunk = []
    for row in rows(db):
        if row[0] > end:
            break
        chunk.append(as_far_as_known(row))
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _difference(stored: sqlite3.Connection, fresh: sqlite3.Connection, table: str) -> str | None:
    width = len(fresh.execute(f"SELECT * FROM {table} LIMIT 0").description)
    order = ", ".join(str(n + 1) for n in range(width))
    kept = stored.execute(f"SELECT * FROM {table} ORDER BY {order}")
    folded = fresh.execute(f"SELECT * FROM {table} ORDER BY {order}")
    for number, row in enumerate(kept, 1):
        if row != folded.fetchone():
            return f"table {table}: row {number} is not what the log says"
    return f"table {table}: rows are missing" if folded.fetchone() else None
