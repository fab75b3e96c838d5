"""
Exports: a log, or one task's part of it, as lines of JSON that anybody can check without this program (A1, A2, DC-5).

The first line says what follows; each other line is one row of the event table, its body the very text that was
hashed. A whole log is proven by its chain from the first event to the head. One task's part proves that no line was
changed and none of its versions is missing; that the log around it is whole, only the log itself can prove.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from journal.chain import GENESIS
from journal.errors import DamagedError, UnknownTaskError
from journal.log.rows import Row
from journal.log.schema import COLUMNS
from journal.names import shown, shown_json
from journal.ports import Anchor
from recovery.chain import hash_fault

FORMAT = "transition-journal-export"
VERSION = 1

LINE_LIMIT = 4 << 20
"""Bytes of one line; no event is that long."""

NAMES = tuple(COLUMNS.split(", "))
BINARY = frozenset({"body_hash", "prev_hash", "hash"})
TEXT = frozenset({"task", "kind", "step", "key", "actor", "body"})

_ALL = f"SELECT {COLUMNS} FROM journal_events ORDER BY position"  # noqa: S608  (columns)
_ONE = f"SELECT {COLUMNS} FROM journal_events WHERE task = ? ORDER BY version"  # noqa: S608  (columns)

_COUNT_ALL = "SELECT count(*) FROM journal_events"
_COUNT_ONE = "SELECT count(*) FROM journal_events WHERE task = ?"


@dataclass(frozen=True, slots=True)
class Preamble:
    """The first line."""

    task: str  # "" = the whole log
    events: int
    head: Anchor  # of the whole log when it was exported


def lines_of(db: sqlite3.Connection, task: str = "") -> Iterator[str]:
    """
    The lines of an export, without their line breaks, all of one moment.

    Args:
        db: A connection from `open_evidence`.
        task: One task's part; empty = the whole log.

    Raises:
        UnknownTaskError: No event names the task.
    """
    db.execute("BEGIN")  # deferred: a reader's snapshot, so that the count and the rows agree beside a service
    try:
        of = (task,) if task else ()
        events = db.execute(_COUNT_ONE if task else _COUNT_ALL, of).fetchone()[0]
        if task and not events:
            raise UnknownTaskError(task=shown(task))
        last = db.execute("SELECT position, hash FROM journal_events ORDER BY position DESC LIMIT 1").fetchone()
        head = {"position": last[0], "hash": bytes(last[1]).hex()} if last else {"position": 0, "hash": ""}
        yield _line({"format": FORMAT, "version": VERSION, "task": task or None, "events": events, "head": head})
        for row in db.execute(_ONE if task else _ALL, of):
            yield _line({n: bytes(v).hex() if n in BINARY else v for n, v in zip(NAMES, row, strict=True)})
    finally:
        db.execute("ROLLBACK")


def _line(data: dict[str, Any]) -> str:
    return shown_json(json.dumps(data, ensure_ascii=False, separators=(",", ":")))


def read_preamble(line: str) -> Preamble:
    """
    The first line of an export.

    Raises:
        DamagedError: It is none.
    """
    data = _object(1, line)
    head = data.get("head")
    if data.get("format") != FORMAT or data.get("version") != VERSION or not isinstance(head, dict):
        raise _damaged(1, "is not the first line of an export of this version")
    task, events, position, digest = data.get("task"), data.get("events"), head.get("position"), head.get("hash")
    if not isinstance(events, int) or not isinstance(position, int) or not isinstance(digest, str):
        raise _damaged(1, "does not say how many events follow, and where the log ended")
    if task is not None and not isinstance(task, str):
        raise _damaged(1, "names no task and not the whole log either")
    return Preamble(task or "", events, Anchor(position, digest))


def checked_rows(preamble: Preamble, lines: Iterable[str]) -> Iterator[Row]:
    """
    The rows of a whole log's export, each checked against the one before it, and the end against the first line.

    Raises:
        DamagedError: With the number of the line, and what is wrong with it. Rows before it were sound.
    """
    before, number, position = GENESIS, 1, 0
    for number, line in enumerate(lines, 2):
        row = _row(number, line)
        position += 1
        if row[0] != position:
            raise _damaged(number, f"is position {row[0]} where {position} comes next")
        if row[14] != before:
            raise _damaged(number, "does not follow the event before it")
        if fault := hash_fault(row):
            raise _damaged(number, fault)
        before = row[15]
        yield row
    if position != preamble.events or (position and (position, before.hex()) != _pair(preamble.head)):
        raise _damaged(
            number, f"is the last one, at position {position}; the first line promised {preamble.head.position}"
        )


def _pair(head: Anchor) -> tuple[int, str]:
    return head.position, head.hash


def _row(number: int, line: str) -> Row:
    data = _object(number, line)
    if tuple(data) != NAMES:
        raise _damaged(number, "does not hold the columns of an event, in order")
    values = []
    for name, value in data.items():
        kind = str if name in TEXT or name in BINARY else int
        if type(value) is not kind:
            raise _damaged(number, f"holds no {kind.__name__} as '{name}'")
        try:
            values.append(bytes.fromhex(str(value)) if name in BINARY else value)
        except ValueError:
            raise _damaged(number, f"holds no hash as '{name}'") from None
    row: Row = tuple(values)  # type: ignore[assignment]  # of the types that were just looked at
    return row


def _object(number: int, line: str) -> dict[str, Any]:
    if len(line) > LINE_LIMIT:
        raise _damaged(number, "is longer than any event")
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        raise _damaged(number, "is not JSON") from None
    if not isinstance(data, dict):
        raise _damaged(number, "is no object")
    return data


def _damaged(number: int, why: str) -> DamagedError:
    return DamagedError(path=f"line {number}", why=why, remedy="ask for the export again, and compare its head")
