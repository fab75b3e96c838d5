"""`journal verify`: proves that the log is whole and keeps the protocol, or names where it does not (A3)."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from integrations.cli.given import given

if TYPE_CHECKING:
    from pathlib import Path

    from integrations.cli.output import Output
    from journal.log.offline import Standing
    from journal.log.postgres.connect import Server
    from recovery.chain import Findings


def verify(
    ctx: typer.Context,
    task: Annotated[str, typer.Option("--task", "-t", help="Only this task's part.")] = "",
    head: Annotated[
        str,
        typer.Option("--head", help="POSITION:HASH written down earlier: proves that nothing was cut or rewritten."),
    ] = "",
    deep: Annotated[bool, typer.Option("--deep", help="Fold every view anew and let SQLite check its pages.")] = False,
) -> None:
    """
    Verify chain, order, triggers and invariants; name every violation. Exits 1 if there is one.

    journal verify
    journal --db copy.db verify --head 1204:9f86d081884c7d65...
    journal verify --task ORCH-114
    """
    from integrations.cli.exits import NO, YES
    from integrations.cli.output import Output
    from journal.errors import InvalidInputError
    from journal.log.offline import open_evidence, standing

    options = given(ctx)
    out, path = Output(options), options.database()
    if task and head:
        raise InvalidInputError(
            what="--head with --task", why="a head is about the whole log; verify it without --task"
        )
    lying, server = standing(path), options.server()
    with open_evidence(path) as db:
        findings = _task(db, task) if task else _whole(out, db, head or _written_down(path), deep=deep)
        if server is not None and not task:
            _compare(db, server, findings)
    _show(out, path, findings, task, lying, anchored=bool(head) or server is not None)
    raise typer.Exit(YES if findings.intact else NO)


def _compare(db: Any, server: Server, findings: Findings) -> None:
    """The copy was verified; the server must hold the same rows, byte for byte."""
    from integrations.following import first_difference
    from recovery.invariants import Violation

    if position := first_difference(db, server):
        findings.add(Violation(position, "I1", f"stands otherwise on {server.shown} than in this host's copy"))
        findings.violations.sort(key=lambda violation: violation.position)


def _task(db: Any, task: str) -> Findings:
    from journal.errors import UnknownTaskError
    from journal.names import shown
    from recovery.verify import verify_task

    findings = verify_task(db, task)
    if not findings.events:
        raise UnknownTaskError(task=shown(task))
    return findings


def _written_down(path: Path) -> str:
    """The head that a service wrote down beside the journal; "" if none did."""
    from journal.log import anchor

    found = anchor.read(path)
    return f"{found.position}:{found.hash}" if found else ""


def _whole(out: Output, db: Any, head: str, *, deep: bool) -> Findings:
    from projections import all_views
    from recovery.verify import Head
    from recovery.verify import verify as check

    anchor = Head.parse(head) if head else None
    showing = not out.json and out.terminal
    with out.console.status("verifying") if showing else nullcontext() as status:

        def progress(position: int, end: int) -> None:
            if status is not None:
                status.update(f"verifying {position} of {end}")

        return check(db, head=anchor, projections=all_views(), deep=deep, progress=progress)


def _show(out: Output, path: Path, found: Findings, task: str, lying: Standing, *, anchored: bool) -> None:
    note = _note(lying, anchored=anchored)
    if out.json:
        out.document(
            {
                "verified": found.intact,
                "task": task,
                "position": found.position,
                "hash": found.hash,
                "head": f"{found.position}:{found.hash}",
                "events": found.events,
                "anchored": anchored,
                "read": lying.value,
                "note": note,
                "total": found.total,
                "first": asdict(found.violations[0]) if found.violations else None,
                "violations": [asdict(v) for v in found.violations],
            }
        )
        return
    if found.intact:
        out.say(f"verified: {found.events} events of {task or path}; chain, order, guards and invariants hold", "ok")
    else:
        first = found.violations[0]
        where = f"position {first.position}" if first.position else "the file"
        out.say(f"NOT verified: {found.total} violations, the first at {where}", "fault")
        out.table(
            ("position", "rule", "task", "what"),
            [(v.position or "file", v.invariant, v.task, v.detail) for v in found.violations],
        )
        if found.total > len(found.violations):
            out.say(f"and {found.total - len(found.violations)} more")
    if not task and found.position:
        out.say(f"head {found.position}:{found.hash}")
    if note:
        out.say(note, "note")


def _note(lying: Standing, *, anchored: bool) -> str:
    from journal.log.offline import Standing

    if lying is Standing.AT_REST and not anchored:
        return (
            "No -wal lies beside the file. If this is a copy that was taken without it, newer events are missing, and "
            "the copy cannot tell; --head POSITION:HASH can."
        )
    return ""
