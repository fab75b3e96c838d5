"""The board as a template draws it: figures, what needs a look, owners, stages; pure."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from integrations.page.verbs import Verb
from recovery.explain import Explanation

Task = Mapping[str, Any]
"""A task in the words of `projections.queue.TASK_JSON`."""

COLUMN = 100
"""Cards of one stage; the rest is a page of its own."""

EXPLAINED = 12
"""Tasks whose whole stream is read for an explanation; the others show their reason."""

ATTENTION = 60
"""Tasks among those that need a look."""


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure."""

    label: str
    number: int
    look: str = ""


@dataclass(frozen=True, slots=True)
class Attention:
    """A task that somebody should look at."""

    task: str
    why: str  # parked, in_doubt, gone
    stage: str
    since_us: int
    reason: str
    version: int
    explained: Explanation | None = None
    verbs: tuple[Verb, ...] = ()


@dataclass(frozen=True, slots=True)
class Column:
    """One stage."""

    stage: str
    count: int
    tasks: Sequence[Task]
    more: int = 0  # cursor


@dataclass(frozen=True, slots=True)
class Board:
    """Everything on the first page."""

    position: int
    now_us: int
    tiles: Sequence[Tile]
    attention: Sequence[Attention]
    more_attention: bool
    owners: Sequence[Mapping[str, Any]]
    columns: Sequence[Column]
    repos: Sequence[str] = field(default=())
    repo: str = ""
    past: bool = False  # as of `position`, and `now_us` is its time
    more: int = 0  # cursor of the next page of an earlier board
    later: int = 0  # the position behind an earlier board's; 0 = the log ends with it

    def mark(self, part: object) -> str:
        """What changes when a part does, and not with its ages: a listener replaces nothing else."""
        return f"{zlib.crc32(orjson.dumps(part, default=_plain)):08x}"


def _plain(value: object) -> object:
    if isinstance(value, Attention):
        return [value.task, value.why, value.version]
    raise TypeError


def attention(parked: Sequence[Task], doubtful: Sequence[Task], owners: Sequence[Mapping[str, Any]]) -> list[Attention]:
    """What needs a look: parked first, then doubts nobody is near, then owners whose lock is free with one open."""
    found = [
        Attention(t["task"], "parked", t["stage"], t["parked"]["since_us"], t["parked"]["reason"], t["version"])
        for t in parked
    ]
    found += [
        Attention(t["task"], "in_doubt", t["stage"], t["changed_us"], t["waiting_for"], t["version"]) for t in doubtful
    ]
    found += [
        Attention(o["task"], "gone", o["from_stage"], o["since_us"], "its owner is gone", o["epoch"])
        for o in owners
        if not o["alive"]
    ]
    return found


def columns(
    stages: Sequence[str], counts: Mapping[str, int], tasks: Sequence[Task], ended: Sequence[Task], ended_count: int
) -> list[Column]:
    """
    The stages in the pipeline's order, those it no longer knows behind them, the ended tasks last.

    Args:
        stages: Of the pipeline.
        counts: Open tasks by stage.
        tasks: The first open tasks of every stage, by stage entry.
        ended: The newest ended ones.
        ended_count: How many ended ones there are.
    """
    by_stage: dict[str, list[Task]] = {}
    for task in tasks:
        by_stage.setdefault(task["stage"], []).append(task)
    known = [*stages, *sorted(set(counts) - set(stages))]
    made = []
    for stage in known:
        held = by_stage.get(stage, [])
        count = counts.get(stage, 0)
        if stage == known[len(stages) - 1] and not count:
            continue  # the last stage holds ended tasks only; they have a column of their own
        made.append(Column(stage, count, held, held[-1]["stage_position"] if count > len(held) > 0 else 0))
    return [*made, Column("ended", ended_count, ended)]
