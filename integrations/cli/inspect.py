"""`journal inspect` and `journal explain`: what happened to one task, offline and without a trace (A5, DC-4)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from integrations.cli.given import given

if TYPE_CHECKING:
    from integrations.cli.given import Given
    from integrations.cli.reading import Audit

NEWEST = 2**63 - 1


def inspect(
    ctx: typer.Context,
    task: Annotated[str, typer.Argument(help="The task's id.")],
    epoch: Annotated[int | None, typer.Option(help="Only what happened in this term of ownership.", min=0)] = None,
    at: Annotated[str, typer.Option("--at", help="As of this position, or of a time: 2026-01-31T12:00:00Z, 2h.")] = "",
    events: Annotated[bool, typer.Option("--events", help="List every event, too.")] = False,
) -> None:
    """
    Audit one task: stages, epochs, owners, steps, evidence, decisions.

    Read-only: works while the service runs, after a crash, and on a copy. Exits 1 if the task's part of the log does
    not verify.

    journal inspect ORCH-114
    journal --db /evidence/journal.db inspect ORCH-114 --events
    journal inspect ORCH-114 --at 2026-01-31T12:00:00Z
    journal inspect ORCH-114 --epoch 7 --json | jq .decisions
    """
    from integrations.cli.audit import tell

    raise typer.Exit(tell(given(ctx), task, epoch=epoch, at=at, with_events=events))


def explain(ctx: typer.Context, task: Annotated[str, typer.Argument(help="The task's id.")]) -> None:
    """
    Say why a task is where it is: what it waits for, what happens next, the decision that was made and why.

    journal explain ORCH-114
    """
    from integrations.cli.output import Output, lasted
    from integrations.cli.reading import audit
    from journal.clock import SystemClock
    from journal.log.offline import open_evidence
    from recovery.explain import explain as explained

    options = given(ctx)
    out, db = Output(options), options.database()
    with open_evidence(db) as connection:
        found = audit(connection, task, NEWEST)
    told = explained(
        found.row, found.story, now_us=SystemClock().now_us(), held=_held(db, task), advance=_mode(options, db, found)
    )
    if out.json:
        out.document(asdict(told) | {"facts": dict(told.facts), "paragraph": told.paragraph})
        return
    out.say(told.paragraph)
    if told.doubts:
        out.head(f"What was in doubt, and what came of it ({len(told.doubts)})")
        for doubt in told.doubts:
            out.item(doubt)
    if told.fired is None or told.decision is None:
        out.say("No decision about a doubt was ever needed.")
        return
    d = told.decision
    out.head(f"Last decision, at position {d.position}: {d.step}, attempt {d.attempt}, epoch {d.epoch}, by {d.actor}")
    out.say(f"{d.row} x {d.fact} ({d.guard}) -> {d.verdict}")
    source = str(dict(d.seen).get("source", "the probe"))
    out.say(f"asked: {source}, {lasted(d.at, d.at + told.decision_age_s * 1_000_000)} ago")
    facts = [(name, value, source) for name, value in d.seen if name != "source"]
    facts += [(name, value, "the attempt's own reply") for name, value in d.reply]
    if facts:
        out.table(("fact", "value", "source"), facts)
    out.head("Rows that did not fire")
    out.table(("row", "fact", "would be", "why not"), [(c.row, c.fact, c.verdict, c.why) for c in told.others])


def _held(db: Path, task: str) -> bool | None:
    """Whether the task's lock is held; None where the locks do not lie beside the file (a copy)."""
    from journal.events import NOBODY
    from journal.ownership import Locks, lock_folder

    return Locks(db, NOBODY).is_held(task) if lock_folder(db).is_dir() else None


def _mode(options: Given, db: Path, found: Audit) -> str:
    """How the edge that leaves the stage is moved over; empty if the file is not the configuration's own."""
    from journal.errors import JournalError

    with suppress(JournalError):
        settings = options.settings()
        if settings.db == db:
            edges = settings.values.pipeline.edges
            return next((edge.advance for edge in edges if edge.source == found.row.state.stage), "")
    return ""
