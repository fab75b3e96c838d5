"""
A schedule as a file, followed again move by move, and told as a story (`journal prove --replay FILE`).

The file holds the edges as they were explored, so it can be replayed without the pipeline it came from.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from journal.errors import InvalidInputError
from journal.plan import plan_data, plan_from_data
from journal.words import Guard
from recovery.prove.moves import Rules
from recovery.prove.telling import ROLES, in_words
from recovery.prove.world import Bounds, Config, Violation, World

VERSION = 1
STUCK = "stuck"


@dataclass(frozen=True, slots=True)
class Schedule:
    """A configuration and the labels of the moves to make in it."""

    cfg: Config
    moves: tuple[str, ...]

    @property
    def stuck(self) -> bool:
        """Whether it leads to a world from which no end can be reached, and to nothing forbidden."""
        return bool(self.moves) and self.moves[-1] == f"!! {STUCK}"

    def to_text(self) -> str:
        """Write it as JSON; engine and doubt table are the program's own and not part of it."""
        cfg = self.cfg
        data = {
            "version": VERSION,
            "edges": [plan_data(p) for p in cfg.plans],
            "bounds": {name: n for name, n in cfg.bounds._asdict().items() if n},
            "actors": cfg.actors,
            **{name: getattr(cfg, name) for name in _SWITCHES},
            **({"hosts": True} if cfg.hosts else {}),
            "really": {name: str(guard) for name, guard in cfg.really},
            "moves": list(self.moves),
        }
        return json.dumps(data, indent=2) + "\n"


_SWITCHES = ("reduced", "reconciles", "compares", "full_sync", "lock_holds", "deploy_kills", "floor")


def read_schedule(text: str) -> Schedule:
    """
    Read back `Schedule.to_text`.

    Raises:
        InvalidInputError: It is no schedule of this program.
    """
    try:
        data: dict[str, Any] = json.loads(text)
        if data["version"] != VERSION:
            raise InvalidInputError(what="replay file", why=f"version {data['version']} is not {VERSION}")
        switches: dict[str, Any] = {name: bool(data[name]) for name in _SWITCHES}
        plans = tuple(plan_from_data(p) for p in data["edges"])
        switches["hosts"] = data.get("hosts") is True
        really = tuple((str(name), Guard(word)) for name, word in data.get("really", {}).items())
        cfg = Config(plans, Bounds(**data["bounds"]), int(data["actors"]), really=really, **switches)
        return Schedule(cfg, tuple(map(str, data["moves"])))
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise InvalidInputError(what="replay file", why=f"not a schedule of `journal prove`: {e!r}") from e


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a schedule led to."""

    story: tuple[str, ...]  # a line for each move, with what it changed
    violation: str = ""  # "" = none
    lost: str = ""  # the first move that is not possible, "" = all were made
    ending: str = ""  # how the task stands if it is over
    effects: dict[str, bool] = field(default_factory=dict)  # step -> whether it is in the world


def replay(schedule: Schedule) -> Replayed:
    """Make the moves of a schedule, in order, until one is not possible or leads where no world may be."""
    rules, world, story = Rules(schedule.cfg), schedule.cfg.start(), list[str]()
    violation = lost = ""
    for label in schedule.moves:
        try:
            after = follow(rules, world, label)
        except Violation as v:
            violation = str(v)
            story.append(f"!! {violation}")
            break
        if after is None:
            lost = "" if label.startswith("!!") else label
            break
        story.append(in_words(label) + changes(rules, world, after))
        world = after
    effects = {s.name: world.sides[n].there for n, s in enumerate(rules.steps)}
    ending = rules.ending(world) if rules.over(world) else ""
    return Replayed(tuple(story), violation, lost, ending, effects)


def follow(rules: Rules, world: World, label: str) -> World | None:
    """
    Make the move of this name; None if there is none.

    Raises:
        Violation: The move called "!!" is asked for, and the world has one.
    """
    moves = rules.moves(world)
    while True:
        try:
            move = next(moves, None)
        except Violation:
            if label.startswith("!!"):
                raise
            return None
        if move is None or move[0] == label:
            return move[2] if move else None


def changes(rules: Rules, before: World, after: World) -> str:
    """What a move changed that a person cares about."""
    told = []
    for n, step in enumerate(rules.steps):
        if after.sides[n].there and not before.sides[n].there:
            told.append(f"{step.name} is in the world")
    if after.task.stage != before.task.stage:
        told.append(f"stage {after.task.stage}")
    if after.task.owner != before.task.owner:
        told.append(f"owner {ROLES.get(after.task.owner[:1], 'nobody')}, epoch {after.task.epoch}")
    if after.task.hold != before.task.hold:
        told.append(str(after.task.hold) or "free again")
    return f"  -> {', '.join(told)}" if told else ""
