"""`journal queue`: what is open, who holds what, what is parked; now, or as of an earlier point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from integrations.cli.given import given

if TYPE_CHECKING:
    from pathlib import Path

    from integrations.cli.output import Output

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

    if at and diff:
        raise InvalidInputError(what="--at with --diff", why="ask for one of the two")
    with open_evidence(path) as db:
        option = "--diff" if diff else "--at"
        pages = [_page(db, position_in(db, point, option), repo, limit) for point in (diff or (at,))]
    if diff is None:
        (page,) = pages
        if out.json:
            out.document(page)
        else:
            out.say(f"as of position {page['position']}; {_counts(page['counts'])}")
            rows = [(t["task"], t["repo"], t["stage"], t["status"], _who(t["owner"])) for t in page["tasks"]]
            out.table(("task", "repo", "stage", "status", "owner"), rows)
        return
    changes = _changes(*pages)
    if out.json:
        out.document({"from": pages[0]["position"], "to": pages[1]["position"], "changes": changes})
    else:
        out.say(f"from position {pages[0]['position']} to {pages[1]['position']}: {len(changes)} tasks differ")
        columns = ("task", "change", "before", "after")
        out.table(columns, [tuple(change[name] for name in columns) for change in changes])


def _page(db: Any, position: int, repo: str, limit: int) -> dict[str, Any]:
    import orjson

    from projections.as_of import queue_at_offline

    found = queue_at_offline(db, position, limit=limit, repo=repo)
    return {"position": found.position, "counts": found.counts, "tasks": [orjson.loads(task) for task in found.tasks]}


def _changes(before: dict[str, Any], after: dict[str, Any]) -> list[dict[str, str]]:
    """Per task that differs: opened, ended, moved (stage), or changed (status)."""
    old, new = ({t["task"]: t for t in page["tasks"]} for page in (before, after))
    changes = []
    for task in sorted(old.keys() | new.keys()):
        was, now = _state(old.get(task)), _state(new.get(task))
        if was != now:
            moved = task in old and task in new and old[task]["stage"] != new[task]["stage"]
            change = "opened" if task not in old else "ended" if task not in new else "moved" if moved else "changed"
            changes.append({"task": task, "change": change, "before": was, "after": now})
    return changes


def _state(task: dict[str, Any] | None) -> str:
    return f"{task['stage']} {task['status']}" if task else ""


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
