"""
What the log asks of a projection: tables of its own, filled in the writer's transaction, rebuildable (L1, R94, R95).

The log hands over a connection and events; what a projection means is its own business (`projections/`).
"""

from __future__ import annotations

import gc
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from journal.codec import BARE, gist
from journal.errors import UnknownEventError
from journal.events import Body, Event, Unread
from journal.log.schema import statements
from journal.state import TaskState, Told

_BARE = ", ".join(f"'{kind}'" for kind in BARE)
RECALLED = (
    "position, task, version, generation, epoch, step, attempt, actor, at, kind, schema, "
    f"CASE WHEN kind IN ({_BARE}) THEN '' ELSE body END"
)
"""Columns of `recall`: no hashes and no evidence, which is most of a log (P10)."""

_AFTER = f"SELECT {RECALLED} FROM journal_events WHERE position > ? ORDER BY position LIMIT ?"  # noqa: S608

_REACHED = (
    "UPDATE journal_projections SET position = ?, hash = (SELECT hash FROM journal_events WHERE position = ?) "
    "WHERE name = ?"
)

CHUNK = 2000
"""Events folded at once while catching up."""


class Drafted(Told, Protocol):
    """A draft, as far as views ask."""

    @property
    def actor(self) -> str: ...


class Past(Protocol):
    """An event, as far as views ask: one that was just written, or `Recalled`."""

    @property
    def position(self) -> int: ...
    @property
    def task(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def at(self) -> int: ...
    @property
    def draft(self) -> Drafted: ...


class Recalled(NamedTuple):
    """A stored event without hashes and evidence; its own draft, since one object is made sooner than two (P10)."""

    position: int
    task: str
    version: int
    generation: int
    epoch: int
    step: str
    attempt: int
    actor: str
    at: int  # microseconds since 1970, UTC
    body: Body

    @property
    def draft(self) -> Recalled:
        return self


def recall(row: Sequence[Any]) -> Recalled:
    """
    What `RECALLED` names of an event; what a newer version wrote becomes `Unread`, as by `rows.as_far_as_known`.

    Raises:
        DamagedError: The body is of a known kind and is no such body.
    """
    kind, schema, text = row[9:]
    try:
        body = gist(kind, schema, text)
    except UnknownEventError as error:
        body = Unread(kind, f"event {row[0]} cannot be read: {error}")
    return Recalled._make((*row[:9], body))


class Projection(Protocol):
    """A view that is derived from the log and nothing else."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int:
        """Grows when its tables or meaning change; then it is rebuilt."""
        ...

    @property
    def tables(self) -> tuple[str, ...]:
        """Its tables, to be dropped before a rebuild."""
        ...

    @property
    def script(self) -> str:
        """Statements that create its tables."""
        ...

    def apply(self, db: sqlite3.Connection, events: Sequence[Past], states: Sequence[TaskState] = ()) -> None:
        """
        Take in events in order, inside the writer's transaction.

        Args:
            db: The writer's connection, or an empty database that is compared with the stored view.
            events: What happened. Their evidence may be left out: while a view is rebuilt it is not even read (P10).
            states: The folds of their tasks with each of them, where somebody has folded already; empty = nobody has.
        """
        ...

    def reset(self) -> None:
        """Forget whatever is cached: the transaction was rolled back."""
        ...


def store_checkpoints(db: sqlite3.Connection, projections: Sequence[Projection], last: Event) -> None:
    """Record how far the views reach and which log they reflect."""
    if projections:
        db.executemany(
            "UPDATE journal_projections SET position = ?, hash = ? WHERE name = ?",
            [(last.position, last.hash, p.name) for p in projections],
        )


def catch_up(
    db: sqlite3.Connection,
    projections: Sequence[Projection],
    *,
    rebuild: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """
    Bring every view to the head; one that is ahead, of another log or of another version begins from zero (R95).

    Args:
        db: The writer's connection, outside a transaction.
        projections: The views.
        rebuild: Begin from zero whatever is there.
        progress: Called with (position reached, head).
    """
    for projection in projections:
        db.execute("BEGIN IMMEDIATE")
        try:
            start = 0 if rebuild else _start(db, projection)
            indexes = [] if start else _recreate(db, projection)
            _replay(db, projection, start, progress)
            for statement in indexes:
                db.execute(statement)
            db.execute("COMMIT")
        except BaseException:
            projection.reset()
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise


def _start(db: sqlite3.Connection, projection: Projection) -> int:
    row = db.execute(
        "SELECT version, position, hash FROM journal_projections WHERE name = ?", (projection.name,)
    ).fetchone()
    if row is None or row[0] != projection.version:
        return 0
    present = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if not present.issuperset(projection.tables):
        return 0
    at = db.execute("SELECT hash FROM journal_events WHERE position = ?", (row[1],)).fetchone()
    return int(row[1]) if at and at[0] == row[2] else 0


def _recreate(db: sqlite3.Connection, projection: Projection) -> list[str]:
    """Make its tables anew, empty; returns the indexes that are still to be made, sooner once the rows are there."""
    for table in projection.tables:
        db.execute(f"DROP TABLE IF EXISTS {table}")
    script = statements(projection.script)
    indexes = [statement for statement in script if statement.startswith("CREATE INDEX")]
    for statement in script:
        if statement not in indexes:
            db.execute(statement)
    projection.reset()
    db.execute(
        "INSERT OR REPLACE INTO journal_projections VALUES (?, ?, 0, ?)",
        (projection.name, projection.version, bytes(32)),
    )
    return indexes


def _replay(
    db: sqlite3.Connection, projection: Projection, start: int, progress: Callable[[int, int], None] | None
) -> None:
    head = db.execute("SELECT coalesce(max(position), 0) FROM journal_events").fetchone()[0]
    whole = True
    while start < head:
        with _uncollected():
            events = [recall(row) for row in db.execute(_AFTER, (start, CHUNK))]
            projection.apply(db, events)
        start = events[-1].position
        db.execute(_REACHED, (start, start, projection.name))
        whole = whole and not any(isinstance(event.body, Unread) for event in events)
        if progress is not None:
            progress(start, head)
    if not whole:  # a version that can read everything begins from zero
        db.execute("UPDATE journal_projections SET version = 0 WHERE name = ?", (projection.name,))


@contextmanager
def _uncollected() -> Iterator[None]:
    """
    Keep the collector of cycles away while a chunk is folded.

    Events hold no cycles and go by their count of references; looking through them for some again and again was a third
    of the time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
