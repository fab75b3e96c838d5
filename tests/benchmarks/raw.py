"""
The raw limit: plain sqlite3 in one thread, the product's own table with its indexes and triggers, and its hashing.

No views, no compare-and-swap, no admission, nobody to answer: just the same events, hashed and inserted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from journal.chain import GENESIS, hash_body, header, link
from journal.codec import encode
from journal.events import Draft, key_of
from journal.log.connection import WRITER_PRAGMAS
from journal.log.rows import INSERT
from journal.log.schema import migrate

Body = tuple[str, int, int, int, str, int, str, int, str, str, str]
"""Everything of a row that costs nothing to know: task, version, ..., actor, body."""


class Chained:
    """Gives bodies their places and hashes."""

    def __init__(self) -> None:
        self._position, self._hash = 0, GENESIS

    def rows(self, bodies: Iterator[Body], size: int) -> list[tuple[object, ...]]:
        """The next rows of a log."""
        return [self._row(body) for body in islice(bodies, size)]

    def _row(self, body: Body) -> tuple[object, ...]:
        task, version, generation, epoch, kind, schema, step, attempt, key, actor, text = body
        position, before = self._position + 1, self._hash
        digest = hash_body(text)
        head = header(position, task, version, generation, epoch, kind, schema, step, attempt, key, actor, _AT)
        self._position, self._hash = position, link(before, digest, head)
        return (
            position, task, version, generation, epoch, kind, schema, step, attempt, key, actor, text, digest, _AT,
            before, self._hash,
        )  # fmt: skip


class RawLog:
    """A log without a product around it."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, cached_statements=256)
        for name, value, _ in WRITER_PRAGMAS:
            self._db.execute(f"PRAGMA {name} = {value}")
        migrate(self._db)
        self._chain = Chained()

    def write(self, bodies: Iterator[Body], transactions: int, size: int) -> int:
        """Insert so many transactions of so many events; returns how many events."""
        done = 0
        for _ in range(transactions):
            rows = self._chain.rows(bodies, size)
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany(INSERT, rows)
            self._db.execute("COMMIT")
            done += len(rows)
        return done

    def close(self) -> None:
        self._db.close()


_AT = 1_790_000_000_000_000


def as_bodies(task: str, drafts: Sequence[Draft]) -> list[Body]:
    """Drafts as rows without a place, encoded beforehand: the raw side need not know how bodies are made."""
    return [
        (task, n, d.generation, d.epoch, d.kind.value, 1, d.step, d.attempt, key_of(task, d), d.actor, encode(d.body))
        for n, d in enumerate(drafts, 1)
    ]
