"""What `journal doctor` looks at on the server that holds the log; changes nothing there."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integrations.cli.checks import FAULT, NOTE, OK, Found
from journal.errors import JournalError, StoreError
from journal.log.connection import open_reader
from journal.log.postgres.connect import Server, connect, failures, unavailable
from journal.log.postgres.schema import SCHEMA_NUMBER, check, lacking_rights

_REPLICAS = "SELECT application_name, sync_state FROM pg_stat_replication ORDER BY application_name"


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a look at the server found."""

    version: str
    schema: int
    lacking: tuple[str, ...]
    replicas: tuple[tuple[str, str], ...]
    head: tuple[int, str]


def server_findings(server: Server, db: Path) -> Iterator[Found]:
    """Can the log on the server be relied upon, and is this host's copy a copy of it?"""
    try:
        seen = asyncio.run(_look(server))
    except StoreError as error:
        why, remedy = getattr(error, "why", str(error)), getattr(error, "remedy", "")
        yield Found(FAULT, "server", f"{server.shown}: {why}", remedy or "install the newer version")
        return
    yield Found(OK, "server", f"{server.shown}: PostgreSQL {seen.version}, commits are durable when answered")
    if not seen.schema:
        yield Found(NOTE, "server's log", "not made yet", "`journal init` with the DSN of the role that owns it")
        return
    if seen.schema < SCHEMA_NUMBER:
        owner = "`journal init` with the DSN of the role that owns it"
        yield Found(NOTE, "server's log", f"schema {seen.schema}, this program makes {SCHEMA_NUMBER}", owner)
    if seen.lacking:
        remedy = "as the owner: SELECT journal_admit('ROLE')"
        yield Found(FAULT, "server's rights", f"this role lacks {', '.join(seen.lacking)}", remedy)
    yield from _replicas(server, seen)
    yield from _copy(seen, db)


ON_THIS_MACHINE = frozenset({
    "git-merge", "git-merge-verified", "ratchet", "command", "image", "self-deploy", "deploy-verified",
    "container-deploy", "container-verified", "unit-deploy", "unit-verified",
})  # fmt: skip
"""Adapters that act on and look at what a path or a socket of this machine leads to."""


def one_world(steps: Mapping[str, Mapping[str, Any]]) -> Iterator[Found]:
    """Another host that looks at a folder of its own sees no effect, and would do it a second time."""
    if local := [name for name, table in steps.items() if table.get("use") in ON_THIS_MACHINE]:
        yield Found(
            NOTE,
            "several hosts",
            f"{', '.join(local)} act on what this machine's paths and sockets lead to",
            "let these be one and the same for all hosts: a shared repository, marker folder, engine; or run one host",
        )


def _replicas(server: Server, seen: _Seen) -> Iterator[Found]:
    loose = [name or "one without a name" for name, state in seen.replicas if state not in ("sync", "quorum")]
    if loose and not server.standbys:
        yield Found(
            NOTE,
            "standbys",
            f"{', '.join(loose)} asynchronous: promoted, it lacks the last commits and the hosts stop",
            "make it synchronous and set [journal] standbys, or never promote it",
        )
    elif seen.replicas:
        yield Found(OK, "standbys", ", ".join(f"{name} {state}" for name, state in seen.replicas))


def _copy(seen: _Seen, db: Path) -> Iterator[Found]:
    position, digest = seen.head
    if not db.exists():
        yield Found(NOTE, "copy", f"{db} does not exist yet", "the next command that reads makes it")
        return
    with suppress(JournalError, sqlite3.Error):
        copy = open_reader(db)
        try:
            mine = copy.execute("SELECT position, hash FROM journal_events ORDER BY position DESC LIMIT 1").fetchone()
        finally:
            copy.close()
        if mine and (mine[0] > position or (mine[0] == position and mine[1].hex() != digest)):
            yield Found(
                FAULT,
                "copy",
                f"holds events up to {mine[0]} that the server, at {position}, lacks",
                "docs/how-to/postgresql.md, 'A lost end'",
            )
        elif mine:
            yield Found(OK, "copy", f"at position {mine[0]} of {position}")


async def _look(server: Server) -> _Seen:
    db = await connect(server, "doctor")
    try:
        return await _ask(db, server)
    except failures(server) as error:
        raise unavailable(server, error) from error
    finally:
        db.terminate()


async def _ask(db: Any, server: Server) -> _Seen:
    schema = 0
    if await db.fetchval("SELECT to_regclass('journal_migrations')") is not None:
        lacking = tuple(await lacking_rights(db))
        if lacking and "SELECT on journal_migrations" in lacking:
            return _Seen("", SCHEMA_NUMBER, lacking, (), (0, ""))
        schema = await check(db, server.shown)
    else:
        lacking = ()
    head = await db.fetchrow("SELECT position, hash FROM journal_head") if schema and not lacking else None
    replicas = tuple((row[0], row[1] or "unknown") for row in await db.fetch(_REPLICAS))
    version = str(await db.fetchval("SHOW server_version"))
    return _Seen(version, schema, lacking, replicas, (head[0], head[1].hex()) if head else (0, ""))
