"""What the board is made of, asked of the service: as it is now, and as it was at an earlier position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from integrations.http.context import lives
from integrations.http.ports import Service
from integrations.http.tasks import history_of
from integrations.page.board import ATTENTION, COLUMN, EXPLAINED, Attention, Board, Column, Tile, attention, columns
from integrations.page.verbs import verbs_for
from projections.as_of import events_until, queue_at, row_of
from projections.base import Question, ask
from projections.board import columns as first_of_each
from projections.board import doubtful, parked
from projections.events import head, time_of
from projections.history import tell
from projections.queue import all_tasks, ended_count, snapshot
from recovery.explain import explain

ENDED = 20
"""Ended tasks on the board, the newest."""

EARLIER = 200
"""Open tasks of an earlier board: each is folded from its events; the rest is a page of its own."""


async def board_now(service: Service, repo: str) -> Board:
    """The board of this moment."""
    now_us = service.clock.now_us()
    seen = await ask(service.reader, snapshot(now_us, 1, repo=repo))
    owners = [each | _owning(service, each, now_us) for each in orjson.loads(seen.held)]
    tasks = await listing(service, first_of_each(COLUMN, repo))
    ended = orjson.loads((await ask(service.reader, all_tasks(ENDED, repo=repo, status="done"))).tasks)
    doubts = await listing(service, doubtful(ATTENTION, repo))
    left = await listing(service, parked(ATTENTION, repo))
    counts: dict[str, int] = orjson.loads(seen.counts)
    ended_number = await ask(service.reader, ended_count())
    noticed = attention(left, doubts, owners)
    return Board(
        position=seen.position,
        now_us=now_us,
        tiles=_tiles(counts, owners, len(doubts), len(orjson.loads(seen.parked)), seen.due, seen.waiting, ended_number),
        attention=[
            await _explained(service, each, now_us) if place < EXPLAINED else each
            for place, each in enumerate(noticed[:ATTENTION])
        ],
        more_attention=len(noticed) > ATTENTION,
        owners=owners,
        columns=columns(service.pipeline.stages, counts, tasks, ended, ended_number),
        repos=_repos(tasks, repo),
        repo=repo,
    )


async def listing(service: Service, question: Question[bytes]) -> list[dict[str, Any]]:
    """The tasks that answer a question."""
    stored = await ask(service.reader, question)
    tasks: list[dict[str, Any]] = orjson.loads(stored)
    return tasks


def _owning(service: Service, held: Mapping[str, Any], now_us: int) -> dict[str, Any]:
    """Whether an owner lives, and since when it owns in a form that ages by itself."""
    alive = lives(service, held["task"], held["owner"]["instance"] if held["owner"] else "")
    return {"alive": alive, "since_us": now_us - held["age_s"] * 1_000_000}


def _tiles(
    counts: Mapping[str, int],
    owners: Sequence[Mapping[str, Any]],
    doubts: int,
    parked_number: int,
    due: int,
    waiting: int,
    ended: int,
) -> list[Tile]:
    gone = sum(not each["alive"] for each in owners)
    return [
        Tile("open", sum(counts.values())),
        Tile("owned", len(owners), "accent"),
        Tile("due", due),
        Tile("waiting", waiting),
        Tile("in doubt", doubts + gone, "warn"),
        Tile("parked", parked_number, "bad"),
        Tile("ended", ended, "ok"),
    ]


def _repos(tasks: Sequence[Mapping[str, Any]], repo: str) -> list[str]:
    names_of = sorted({str(t["repo"]) for t in tasks} | ({repo} if repo else set()))
    return names_of if len(names_of) > 1 or repo else []


async def _explained(service: Service, noticed: Attention, now_us: int) -> Attention:
    events = await history_of(service, noticed.task)
    row = row_of(noticed.task, events)
    alive = lives(service, noticed.task, row.owner.instance)
    told = explain(row, tell(events), now_us=now_us, held=alive)
    return replace(noticed, explained=told, verbs=verbs_for(noticed.task, row.state, alive=alive))


# -- as it was --------------------------------------------------------------------------------------------------------


async def board_at(service: Service, position: int, repo: str, after: int) -> Board:
    """
    The board as of a position: what the journal knew then. Whether an owner lived is not known any more.

    Args:
        service: Whose log.
        position: Everything up to it, it included, had happened.
        repo: Of this repository only; empty = all.
        after: `Board.more` of the page before; 0 = from the beginning.
    """
    then_us = await ask(service.reader, time_of(position))
    page = await queue_at(service.reader, position, limit=EARLIER, cursor=after, repo=repo)
    tasks = [orjson.loads(task) for task in page.tasks]
    owners = [task | {"since_us": task["acquired_us"], "alive": None} for task in tasks if task["owner"]]
    left = [task for task in tasks if task["parked"]]
    doubts = [task for task in tasks if task["in_doubt"] and not task["owner"] and not task["parked"]]
    noticed = attention(left, doubts, ())[:ATTENTION]
    found = columns(service.pipeline.stages, page.counts, tasks, (), 0)[:-1]
    tiles = [Tile("open", sum(page.counts.values()))]
    if not page.cursor and not after:  # else these would be the figures of one page
        tiles += [Tile("owned", len(owners), "accent"), Tile("in doubt", len(doubts), "warn")]
        tiles += [Tile("parked", len(left), "bad")]
    return Board(
        position=position,
        now_us=then_us,
        tiles=tiles,
        attention=[await _explained_at(service, each, position, then_us) for each in noticed[:EXPLAINED]]
        + noticed[EXPLAINED:],
        more_attention=False,
        owners=owners,
        columns=[Column(c.stage, c.count, c.tasks) for c in found],
        repos=_repos(tasks, repo),
        repo=repo,
        past=True,
        more=page.cursor,
        later=position + 1 if position < await ask(service.reader, head()) else 0,
    )


async def _explained_at(service: Service, noticed: Attention, position: int, then_us: int) -> Attention:
    events = await ask(service.reader, events_until(noticed.task, position))
    return replace(noticed, explained=explain(row_of(noticed.task, events), tell(events), now_us=then_us))
