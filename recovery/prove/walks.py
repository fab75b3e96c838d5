"""
Seeded random walks: for pipelines too long to search to the end, with more misfortunes than a search could afford.

A walk says nothing by being quiet; what it finds is shortened until every move in it is needed, and can be replayed.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random  # noqa: TID251  (seeded, so that a walk can be walked again)

from recovery.prove.moves import Rules
from recovery.prove.replay import follow
from recovery.prove.world import Bounds, Config, Move, Violation, World

MAX_MOVES = 600
"""A walk is given up after as many; nearly all end long before."""

MISFORTUNE = (0.02, 0.1, 0.3)
"""How often a misfortune is chosen where one is possible; each walk has one of these, or few would get far."""

RARE = ("an operator pauses", "an operator asks to cancel", "an operator cancels", " gets lost", " gives up on ")
"""No misfortunes, but as frequent as other moves they would end most walks before anything has happened."""

ROUGH = Bounds(
    crash=4, suspicion=2, bad_probe=2, late=1, refusal=2, false_refusal=1, early_claim=1, external=1, power_cut=1,
    shut_gate=1, busy_lane=1, pause=1, cancel=1, retry=2, settle=2,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Walked:
    """What some walks found."""

    walks: int
    moves: int
    violation: str = ""
    trace: tuple[str, ...] = ()


def walk(cfg: Config, *, moves: int, seed: int) -> Walked:
    """Walk at random, again and again, until a violation is met or so many moves were made; a seed fixes the ways."""
    rules, walks, made = Rules(cfg), 0, 0
    while made < moves:
        trace, violation = _one(rules, Random(f"{seed}/{walks}"))  # noqa: S311  (no secret)
        walks, made = walks + 1, made + max(1, len(trace))
        if violation:
            return Walked(walks, made, violation, shortened(rules, trace))
    return Walked(walks, made)


def _one(rules: Rules, rng: Random) -> tuple[tuple[str, ...], str]:
    world, trace, rate = rules.cfg.start(), list[str](), rng.choice(MISFORTUNE)
    for _ in range(MAX_MOVES):
        try:
            move = _next(rules, world, rng, rate)
        except Violation as v:
            return (*trace, f"!! {v}"), str(v)
        if move is None:
            break
        trace.append(move[0])
        world = move[2]
    return tuple(trace), ""


def _next(rules: Rules, world: World, rng: Random, rate: float) -> Move | None:
    """
    Let somebody move. Who is drawn first, since to find every move of the world would cost many times as much.

    Raises:
        Violation: Whoever was drawn can get where no world may be.
    """
    movers, left = rules.movers(world), list[Move]()
    rng.shuffle(movers)
    for mover in movers:
        good, bad = list[Move](), list[Move]()
        for move in mover:
            if move[2] != world:  # a busy lock found busy would be every other move
                (bad if move[1] or any(words in move[0] for words in RARE) else good).append(move)
        if bad and rng.random() < rate:
            return rng.choice(bad)
        if good:
            return rng.choice(good)
        left += bad
    return rng.choice(left) if left else None


def shortened(rules: Rules, trace: tuple[str, ...]) -> tuple[str, ...]:
    """Leave out every move without which the violation is still met."""
    k = len(trace) - 2
    while k >= 0:
        shorter = (*trace[:k], *trace[k + 1 :])
        if _violates(rules, shorter):
            trace = shorter
        k = min(k, len(trace) - 1) - 1
    return trace


def _violates(rules: Rules, trace: tuple[str, ...]) -> bool:
    world = rules.cfg.start()
    try:
        for label in trace:
            after = follow(rules, world, label)
            if after is None:
                return False
            world = after
    except Violation:
        return True
    return False
