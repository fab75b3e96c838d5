"""
The audit of one task as `journal inspect` tells it: to a person, or as JSON with the keys of CONTRACT.

Apart from the command itself, so that it can be told without loading an option parser (P12).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from integrations.cli.given import Given
    from integrations.cli.output import Output
    from integrations.cli.reading import Audit
    from journal.events import Event, Owner

NEWEST = 2**63 - 1


def tell(options: Given, task: str, *, epoch: int | None = None, at: str = "", with_events: bool = False) -> int:
    """Print the audit of one task and return the exit code."""
    from integrations.cli.exits import NO, YES
    from integrations.cli.output import Output
    from integrations.cli.reading import audit
    from journal.errors import InvalidInputError
    from journal.log.offline import open_evidence

    out = Output(options)
    with open_evidence(options.database()) as db:
        found = audit(db, task, _position(db, at) if at else NEWEST)
    if epoch is not None and epoch > found.row.state.epoch:
        raise InvalidInputError(
            what=f"--epoch {epoch}", why=f"{found.row.task} has come to epoch {found.row.state.epoch}"
        )
    if out.json:
        out.document(as_data(found, epoch))
    else:
        _show(out, found, epoch, with_events=with_events)
    return YES if found.findings.intact else NO


def _position(db: sqlite3.Connection, at: str) -> int:
    from integrations.cli.when import position_in

    return position_in(db, at, "--at")


# -- JSON: the keys of CONTRACT, added to freely, none renamed -------------------------------------------------------


def as_data(found: Audit, epoch: int | None = None) -> dict[str, Any]:
    """The audit as `--json` prints it. Times are microseconds since 1970, UTC; 0 = never."""
    from recovery.account import account

    row, story = found.row, found.story

    def wanted(number: int) -> bool:
        return epoch is None or number == epoch

    return {
        "task": row.task,
        "repo": row.repo,
        "branch": row.branch,
        "base": row.base,
        "head": row.head,
        "pr": row.pr,
        "stage": row.state.stage,
        "generation": row.state.generation,
        "epoch": row.state.epoch,
        "version": row.version,
        "position": row.position,
        "owner": _owner(row.owner, row.actor) if row.state.owner else None,
        "status": row.status,
        "waiting_for": row.reason,
        "look_at": row.look_us,
        "verified": found.findings.intact,
        "violations": [asdict(v) for v in found.findings.violations],
        "events": [_event(e) for e in found.events if wanted(e.draft.epoch)],
        "stages": [asdict(s) for s in story.stages],
        "steps": [asdict(s) | {"evidence": dict(s.evidence)} for s in story.steps if wanted(s.epoch)],
        "epochs": [asdict(e) | {"owner": _owner(e.owner, e.actor)} for e in story.epochs if wanted(e.epoch)],
        "decisions": [
            asdict(d) | {"seen": dict(d.seen), "reply": dict(d.reply)} for d in story.decisions if wanted(d.epoch)
        ],
        "doubts": list(account(story)),
        "deferrals": found.deferrals,
        "reclaims": story.reclaims,
    }


def _owner(owner: Owner, actor: str) -> dict[str, Any]:
    return {"actor": actor, "run": owner.run, "instance": owner.instance, "host": owner.host, "pid": owner.pid}


def _event(event: Event) -> dict[str, Any]:
    from projections.history import event_data

    return event_data(event)


# -- for a person ----------------------------------------------------------------------------------------------------


def _show(out: Output, found: Audit, epoch: int | None, *, with_events: bool) -> None:
    from integrations.cli.output import lasted, moment, seen
    from recovery.account import account

    row, story = found.row, found.story

    def at(us: int) -> str:
        return moment(us, day_of_us=row.opened_us)

    out.say(f"{row.task}  {row.status}  in {row.state.stage or '?'}", "bold")
    about = f"{row.repo}  {row.branch} -> {row.base}" + (f"  PR {row.pr}" if row.pr else "")
    out.say(about + (f"  head {row.head[:12]}" if row.head else ""))
    out.say(f"opened {moment(row.opened_us)}, last event {moment(row.changed_us)} at position {row.position}")
    out.say(f"generation {row.state.generation}, epoch {row.state.epoch}, version {row.version}")
    if row.state.owner:
        out.say(f"owned by {_who(row.owner, row.actor)} since {moment(row.acquired_us)}")
    if row.reason:
        out.say(f"{row.status}: {row.reason}", row.status)
    if row.look_us:
        out.say(f"next look {moment(row.look_us)}")
    if epoch is None and (doubts := account(story)):
        out.head(f"What was in doubt, and what came of it ({len(doubts)})")
        for told in doubts:
            out.item(told)
    epochs = [e for e in story.epochs if epoch in (None, e.epoch)]
    out.head(f"Terms of ownership ({len(epochs)})")
    out.table(
        ("epoch", "edge", "owner", "began", "took", "ended", "note"),
        [
            (
                e.epoch, f"{e.from_stage} -> {e.to_stage}", _who(e.owner, e.actor), at(e.acquired_at),
                lasted(e.acquired_at, e.ended_at), e.ending or "open",
                f"took over from a term that was over: {e.cause}" if e.cause else e.reason,
            )
            for e in epochs
        ],
    )  # fmt: skip
    steps = [s for s in story.steps if epoch in (None, s.epoch)]
    out.head(f"Steps ({len(steps)})")
    out.table(
        ("epoch", "step", "tries", "began", "took", "outcome", "via", "evidence"),
        [
            (
                s.epoch, s.step, s.attempts, at(s.intended_at or s.settled_at), lasted(s.intended_at, s.settled_at),
                s.outcome, s.via, seen(s.evidence),
            )
            for s in steps
        ],
    )  # fmt: skip
    decisions = [d for d in story.decisions if epoch in (None, d.epoch)]
    if decisions:
        out.head(f"Decisions ({len(decisions)})")
        out.table(
            ("position", "epoch", "step", "journal", "world", "decided", "seen"),
            [
                (
                    d.position, d.epoch, f"{d.step}#{d.attempt}", d.row, d.fact, d.verdict,
                    seen(d.seen) + (f"  reply: {seen(d.reply)}" if d.reply else ""),
                )
                for d in decisions
            ],
        )  # fmt: skip
    _show_notes(out, found, epoch)
    if with_events:
        _show_events(out, [e for e in found.events if epoch in (None, e.draft.epoch)])
    out.console.print()
    deferred = ", ".join(f"{actor} {n}" for actor, n in found.deferrals.items()) or "none"
    reclaimed = ", ".join(f"{cause} {n}" for cause, n in story.reclaims.items()) or "none"
    out.say(f"deferrals: {deferred}; reclaims: {reclaimed}")
    _show_verified(out, found)


def _show_notes(out: Output, found: Audit, epoch: int | None) -> None:
    from integrations.cli.output import moment

    rows = [
        (e.position, moment(e.at), e.kind.value, e.draft.actor, e.draft.step, getattr(e.draft.body, "reason", ""))
        for e in _noted(found, epoch)
    ]
    if rows:
        out.head(f"People and alarms ({len(rows)})")
        out.table(("position", "at", "what", "by", "step", "reason"), rows)


def _noted(found: Audit, epoch: int | None) -> Iterator[Event]:
    from journal.words import OPERATOR_KINDS, Kind

    kinds = OPERATOR_KINDS | {Kind.PARKED, Kind.HAZARD_FOUND, Kind.HEAD_CHANGED}
    return (e for e in found.events if e.kind in kinds and epoch in (None, e.draft.epoch))


def _show_events(out: Output, events: list[Event]) -> None:
    from integrations.cli.output import moment

    out.head(f"Events ({len(events)})")
    out.table(
        ("position", "version", "at", "epoch", "kind", "step", "by", "body"),
        [
            (
                e.position, e.version, moment(e.at), e.draft.epoch, e.kind.value,
                f"{e.draft.step}#{e.draft.attempt}" if e.draft.step else "", e.draft.actor, e.body_text[:200],
            )
            for e in events
        ],
    )  # fmt: skip


def _show_verified(out: Output, found: Audit) -> None:
    if found.findings.intact:
        out.say(f"verified: {found.findings.events} events, hashes, links and invariants hold", "ok")
        return
    out.say(f"NOT verified: {found.findings.total} violations", "fault")
    for v in found.findings.violations:
        out.say(f"  position {v.position}  {v.invariant}  {v.detail}", "fault")


def _who(owner: Owner, actor: str) -> str:
    return f"{actor}@{owner.host or '?'}:{owner.pid or '?'}"
