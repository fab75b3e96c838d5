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

MISFORTUNE = 0.15
"""How often a misfortune is chosen where one is possible."""

RARE = frozenset({"an operator pauses", "an operator asks to cancel", "an operator cancels"})
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


def walk(cfg: Config, *, walks: int, seed: int) -> Walked:
    """Walk at random until a violation is met or all walks are done; the same seed walks the same ways."""
    rules, moves = Rules(cfg), 0
    for n in range(walks):
        trace, violation = _one(rules, Random(f"{seed}/{n}"))  # noqa: S311  (no secret)
        moves += len(trace)
        if violation:
            return Walked(n + 1, moves, violation, shortened(rules, trace))
    return Walked(walks, moves)


def _one(rules: Rules, rng: Random) -> tuple[tuple[str, ...], str]:
    world, trace = rules.cfg.start(), list[str]()
    for _ in range(MAX_MOVES):
        moves, violation = _possible(rules, world)
        if violation and (not moves or rng.random() < 1 / (len(moves) + 1)):
            return (*trace, f"!! {violation}"), violation
        if not moves:
            break
        bad = [m for m in moves if m[1] or m[0] in RARE]
        good = [m for m in moves if not m[1] and m[0] not in RARE]
        label, _, world = rng.choice(bad if bad and (not good or rng.random() < MISFORTUNE) else good)
        trace.append(label)
    return tuple(trace), ""


def _possible(rules: Rules, world: World) -> tuple[list[Move], str]:
    """The moves up to the first that leads where no world may be."""
    moves: list[Move] = []
    try:
        moves.extend(rules.moves(world))
    except Violation as v:
        return moves, str(v)
    return moves, ""


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
