"""`journal doctor`: everything a journal leans on, looked at; each finding with its remedy (R83-R91, S6, S9)."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from integrations.cli.given import given

if TYPE_CHECKING:
    from integrations.cli.output import Output


def doctor(
    ctx: typer.Context,
    unpoison: Annotated[
        bool, typer.Option("--unpoison", help="Verify the log; if it is whole, let it be written again.")
    ] = False,
) -> None:
    """
    Check file system, SQLite, permissions, budgets, tools and the log's own state. Exits 1 if anything is wrong.

    journal doctor
    journal doctor --unpoison
    """
    from integrations.cli.checks import FAULT, examine
    from integrations.cli.exits import NO, YES
    from integrations.cli.output import Output

    options = given(ctx)
    out = Output(options)
    if unpoison:
        raise typer.Exit(_unpoison(out, options.database()))
    found = examine(options)
    sick = any(f.level == FAULT for f in found)
    if out.json:
        out.document({"healthy": not sick, "findings": [asdict(f) for f in found]})
    else:
        out.table(("", "what", "found", "remedy"), [(f.level, f.what, f.found, f.remedy) for f in found])
        out.say("something must be mended" if sick else "healthy", "fault" if sick else "ok")
    raise typer.Exit(NO if sick else YES)


def _unpoison(out: Output, path: Path) -> int:
    """Only a log that verifies is written again; whoever holds it must let go first, since it remembers the error."""
    from integrations.cli.exits import LATER, NO, YES
    from integrations.cli.output import complain
    from journal.events import NOBODY
    from journal.locks import is_held, read_holder
    from journal.log import poison
    from journal.log.offline import open_evidence
    from journal.ownership import Locks
    from recovery.verify import verify

    reason = poison.reason(path)
    if not reason:
        _say(out, "there is no poison; nothing was done", lifted=False)
        return YES
    lock = Locks(path, NOBODY).writer_path()
    if is_held(lock):
        complain(f"{path}: {read_holder(lock)} still holds the journal; end it, then ask again")
        return LATER
    with open_evidence(path) as db:
        found = verify(db, deep=True)
    if not found.intact:
        first = found.violations[0]
        complain(f"{path}: not lifted, the log does not verify: position {first.position}, {first.detail}")
        return NO
    poison.lift(path)
    _say(out, f"the log verifies up to position {found.position}; '{reason}' was lifted", lifted=True)
    return YES


def _say(out: Output, text: str, *, lifted: bool) -> None:
    if out.json:
        out.document({"lifted": lifted, "why": text})
    else:
        out.say(text)
