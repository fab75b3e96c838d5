"""`journal projections`: how far the views reach, and making them anew from the log."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from integrations.cli.given import given

if TYPE_CHECKING:
    from integrations.cli.output import Output


class Verb(StrEnum):
    """What can be done with views."""

    STATUS = "status"
    REBUILD = "rebuild"


def projections(ctx: typer.Context, verb: Annotated[Verb, typer.Argument(help="What to do.")] = Verb.STATUS) -> None:
    """
    Show where the views stand, or make them anew. Views hold no truth: a rebuild loses nothing.

    journal projections
    journal projections rebuild
    """
    from integrations.cli.output import Output

    options = given(ctx)
    out, path = Output(options), options.database()
    if verb is Verb.REBUILD:
        _rebuild(out, path, follows=options.server() is not None)
    _status(out, path)


def _status(out: Output, path: Path) -> None:
    from journal.log.offline import open_evidence
    from projections import all_views
    from projections.base import answer, checkpoints

    with open_evidence(path) as db:
        found = answer(db, checkpoints())
    versions = {view.name: view.version for view in all_views()}
    if out.json:
        views: list[dict[str, Any]] = [
            asdict(c) | {"lag": c.lag, "stale": c.version != versions.get(c.name, c.version)} for c in found
        ]
        out.document({"views": views, "missing": sorted(set(versions) - {c.name for c in found})})
        return
    rows: list[tuple[object, ...]] = [
        (c.name, c.version, c.position, c.head, c.lag, _state(c.lag, c.version, versions.get(c.name))) for c in found
    ]
    rows += [(name, version, 0, "", "", "missing: the next writer makes it") for name, version in versions.items()
             if name not in {c.name for c in found}]  # fmt: skip
    out.table(("view", "version", "position", "head", "lag", "state"), rows)


def _state(lag: int, version: int, known: int | None) -> str:
    if known is None:
        return "unknown to this program"
    if version != known:
        return f"of version {version}, this program's is {known}: the next writer makes it anew"
    return "ok" if not lag else "behind: the next writer brings it up" if lag > 0 else "of another log: rebuild it"


def _rebuild(out: Output, path: Path, *, follows: bool) -> None:
    """Under the writer lock, since only the one writer may write."""
    from rich.progress import Progress

    from journal.clock import SystemIds, this_process
    from journal.errors import NotWriterError, StoreUnavailableError
    from journal.locks import read_holder
    from journal.log.connection import open_writer
    from journal.ownership import Locks
    from journal.projection import catch_up
    from projections import all_views

    if not path.exists():
        raise StoreUnavailableError(path=str(path), why="no such file", remedy="`journal init` creates a journal")
    locks = Locks(path, this_process(SystemIds().instance()))
    lock = locks.take_writer("rebuild")
    if lock is None:
        raise NotWriterError(path=str(path), holder=str(read_holder(locks.writer_path())))
    try:
        db = open_writer(path, follows=follows)
        try:
            with Progress(console=out.console, disable=out.json or not out.terminal, transient=True) as bar:
                job = bar.add_task("rebuilding")
                catch_up(
                    db,
                    all_views(),
                    rebuild=True,
                    progress=lambda position, head: bar.update(job, completed=position, total=head),
                )
        finally:
            db.close()
    finally:
        lock.release()
    if not out.json:
        out.say("every view was made anew from the log", "ok")
