"""
The tables: an append-only STRICT event table that refuses every forgery by itself, and numbered additive migrations.

The triggers hold on any connection, also one opened by hand with SQLite's defaults: UPDATE, DELETE, INSERT OR REPLACE,
upsert, gaps and out-of-order inserts are all refused by the database (L2, L7, S3, findings 6). REPLACE deletes rows
without firing a delete trigger while `recursive_triggers` is off, so the insert trigger looks for a row in the way of
every unique key, the partial ones too.
"""

from __future__ import annotations

import sqlite3

APPLICATION_ID = 0x544A4C31
SCHEMA_NUMBER = 2

COLUMNS = (
    "position, task, version, generation, epoch, kind, schema, step, attempt, key, actor, body, body_hash, at, "
    "prev_hash, hash"
)

_EVENTS = """
CREATE TABLE IF NOT EXISTS journal_events (
    position INTEGER PRIMARY KEY,
    task TEXT NOT NULL,
    version INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    kind TEXT NOT NULL,
    schema INTEGER NOT NULL,
    step TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    key TEXT NOT NULL,
    actor TEXT NOT NULL,
    body TEXT NOT NULL,
    body_hash BLOB NOT NULL CHECK (length(body_hash) = 32),
    at INTEGER NOT NULL,
    prev_hash BLOB NOT NULL CHECK (length(prev_hash) = 32),
    hash BLOB NOT NULL CHECK (length(hash) = 32)
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS journal_events_by_task ON journal_events (task, version);
CREATE UNIQUE INDEX IF NOT EXISTS journal_one_opened ON journal_events (task COLLATE NOCASE) WHERE kind = 'opened';
CREATE UNIQUE INDEX IF NOT EXISTS journal_one_acquired ON journal_events (task, epoch) WHERE kind = 'acquired';
CREATE UNIQUE INDEX IF NOT EXISTS journal_one_intended
    ON journal_events (task, generation, step, attempt) WHERE kind = 'intended';
CREATE UNIQUE INDEX IF NOT EXISTS journal_one_applied
    ON journal_events (task, generation, step) WHERE kind = 'applied';
CREATE TRIGGER IF NOT EXISTS journal_events_next BEFORE INSERT ON journal_events
BEGIN
    SELECT RAISE(ABORT, 'journal: position is not the next one')
        WHERE NEW.position IS NOT (SELECT coalesce(max(position), 0) + 1 FROM journal_events);
    SELECT RAISE(ABORT, 'journal: version is not the next one of its task')
        WHERE NEW.version IS NOT (SELECT coalesce(max(version), 0) + 1 FROM journal_events WHERE task = NEW.task);
    SELECT RAISE(ABORT, 'journal: prev_hash is not the hash of the event before')
        WHERE NEW.position > 1
        AND NEW.prev_hash IS NOT (SELECT hash FROM journal_events WHERE position = NEW.position - 1);
END;
CREATE TRIGGER IF NOT EXISTS journal_events_once BEFORE INSERT ON journal_events
    WHEN NEW.kind IN ('opened', 'acquired', 'intended', 'applied')
BEGIN
    SELECT RAISE(ABORT, 'journal: this task is opened already, perhaps in other letter case')
        WHERE NEW.kind = 'opened'
        AND EXISTS (SELECT 1 FROM journal_events WHERE task = NEW.task COLLATE NOCASE AND kind = 'opened');
    SELECT RAISE(ABORT, 'journal: this epoch is acquired already')
        WHERE NEW.kind = 'acquired' AND EXISTS (SELECT 1 FROM journal_events
            WHERE task = NEW.task AND epoch = NEW.epoch AND kind = 'acquired');
    SELECT RAISE(ABORT, 'journal: this attempt is intended already')
        WHERE NEW.kind = 'intended' AND EXISTS (SELECT 1 FROM journal_events WHERE task = NEW.task
            AND generation = NEW.generation AND step = NEW.step AND attempt = NEW.attempt AND kind = 'intended');
    SELECT RAISE(ABORT, 'journal: this step is applied already')
        WHERE NEW.kind = 'applied' AND EXISTS (SELECT 1 FROM journal_events WHERE task = NEW.task
            AND generation = NEW.generation AND step = NEW.step AND kind = 'applied');
END;
CREATE TRIGGER IF NOT EXISTS journal_events_no_update BEFORE UPDATE ON journal_events
BEGIN
    SELECT RAISE(ABORT, 'journal: events are never updated');
END;
CREATE TRIGGER IF NOT EXISTS journal_events_no_delete BEFORE DELETE ON journal_events
BEGIN
    SELECT RAISE(ABORT, 'journal: events are never deleted');
END;
"""

_SIDE = """
CREATE TABLE IF NOT EXISTS journal_lanes (lane TEXT PRIMARY KEY, task TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS journal_counters (
    name TEXT NOT NULL, actor TEXT NOT NULL, task TEXT NOT NULL, count INTEGER NOT NULL, last_at INTEGER NOT NULL,
    PRIMARY KEY (name, actor, task)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS journal_projections (
    name TEXT PRIMARY KEY, version INTEGER NOT NULL, position INTEGER NOT NULL, hash BLOB NOT NULL
) STRICT, WITHOUT ROWID;
"""

_MIGRATIONS_TABLE = """
CREATE TABLE IF NOT EXISTS journal_migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT;
"""

_ACTORS = """
CREATE TABLE IF NOT EXISTS journal_inbox (
    id INTEGER PRIMARY KEY, source TEXT NOT NULL, delivery TEXT NOT NULL, hint TEXT NOT NULL,
    received_us INTEGER NOT NULL, due_us INTEGER NOT NULL, tries INTEGER NOT NULL, handled_us INTEGER NOT NULL,
    note TEXT NOT NULL, UNIQUE (source, delivery)
) STRICT;
CREATE INDEX IF NOT EXISTS journal_inbox_waiting ON journal_inbox (id) WHERE handled_us = 0;
CREATE INDEX IF NOT EXISTS journal_inbox_handled ON journal_inbox (handled_us) WHERE handled_us > 0;
CREATE TABLE IF NOT EXISTS journal_jobs (
    id INTEGER PRIMARY KEY, task TEXT NOT NULL, repo TEXT NOT NULL, stage TEXT NOT NULL,
    entered INTEGER NOT NULL UNIQUE,
    state TEXT NOT NULL CHECK (state IN ('queued', 'running', 'done', 'failed', 'dropped')),
    attempts INTEGER NOT NULL, losses INTEGER NOT NULL, due_us INTEGER NOT NULL, run TEXT NOT NULL,
    version INTEGER NOT NULL, changed_us INTEGER NOT NULL, said TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS journal_jobs_open ON journal_jobs (state, due_us) WHERE state <> 'dropped';
CREATE TABLE IF NOT EXISTS journal_cursors (
    name TEXT PRIMARY KEY, position INTEGER NOT NULL, changed_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"""

MIGRATIONS: tuple[tuple[int, str, str], ...] = (
    (1, "events and side tables", _EVENTS + _SIDE),
    (2, "inbox of webhooks, queue of jobs, cursors of followers", _ACTORS),
)
"""(number, name, statements): additive and safe to repeat (NFR-3)."""


def schema_number(db: sqlite3.Connection) -> int:
    """The newest migration in the file; 0 = no journal in it."""
    if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'journal_migrations'").fetchone():
        return 0
    return int(db.execute("SELECT coalesce(max(number), 0) FROM journal_migrations").fetchone()[0])


def statements(script: str) -> list[str]:
    """Split a script; `executescript` would commit an open transaction (S2)."""
    found, part = [], ""
    for line in script.strip().splitlines():
        part += line + "\n"
        if sqlite3.complete_statement(part):
            found.append(part.strip())
            part = ""
    return found


def migrate(db: sqlite3.Connection) -> None:
    """Bring the file to this program's schema, in one transaction."""
    db.execute("BEGIN IMMEDIATE")
    try:
        db.execute(_MIGRATIONS_TABLE)
        present = schema_number(db)
        for number, name, script in MIGRATIONS:
            if number > present:
                for statement in statements(script):
                    db.execute(statement)
                db.execute("INSERT INTO journal_migrations (number, name) VALUES (?, ?)", (number, name))
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def _texts() -> dict[str, str]:
    """Name -> statement as SQLite keeps it, for the event table, its indexes and triggers."""
    found = (text.replace("IF NOT EXISTS ", "", 1).rstrip(";") for text in statements(_EVENTS))
    return {text[text.index("journal_") :].split(maxsplit=1)[0]: text for text in found}


_TEXTS = _texts()
GUARDS = tuple(name for name in _TEXTS if name != "journal_events")
"""Indexes and triggers without which the table is not append-only; `verify` and every opening look for them."""


def missing_guards(db: sqlite3.Connection) -> list[str]:
    """Names of what the event table lacks; one that was replaced by another of the same name counts as lacking."""
    rows = db.execute("SELECT name, sql FROM sqlite_schema WHERE tbl_name = 'journal_events'").fetchall()
    present = dict(rows)
    return [name for name, text in _TEXTS.items() if present.get(name) != text]
