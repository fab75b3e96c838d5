"""`journal queue`: what is open, who holds what, what is parked; now, or as of an earlier point."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from integrations.cli.given import given

if TYPE_CHECKING:
    from pathlib import Path

    from integrations.cli.output import Output
    from projections.differences import Difference

LIMIT = 1000


def queue(
    ctx: typer.Context,
    repo: Annotated[str, typer.Option("--repo", help="Only this repository's tasks.")] = "",
    limit: Annotated[int, typer.Option("--limit", help="At most this many tasks.", min=1, max=100_000)] = LIMIT,
    at: Annotated[str, typer.Option("--at", help="As of this position, or of a time: 2026-01-31T12:00:00Z, 2h.")] = "",
    diff: Annotated[
        tuple[str, str] | None, typer.Option("--diff", help="What changed between two positions or times.")
    ] = None,
) -> None:
    """
    Show the queue: open tasks by stage, owners, what is parked and why. Offline, from the journal's file.

    journal queue
    journal queue --repo acme/widgets --json
    journal queue --at 2h
    journal queue --diff 1200 1450
    """
    import orjson

    from integrations.cli.output import Output
    from journal.clock import SystemClock
    from journal.log.offline import open_evidence
    from projections.base import answer
    from projections.queue import snapshot

    options = given(ctx)
    out, path, now_us = Output(options), options.database(), SystemClock().now_us()
    if at or diff:
        _tell_earlier(out, path, repo, limit, at, diff)
        return
    with open_evidence(path) as db:
        found = answer(db, snapshot(now_us, limit, repo=repo))
    data: dict[str, Any] = {
        "position": found.position,
        "counts": orjson.loads(found.counts),
        "tasks": orjson.loads(found.page.tasks),
        "jobs": {"due": found.due, "waiting": found.waiting},
        "transition_ownership": {
            "enabled": True,
            "held": orjson.loads(found.held),
            "deferred": orjson.loads(found.deferred),
            "reclaims": found.reclaims,
            "parked": orjson.loads(found.parked),
        },
    }
    if out.json:
        out.document(data)
    else:
        _show(out, data, now_us, limit)


def _tell_earlier(out: Output, path: Path, repo: str, limit: int, at: str, diff: tuple[str, str] | None) -> None:
    """The queue as of an earlier point, or the difference between two."""
    from integrations.cli.when import position_in
    from journal.errors import InvalidInputError
    from journal.log.offline import open_evidence
    from projections.differences import difference_offline

    if at and diff:
        raise InvalidInputError(what="--at with --diff", why="ask for one of the two")
    with open_evidence(path) as db:
        if diff is not None:
            one, other = (position_in(db, point, "--diff") for point in diff)
            _tell_difference(out, difference_offline(db, one, other, limit=limit, repo=repo))
            return
        page = _page(db, position_in(db, at, "--at"), repo, limit)
    if out.json:
        out.document(page)
        return
    out.say(f"as of position {page['position']}; {_counts(page['counts'])}")
    if not page["position"]:
        out.say("That is before the first event: nothing had happened yet.")
    rows = [(t["task"], t["repo"], t["stage"], t["status"], _who(t["owner"])) for t in page["tasks"]]
    out.table(("task", "repo", "stage", "status", "owner"), rows)


def _tell_difference(out: Output, found: Difference) -> None:
    """The tasks that differ, and how."""
    if out.json:
        changes = [asdict(change) for change in found.changes]
        out.document({"from": found.earlier, "to": found.later, "changes": changes, "left_out": found.left_out})
        return
    out.say(f"from position {found.earlier} to {found.later}: {len(found.changes)} tasks differ")
    if found.left_out:
        out.say(f"{found.left_out} more had events in between; ask with a larger --limit", "note")
    out.table(("task", "change", "before", "after"), [(c.task, c.change, c.before, c.after) for c in found.changes])


def _page(db: Any, position: int, repo: str, limit: int) -> dict[str, Any]:
    import orjson

    from projections.as_of import queue_at_offline

    found = queue_at_offline(db, position, limit=limit, repo=repo)
    return {"position": found.position, "counts": found.counts, "tasks": [orjson.loads(task) for task in found.tasks]}


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{stage} {n}" for stage, n in counts.items()) or "nothing is open"


def _show(out: Output, data: dict[str, Any], now_us: int, limit: int) -> None:
    from integrations.cli.output import lasted

    out.say(f"position {data['position']}; {_counts(data['counts'])}")
    tasks = data["tasks"]
    if tasks:
        out.head(f"Open tasks ({len(tasks)}{' or more' if len(tasks) == limit else ''})")
        rows = [
            (
                t["task"], t["repo"], t["stage"], t["status"], _who(t["owner"]), t["step"] or "",
                lasted(t["stage_since_us"], now_us), t["waiting_for"] or (t["parked"] or {}).get("reason", ""),
            )
            for t in tasks
        ]  # fmt: skip
        out.table(("task", "repo", "stage", "status", "owner", "step", "in stage", "why"), rows)
    block = data["transition_ownership"]
    deferred = ", ".join(f"{actor} {n}" for actor, n in block["deferred"].items()) or "none"
    reclaims = ", ".join(f"{cause} {n}" for cause, n in block["reclaims"].items() if n) or "none"
    out.say(f"held {len(block['held'])}, parked {len(block['parked'])}, due {data['jobs']['due']}, waiting "
            f"{data['jobs']['waiting']}; deferrals: {deferred}; reclaims: {reclaims}")  # fmt: skip


def _who(owner: dict[str, Any] | None) -> str:
    return f"{owner['actor']}@{owner['host'] or '?'}:{owner['pid'] or '?'}" if owner else ""
