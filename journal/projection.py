"""
What the log asks of a projection: tables of its own, filled in the writer's transaction, rebuildable (L1, R94, R95).

The log hands over a connection and events; what a projection means is its own business (`projections/`).
"""

from __future__ import annotations

import gc
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from journal.codec import BARE, SCHEMAS, gist
from journal.errors import UnknownEventError
from journal.events import Body, Event, Unread
from journal.log.schema import statements
from journal.state import TaskState, Told
from journal.words import Kind

_BARE = ", ".join(f"'{kind}'" for kind in BARE)
RECALLED = (
    "position, task, version, generation, epoch, step, attempt, actor, at, kind, schema, "
    f"CASE WHEN kind IN ({_BARE}) THEN '' ELSE body END"
)
"""Columns of `recall`: no hashes and no evidence, which is most of a log (P10)."""

_AFTER = f"SELECT {RECALLED} FROM journal_events WHERE position > ? {{}}ORDER BY position LIMIT ?"  # noqa: S608
_OF_TASK = f"SELECT {RECALLED} FROM journal_events WHERE task = ? ORDER BY version"  # noqa: S608

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

    @property
    def passing(self) -> frozenset[Kind]:
        """Kinds of events that leave no trace in its tables once their task has ended: most of most logs (P10)."""
        ...

    def sketch(self, db: sqlite3.Connection, events: Sequence[Past]) -> None:
        """Take in events in order, from the log's first one, but none of a `passing` kind; then `mend` is asked."""
        ...

    def mend(self, db: sqlite3.Connection, past_of: Callable[[str], Iterable[Past]]) -> None:
        """Take in, whole, every task of which something was left out that does leave a trace; `past_of` one of them."""
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
            if start := 0 if rebuild else _start(db, projection):
                for events in _chunks(db, projection.name, start, progress):
                    projection.apply(db, events)
            else:
                _make_anew(db, projection, progress)
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


def _make_anew(db: sqlite3.Connection, projection: Projection, progress: Callable[[int, int], None] | None) -> None:
    """Fold the whole log, what is over without what left no trace; indexes are made once the rows are there."""
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
    for events in _chunks(db, projection.name, 0, progress, _without(projection.passing)):
        projection.sketch(db, events)
    with _uncollected():
        projection.mend(db, lambda task: map(recall, db.execute(_OF_TASK, (task,))))
    for statement in indexes:
        db.execute(statement)


def _without(passing: frozenset[Kind]) -> str:
    """A condition for the rest. What a newer version wrote is of the rest, too: its task stands still here."""
    if not passing:
        return ""
    words, newest = ", ".join(f"'{kind}'" for kind in sorted(passing)), min(SCHEMAS[kind] for kind in passing)
    return f"AND (kind NOT IN ({words}) OR schema > {newest}) "


def _chunks(
    db: sqlite3.Connection,
    name: str,
    start: int,
    progress: Callable[[int, int], None] | None,
    condition: str = "",
) -> Iterator[Sequence[Past]]:
    """Hand out the events after a position; those of a chunk count as taken in when the next one is asked for."""
    head = db.execute("SELECT coalesce(max(position), 0) FROM journal_events").fetchone()[0]
    whole = True
    while start < head:
        with _uncollected():
            events = [recall(row) for row in db.execute(_AFTER.format(condition), (start, CHUNK))]
            yield events
        start = events[-1].position if len(events) == CHUNK else head
        db.execute(_REACHED, (start, start, name))
        whole = whole and not any(isinstance(event.body, Unread) for event in events)
        if progress is not None:
            progress(start, head)
    if not whole:  # a version that can read everything begins from zero
        db.execute("UPDATE journal_projections SET version = 0 WHERE name = ?", (name,))


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
