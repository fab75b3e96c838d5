"""
What views share: questions that any connection can answer, and words about where a view stands.

A `Question` is SQL, its parameters, and what makes an answer of the rows. The service puts it to its log, a command
line that works offline to a plain connection; the statement is written once. One question is one statement, so its
answer is of one moment (O6).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

A = TypeVar("A")
Rows = Sequence[Sequence[Any]]


class Reader(Protocol):
    """What the service reads through: `journal.log.port.EventLog`, of which only this is needed."""

    async def query(self, sql: str, parameters: Sequence[Any] = ()) -> Sequence[Any]: ...


@dataclass(frozen=True, slots=True)
class Question(Generic[A]):
    """One statement and what its rows mean."""

    sql: str
    parameters: tuple[Any, ...]  # in the order of the statement's question marks
    shape: Callable[[Rows], A]


async def ask(reader: Reader, question: Question[A]) -> A:
    """Put a question to the log."""
    return question.shape(await reader.query(question.sql, question.parameters))


def answer(db: sqlite3.Connection, question: Question[A]) -> A:
    """Put a question to a connection, for whoever works offline."""
    return question.shape(db.execute(question.sql, question.parameters).fetchall())


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a view reaches."""

    name: str
    version: int
    position: int
    head: int  # of the log; behind it by `head - position` events

    @property
    def lag(self) -> int:
        """Events the view has not taken in; below zero if it belongs to another log (R95)."""
        return self.head - self.position


def checkpoints() -> Question[tuple[Checkpoint, ...]]:
    """Every view's checkpoint beside the log's head."""
    sql = (
        "SELECT name, version, position, (SELECT coalesce(max(position), 0) FROM journal_events) "
        "FROM journal_projections ORDER BY name"
    )
    return Question(sql, (), lambda rows: tuple(Checkpoint(*row) for row in rows))
