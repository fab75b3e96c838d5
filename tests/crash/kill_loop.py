"""
A process that drives many tasks at once is killed again and again at a random moment; each life is followed by another.

`kill_loop.py FOLDER SEED KILLS [BREAK]`: prints one JSON line at the end. Effects are files, counted where no memory
reaches. BREAK is a wrong variant of the product, to see that the loop notices.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import sys
from contextlib import suppress
from pathlib import Path
from typing import cast

import structlog

import journal.advance
from journal import Journal, advance_stage
from journal.errors import TaskExistsError
from journal.journal import NewTask
from journal.ports import Call
from journal.results import Parked
from journal.shell import Ports
from tests.builders import FileStep, pipeline, step
from tests.crash.killing import Countdown, Killer
from tests.property import mutants

STEPS = ("merge_pr", "ratchet", "deploy_init")
TASKS = 6


async def live(folder: Path, batch: int, doom: int) -> None:
    """One life: every task of the batch at once."""
    countdown = Countdown(doom - 1)
    definition = pipeline(*(step(name, attempts=9) for name in STEPS))
    steps = dict.fromkeys(STEPS, FileStep(folder))
    tasks = [f"T-{batch}-{n}" for n in range(TASKS)]
    async with Journal.open(
        folder / "journal.db",
        pipeline=definition,
        steps=steps,
        wrap=lambda ports, _: cast("Ports", Killer(ports, countdown)),
    ) as journal:
        for task in tasks:
            with suppress(TaskExistsError):
                await journal.open_task(NewTask(task, "acme/widgets", f"feature/{task}"), actor="operator")
        await asyncio.gather(*(finish(journal, task) for task in tasks))


async def finish(journal: Journal, task: str) -> None:
    """Drive; what was parked because three terms in a row died is let go on, as an operator would."""
    if isinstance(await advance_stage(journal, task, actor="startup"), Parked):
        await journal.resume(task, reason="killed too often")
        await advance_stage(journal, task, actor="startup")


def in_a_process(folder: Path, batch: int, doom: int) -> bool:
    """True = it lived to its end."""
    child = os.fork()
    if not child:
        code = 1
        try:
            asyncio.run(live(folder, batch, doom))
            code = 0
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status):
        sys.exit("a life failed by itself")
    return not os.WIFSIGNALED(status)


def main(folder: Path, seed: int, kills: int) -> None:
    chance, killed, batch, lives = random.Random(seed), 0, 0, 0
    while killed < kills:
        lives += 1
        if in_a_process(folder, batch, chance.randrange(1, 120)):
            batch += 1
        else:
            killed += 1
    in_a_process(folder, batch, 0)
    far_side = FileStep(folder)
    keys = [f"T-{b}-{n}/1/{name}" for b in range(batch + 1) for n in range(TASKS) for name in STEPS]
    calls = [len(far_side.calls(key)) for key in keys]
    effects = sum(far_side.effect(key).exists() for key in keys)
    print(
        json.dumps({"killed": killed, "lives": lives, "keys": len(keys), "effects": effects, "calls": sorted({*calls})})
    )


def intent_late() -> None:
    """The effect first, its intent when the reply is there."""
    vars(journal.advance).update(next_action=mutants.intent_after_effect, learn=mutants.late_intent)


def epoch_in_the_key() -> None:
    """Whoever takes over asks for, and makes, another effect."""
    Call.key = property(lambda c: f"{c.subject.task}/{c.generation}/{c.step}/{c.epoch}")  # type: ignore[assignment,method-assign]


BREAKS = {"intent-late": intent_late, "epoch-in-the-key": epoch_in_the_key}


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    for name in sys.argv[4:]:
        BREAKS[name]()
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
