"""`journal log`: the events themselves, as lines; `--follow` goes on as they come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from integrations.cli.given import given

if TYPE_CHECKING:
    import sqlite3

    from integrations.cli.output import Output
    from journal.events import Event

POLL_S = 0.5
CHUNK = 1000


def log(
    ctx: typer.Context,
    task: Annotated[str, typer.Option("--task", "-t", help="Only this task's events.")] = "",
    kind: Annotated[str, typer.Option("--kind", "-k", help="Only this kind, such as stage_moved.")] = "",
    since: Annotated[
        str, typer.Option("--since", help="After this position, or from a time: 2026-01-31T12:00:00Z, 30m, 2h, 7d.")
    ] = "",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as events come.")] = False,
) -> None:
    """
    Print the event log, oldest first. `--json` prints one JSON object a line, with bodies and hashes.

    journal log --task ORCH-114
    journal log --kind parked --since 24h
    journal log --follow --json
    """
    import asyncio

    from integrations.cli.output import Output
    from integrations.cli.when import parse
    from journal.errors import InvalidInputError, UnknownTaskError
    from journal.names import shown
    from journal.words import Kind

    options = given(ctx)
    if kind and kind not in {k.value for k in Kind}:
        known = ", ".join(sorted(Kind))
        raise InvalidInputError(what=f"kind '{shown(kind)}'", why=f"unknown; known: {known}")
    out, path = Output(options), options.database()
    position, at_us = parse(since, "--since") if since.strip() else (0, 0)
    position = _print(out, path, task, kind, position or 0, at_us)
    if task and not follow and not _names(path, task):
        raise UnknownTaskError(task=shown(task))
    if follow:
        asyncio.run(_follow(out, path, task, kind, position, at_us))


def _print(out: Output, path: Path, task: str, kind: str, position: int, at_us: int) -> int:
    """Print what is there after a position; says how far it came."""
    from journal.log.offline import open_evidence

    with open_evidence(path) as db:
        for event in _events(db, task, kind, position, at_us):
            _tell(out, event)
        head = db.execute("SELECT coalesce(max(position), 0) FROM journal_events").fetchone()[0]
    return max(position, int(head))


def _names(path: Path, task: str) -> bool:
    """Whether any event names the task; one that is followed may still come."""
    from journal.log.offline import open_evidence

    with open_evidence(path) as db:
        return db.execute("SELECT 1 FROM journal_events WHERE task = ? LIMIT 1", (task,)).fetchone() is not None


def _events(db: sqlite3.Connection, task: str, kind: str, position: int, at_us: int) -> Iterator[Event]:
    """Short reads: a long one would keep the service's WAL from being reset (R89)."""
    from journal.log.rows import as_far_as_known
    from journal.log.schema import COLUMNS

    sql = (
        f"SELECT {COLUMNS} FROM journal_events WHERE position > ? AND at >= ?"  # noqa: S608
        f"{' AND task = ?' if task else ''}{' AND kind = ?' if kind else ''} ORDER BY position LIMIT ?"
    )
    filters = [value for value in (task, kind) if value]
    while rows := db.execute(sql, (position, at_us, *filters, CHUNK)).fetchall():
        for row in rows:
            yield as_far_as_known(row)
        position = rows[-1][0]


def _tell(out: Output, event: Event) -> None:
    if out.json:
        from projections.history import event_data

        out.line(event_data(event))
        return
    from integrations.cli.output import moment
    from projections.history import gist

    d = event.draft
    step = f" {d.step}#{d.attempt}" if d.step else ""
    where = f"{event.task or '-'} v{event.version} e{d.epoch}"
    out.say(f"{event.position:>6}  {moment(event.at)}  {where}  {event.kind.value}{step}  {d.actor}  {gist(event)}")


async def _follow(out: Output, path: Path, task: str, kind: str, position: int, at_us: int) -> None:
    """Look again whenever the files have changed, until interrupted."""
    from journal.clock import SystemClock
    from journal.errors import StoreUnavailableError

    clock, marks = SystemClock(), _marks(path)
    while True:
        await clock.sleep(POLL_S)
        if (now := _marks(path)) == marks:
            continue
        try:
            position = _print(out, path, task, kind, position, at_us)
        except StoreUnavailableError:
            continue  # a service is starting or stopping at this moment; the files change once more when it is done
        marks = now


def _marks(path: Path) -> tuple[tuple[int, int], ...]:
    found = []
    for name in (path, path.with_name(path.name + "-wal")):
        try:
            stat = name.stat()
        except OSError:
            found.append((0, 0))
        else:
            found.append((stat.st_size, stat.st_mtime_ns))
    return tuple(found)
