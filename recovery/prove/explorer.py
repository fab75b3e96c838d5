"""
Visit every reachable world, breadth first: the shortest trace to a violation, and who can get stuck (T2, T7).

Liveness asked of every world: moves that are no misfortunes can still bring the task to an end or to a person, and how
many it takes at most. That is possibility, not inevitability; that actors look again is the assumption of PROTOCOL 7.
"""

from __future__ import annotations

import gc
import time
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from recovery.prove.moves import Rules
from recovery.prove.world import Config, Move, Violation, World

Progress = Callable[[int], None]
"""Told now and then how many worlds were met."""


@dataclass(frozen=True, slots=True)
class Explored:
    """What a search found."""

    states: int
    moves: int
    seconds: float
    complete: bool  # False: the limit cut it
    violation: str = ""  # the shortest one, "" = none
    stuck: int = 0  # worlds from which no end can be reached
    farthest: int = 0  # moves that it takes from the world that is farthest from every end
    trace: tuple[str, ...] = ()  # labels of the moves to the violation, or to the first stuck world
    endings: Counter[str] = field(default_factory=Counter)  # worlds in which the task is over, by how
    crashes: dict[str, Counter[str]] = field(default_factory=dict)  # crash point -> reachable endings -> worlds

    @property
    def safe(self) -> bool:
        return not self.violation and not self.stuck


class Search:
    """One breadth-first search; the tables are arrays, since there are millions of entries."""

    def __init__(self, cfg: Config) -> None:
        self.rules = Rules(cfg)
        start = cfg.start()
        self.index: dict[World, int] = {start: 0}
        self.came: list[tuple[int, str]] = [(-1, "")]
        self.queue = deque([start])
        self.source, self.target = array("I"), array("I")  # moves that are no misfortunes
        self.over: dict[str, list[int]] = {}
        self.crashes: list[tuple[str, int]] = []
        self.moves = 0
        self.farthest = 0  # of the last `reach`

    def run(self, limit: int, progress: Progress | None = None) -> str:
        """Search until everything was seen, the limit is reached, or a violation is met; returns that."""
        while self.queue and len(self.came) <= limit:
            world = self.queue.popleft()
            k = self.index[world]
            if progress is not None and k % 2048 == 0:
                progress(len(self.came))
            if self.rules.over(world):
                self.over.setdefault(self.rules.ending(world), []).append(k)
            moves = self.rules.moves(world)
            while True:
                try:
                    move = next(moves, None)
                except Violation as v:
                    self.came.append((k, f"!! {v}"))
                    return str(v)
                if move is None:
                    break
                self._take(k, move)
        return ""

    def _take(self, k: int, move: Move) -> None:
        label, fault, world = move
        self.moves += 1
        j = self.index.get(world)
        if j is None:
            j = self.index[world] = len(self.came)
            self.came.append((k, label))
            self.queue.append(world)
        if not fault:
            self.source.append(k)
            self.target.append(j)
        elif " crashes " in label:
            self.crashes.append((label[2:], j))

    def trace(self, k: int) -> tuple[str, ...]:
        """The labels on the shortest way to a world."""
        return tuple(reversed(list(self._back(k))))

    def _back(self, k: int) -> Iterator[str]:
        while k > 0:
            k, label = self.came[k]
            yield label

    def reach(self, goals: list[int]) -> bytearray:
        """Mark the worlds that can reach a goal without a misfortune, nearest first."""
        head, after = array("i", [-1]) * len(self.came), array("i", [-1]) * len(self.source)
        for e, target in enumerate(self.target):
            after[e], head[target] = head[target], e
        marked = bytearray(len(self.came))
        near, self.farthest = list(goals), -1
        for g in goals:
            marked[g] = 1
        while near:
            self.farthest, near = self.farthest + 1, list(self._before(near, marked, head, after))
        return marked

    def _before(self, near: list[int], marked: bytearray, head: array[int], after: array[int]) -> Iterator[int]:
        """The worlds one move before these, each once."""
        for goal in near:
            e = head[goal]
            while e >= 0:
                if not marked[k := self.source[e]]:
                    marked[k] = 1
                    yield k
                e = after[e]


def explore(cfg: Config, *, limit: int = 3_000_000, matrix: bool = False, progress: Progress | None = None) -> Explored:
    """
    Search a configuration to its end or to `limit` worlds.

    Args:
        cfg: What to explore.
        limit: The greatest number of worlds to keep; about 700 bytes each.
        matrix: Tell for each crash point which endings can be reached afterwards.
        progress: Told now and then how many worlds were met.
    """
    began = time.perf_counter()
    search = Search(cfg)
    with _no_collector():
        violation = search.run(limit, progress)
    complete = not violation and not search.queue
    stuck, farthest, trace = 0, 0, search.trace(len(search.came) - 1) if violation else ()
    if complete:
        ok = search.reach([k for ks in search.over.values() for k in ks])
        stuck, farthest = len(ok) - sum(ok), search.farthest
        if stuck:
            trace = (*search.trace(ok.index(0)), "!! stuck")
    crashes = crash_matrix(search) if matrix and complete and not stuck else {}
    seconds = time.perf_counter() - began
    endings = Counter({name: len(ks) for name, ks in search.over.items()})
    states, moves = len(search.index), search.moves
    return Explored(states, moves, seconds, complete, violation, stuck, farthest, trace, endings, crashes)


@contextmanager
def _no_collector() -> Iterator[None]:
    """Worlds hold no cycles, and walking over millions of them again and again costs a third of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def crash_matrix(search: Search) -> dict[str, Counter[str]]:
    """For each crash point: in how many worlds right after it each ending is still within reach."""
    reach = {ending: search.reach(goals) for ending, goals in search.over.items()}
    matrix: dict[str, Counter[str]] = {}
    for point, k in search.crashes:
        row = matrix.setdefault(point, Counter())
        row.update(ending for ending, marked in reach.items() if marked[k])
    return matrix
