"""`journal queue`: what is open, who holds what, what is parked; now, or as of an earlier point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from integrations.cli.given import given

if TYPE_CHECKING:
    from integrations.cli.output import Output

LIMIT = 1000


def queue(
    ctx: typer.Context,
    repo: Annotated[str, typer.Option("--repo", help="Only this repository's tasks.")] = "",
    limit: Annotated[int, typer.Option("--limit", help="At most this many tasks.", min=1, max=100_000)] = LIMIT,
) -> None:
    """
    Show the queue: open tasks by stage, owners, what is parked and why. Offline, from the journal's file.

    journal queue
    journal queue --repo acme/widgets --json
    """
    import orjson

    from integrations.cli.output import Output
    from journal.clock import SystemClock
    from journal.log.offline import open_evidence
    from projections.base import answer
    from projections.queue import snapshot

    options = given(ctx)
    out, path, now_us = Output(options), options.database(), SystemClock().now_us()
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


def _show(out: Output, data: dict[str, Any], now_us: int, limit: int) -> None:
    from integrations.cli.output import lasted

    counts = ", ".join(f"{stage} {n}" for stage, n in data["counts"].items()) or "nothing is open"
    out.say(f"position {data['position']}; {counts}")
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
