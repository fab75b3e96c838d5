"""
The host's table of tasks as the log's companion: the only place where this project writes a host's stage (FR-2, TR-4).

Names come from `[host]` and are checked words, values are bound. A statement that the host's own triggers or
constraints refuse is undone by SQLite alone, and refuses its unit and no other.
"""

# Names are checked words of the configuration; every value is bound.
# ruff: noqa: S608

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integrations.host.config import HostConfig
from journal.errors import StoreUnavailableError
from journal.log.companion import Move
from journal.log.connection import primary_code
from journal.names import shown

_OWN = frozenset({sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH})
"""What a statement meets by itself; after anything else the whole batch is in question."""


@dataclass(frozen=True, slots=True)
class HostTask:
    """A row of the host's, as far as the journal needs it."""

    task: str
    stage: str
    repo: str
    branch: str
    head: str
    base: str
    pr: int


class HostTable:
    """`Companion` over the host's table."""

    def __init__(self, config: HostConfig) -> None:
        self._config = c = config
        self._compare = f'SELECT "{c.stage}" FROM "{c.table}" WHERE "{c.id}" = ?'
        self._write = f'UPDATE "{c.table}" SET "{c.stage}" = ? WHERE "{c.id}" = ? AND "{c.stage}" = ?'
        optional = [f'"{name}"' if name else "NULL" for name in (c.head, c.base, c.pr)]
        chosen = ", ".join((f'"{c.id}"', f'"{c.stage}"', f'"{c.repo}"', f'"{c.branch}"', *optional))
        self.select_one = f'SELECT {chosen} FROM "{c.table}" WHERE "{c.id}" = ?'

    def check(self, db: sqlite3.Connection, path: Path) -> None:
        """Refuse a table that is not what `[host]` says, before anything of ours is made."""
        c = self._config
        found = db.execute("SELECT name, pk FROM pragma_table_info(?)", (c.table,)).fetchall()
        if not found:
            raise StoreUnavailableError(path=str(path), why=f"has no table {c.table}", remedy="set host.table")
        names = {name for name, _ in found}
        if lacking := [name for name in c.columns if name not in names]:
            why = f"table {c.table} has no column {', '.join(lacking)}"
            raise StoreUnavailableError(path=str(path), why=why, remedy="name its columns under [host]")
        if not self._is_unique(db):
            why = f"{c.table}.{c.id} is neither the primary key nor unique"
            raise StoreUnavailableError(path=str(path), why=why, remedy="set host.id to the column that names a task")

    def _is_unique(self, db: sqlite3.Connection) -> bool:
        c = self._config
        keys = db.execute("SELECT name FROM pragma_table_info(?) WHERE pk > 0", (c.table,)).fetchall()
        if keys == [(c.id,)]:
            return True
        found = db.execute('SELECT name FROM pragma_index_list(?) WHERE "unique" = 1 AND partial = 0', (c.table,))
        indexes = [name for (name,) in found.fetchall()]
        return any(db.execute("SELECT name FROM pragma_index_info(?)", (i,)).fetchall() == [(c.id,)] for i in indexes)

    def move(self, db: sqlite3.Connection, move: Move) -> str:
        """Compare, and write by compare-and-swap what is to be written; zero rows is a lost race."""
        try:
            return self._moved(db, move)
        except sqlite3.Error as error:
            if primary_code(error) not in _OWN or not db.in_transaction:
                raise
            return f"the host's table refused stage {move.after}: {shown(str(error), 200)}"

    def _moved(self, db: sqlite3.Connection, move: Move) -> str:
        if move.follows and self._stands(db, move.task) == move.after:
            return ""
        if move.before in ("", move.after):
            stands = self._stands(db, move.task)
            return "" if stands == move.after else _elsewhere(stands, move.after)
        if db.execute(self._write, (move.after, move.task, move.before)).rowcount == 1:
            return ""
        return _elsewhere(self._stands(db, move.task), move.before)

    def _stands(self, db: sqlite3.Connection, task: str) -> str | None:
        row = db.execute(self._compare, (task,)).fetchone()
        return None if row is None else str(row[0])


def host_task(row: tuple[Any, ...]) -> HostTask:
    """A row of `select_one`; what the host leaves empty is empty, its base is `main`."""
    task, stage, repo, branch, head, base, pr = row
    number = pr if isinstance(pr, int) else 0
    return HostTask(
        str(task), str(stage), str(repo), str(branch or ""), str(head or ""), str(base or "main"), max(0, number)
    )


def _elsewhere(stands: str | None, expected: str) -> str:
    if stands is None:
        return "the host has no such task"
    return f"the host's row is in stage '{shown(stands)}', the journal's in '{shown(expected)}'"
