"""`journal export` and `journal import`: an audit that needs neither this program nor its server, and the way back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from integrations.cli.given import given

if TYPE_CHECKING:
    import sqlite3

    from integrations.page.audit import AuditedTask


class Format(StrEnum):
    """What an export is for."""

    JSONL = "jsonl"  # machines, and `verify_export.py`
    HTML = "html"  # a ticket


SECTIONS = 200
"""Tasks in one page, the newest."""


def export(
    ctx: typer.Context,
    task: Annotated[str, typer.Option("--task", help="Only this task's part.")] = "",
    form: Annotated[
        Format, typer.Option("--format", help="jsonl verifies by itself, html is one page.")
    ] = Format.JSONL,
    to: Annotated[Path | None, typer.Option("--out", help="A new file; standard output by default.")] = None,
) -> None:
    """
    Write an audit export: lines of JSON with the hash chain, or one self-contained page.

    The file docs/how-to/verify_export.py checks the lines without this program.

    journal export > journal.jsonl
    journal export --task ORCH-114 --format html --out ORCH-114.html
    """
    from journal.log.offline import open_evidence
    from recovery.export import lines_of

    options = given(ctx)
    with open_evidence(options.database()) as db, _sink(to) as sink:
        if form is Format.HTML:
            sink.write(_page(db, task))
            return
        for line in lines_of(db, task):
            sink.write(line + "\n")


@contextmanager
def _sink(to: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that exists whole or not at all and replaces nothing."""
    import os
    import sys

    from journal.errors import InvalidInputError, StoreUnavailableError
    from journal.names import shown

    if to is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    if to.exists() or to.is_symlink():
        raise InvalidInputError(what=shown(str(to), 300), why="is there already; name a new file")
    partial = to.with_name(f".{to.name}.{os.getpid()}.partial")
    try:
        with partial.open("x", encoding="utf-8", newline="\n") as file:
            yield file
        partial.rename(to)
    except OSError as error:
        raise StoreUnavailableError(path=str(to), why=f"cannot be written: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


def _page(db: sqlite3.Connection, task: str) -> str:
    from integrations.page.audit import audit_page
    from journal.clock import SystemClock
    from journal.ports import Anchor
    from recovery.chain import verify_chain

    now_us = SystemClock().now_us()
    names = [task] if task else [row[0] for row in db.execute(_NEWEST, (SECTIONS,))]
    total = 1 if task else db.execute("SELECT count(*) FROM journal_events WHERE kind = 'opened'").fetchone()[0]
    chain = verify_chain(db)
    first = db.execute("SELECT json_extract(body, '$.journal') FROM journal_events WHERE position = 1").fetchone()
    return audit_page(
        [_section(db, name, now_us) for name in names],
        journal=str(first[0]) if first else "",
        head=Anchor(chain.position, chain.hash),
        now_us=now_us,
        left_out=max(0, total - len(names)),
        faults=[f"position {v.position}: {v.invariant}, {v.detail}" for v in chain.violations],
    )


_NEWEST = "SELECT task FROM journal_events WHERE kind = 'opened' ORDER BY position DESC LIMIT ?"


def _section(db: sqlite3.Connection, task: str, now_us: int) -> AuditedTask:
    from integrations.cli.reading import audit
    from integrations.page.audit import audited
    from recovery.explain import explain

    found = audit(db, task, 2**63 - 1)
    faults: Sequence[str] = [f"position {v.position}: {v.invariant}, {v.detail}" for v in found.findings.violations]
    told = explain(found.row, found.story, now_us=now_us)
    return audited(found.row, found.story, found.events, told, faults, now_us)


def import_file(
    ctx: typer.Context, source: Annotated[Path, typer.Argument(help="A file that `journal export` wrote.")]
) -> None:
    """
    Make a journal of a whole export: the same events, the same hashes. Refuses where events are already.

    It is the same journal as the one that was exported: drive one of the two only. To go back to an older state, use
    `journal restore`.

    journal --db /evidence/copy.db import journal.jsonl
    """
    import asyncio

    from integrations.cli.output import Output
    from integrations.telemetry.logs import configure_logs
    from journal.clock import SystemClock, SystemIds, this_process
    from journal.errors import InvalidInputError
    from journal.log.postgres.upstream import PostgresUpstream
    from journal.log.sqlite import SqliteLog
    from journal.names import shown
    from projections import all_views
    from recovery.importing import import_lines

    options = given(ctx)
    out, db, server = Output(options), options.place(), options.server()
    configure_logs("error")
    upstream = PostgresUpstream(server) if server else None

    async def open_log(path: Path) -> SqliteLog:
        ids = SystemIds()
        return await SqliteLog.open(path, write=True, clock=SystemClock(), new_id=ids.instance, projections=all_views())

    try:
        with source.open(encoding="utf-8", newline="\n") as file:
            lines = (line.rstrip("\n") for line in file)
            me = this_process(SystemIds().instance())
            head = asyncio.run(import_lines(db, lines, me=me, open_log=open_log, upstream=upstream))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(what=shown(str(source), 300), why=f"cannot be read: {error}") from error
    finally:
        if upstream is not None:
            upstream.close()
    if out.json:
        out.document({"db": str(db), "head": f"{head.position}:{head.hash}", "events": head.position})
        return
    out.say(f"imported {head.position} events into {server.shown if server else db}", "ok")
    out.say(f"head {head.position}:{head.hash}")
    out.say("it is the same journal as the one that was exported: drive only one of the two", "note")
