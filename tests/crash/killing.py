"""
Kills a run at its n-th crossing into or out of a port, for every n, and lets fresh processes finish the work.

A program of its own: it loads everything once and forks before any thread or loop exists, so a process costs
milliseconds. Prints one JSON line per n: what the far side shows afterwards. Effects are files, counted here, where
no memory of the killed process reaches.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import structlog

from journal import Journal, advance_stage
from journal.journal import NewTask
from journal.results import Advanced
from journal.shell import Ports
from tests.builders import FileStep, pipeline, step

STEPS = ("merge_pr", "ratchet", "rebuild", "merge_verified", "deploy_init", "cleanup")


class Countdown:
    """Crossings that are left; at the one that finds none (below 0: never) the process dies by SIGKILL."""

    def __init__(self, left: int) -> None:
        self._left = left

    def cross(self) -> None:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1


class Killer:
    """Stands before the ports of a run; each call is two crossings (0 = into the first, 1 = out of it)."""

    def __init__(self, ports: Ports, countdown: Countdown) -> None:
        self._ports, self._countdown = ports, countdown

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._ports, name)

        async def call(*args: Any) -> Any:
            self._countdown.cross()
            result = await method(*args)
            self._countdown.cross()
            return result

        return call


async def attempt(folder: Path, kill_at: int, *, fresh: bool = False) -> None:
    """One process's life: open the journal, drive the task, perhaps die."""
    definition = pipeline(*(step(name, attempts=9) for name in STEPS))  # enough for every crash
    far_side = FileStep(folder)
    async with Journal.open(
        folder / "journal.db",
        pipeline=definition,
        steps=dict.fromkeys(STEPS, far_side),
        wrap=lambda ports, _: cast("Ports", Killer(ports, Countdown(kill_at))),
    ) as journal:
        if fresh:
            await journal.open_task(NewTask("T-1", "acme/widgets", "feature/1"), actor="operator")
        result = await advance_stage(journal, "T-1", actor="startup")
        assert isinstance(result, Advanced), result


def in_a_process(folder: Path, kill_at: int, *, fresh: bool = False) -> bool:
    """Run `attempt` in a process of its own; True = it lived to the end."""
    child = os.fork()
    if not child:
        code = 1
        try:
            asyncio.run(attempt(folder, kill_at, fresh=fresh))
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return False
    if os.WEXITSTATUS(status):
        sys.exit(f"the attempt in {folder} failed by itself")
    return True


def outcome(folder: Path) -> dict[str, Any]:
    """What the far side shows: calls that reached it and effects that are there, per step."""
    far_side = FileStep(folder)
    keys = {name: f"T-1/1/{name}" for name in STEPS}
    return {
        "calls": {name: len(far_side.calls(key)) for name, key in keys.items()},
        "effects": sum(far_side.effect(key).exists() for key in keys.values()),
    }


def main(root: Path, first: int, stride: int) -> None:
    """Every `stride`-th crossing from `first` on; odd ones are killed once more while they recover."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    for n in itertools.count(first, stride):
        folder = root / str(n)
        folder.mkdir()
        lived = in_a_process(folder, n, fresh=True)
        if not lived and n % 2 and not done(folder):
            in_a_process(folder, n * 7 % 18)
        if not done(folder):
            in_a_process(folder, 10**9)
        print(json.dumps({"n": n, "lived": lived, **outcome(folder)}), flush=True)
        if lived:
            return


def done(folder: Path) -> bool:
    """The stage has moved; of a process killed after that only its answer is missing."""
    with closing(sqlite3.connect(folder / "journal.db")) as db:
        return bool(db.execute("SELECT 1 FROM journal_events WHERE kind = 'stage_moved'").fetchone())


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
