"""
Writes docs/reliability.md: what was searched, walked, killed and cut, with the seeds to do it again.

`make prove-ourselves` runs it before the mutants. LONG=ci and LONG=full do more; every figure is a count. With
`python -m tests.reliability PART...` only these parts are done again, and the others stay as they are on the page.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from recovery.prove.explorer import explore
from recovery.prove.walks import walk
from recovery.prove.world import Bounds, Config
from tests.property.mutants import MUTANTS, SURVIVORS
from tests.property.test_machine import BREAKS, RARER
from tests.property.test_product_mutants import CHANGES
from tests.property.worlds import (
    CRASHES,
    DEPLOY,
    DEPLOY_ALONE,
    EFFECTS,
    MERGE,
    MERGE_ALONE,
    ROUGH_WAYS,
    one,
    reduced,
    two,
)

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reliability.md"
SEED = 7
LONG = os.environ.get("LONG", "")
LIMIT = 6_000_000
HEAD = """# Reliability, in figures

Written by `make prove-ourselves`; the same seeds find the same. Each part says how much was asked of it.
What is searched, and under which assumptions: [what the explorer proves](explanation/proof.md).
"""


def searched() -> Iterator[str]:
    """Pipelines of one and two steps, and each edge of the default one."""
    two_crashes = Bounds(crash=2)
    yield from _search(
        [
            *((f"one step, {g}", "2 crashes, 1 suspicion, 1 bad probe", reduced(one(g), CRASHES)) for g in EFFECTS),
            *((f"{f}, then {g}", "2 crashes", reduced(two(f, g), two_crashes)) for f in EFFECTS for g in EFFECTS),
            ("merge_pr, ratchet, rebuild", "2 crashes", reduced(MERGE_ALONE, two_crashes)),
            ("deploy_init, deploy_verified", "2 crashes", reduced((DEPLOY_ALONE,), two_crashes)),
        ]
    )


def whole() -> Iterator[str]:
    """The default pipeline; ten minutes of one core and three gigabytes with a crash in it."""
    crashes, named = (1, "1 crash") if LONG else (0, "no crash")
    yield from _search([("the default pipeline", named, reduced((MERGE, DEPLOY), Bounds(crash=crashes)))])


def three() -> Iterator[str]:
    """Three actors on one step, every interleaving: more than three preemptions allow."""
    cases = [(f"{g}, three actors", "2 crashes", Config(one(g), Bounds(crash=2), 3, reduced=True)) for g in EFFECTS]
    yield from _search(cases)


def full() -> Iterator[str]:
    """The same with nothing merged."""
    two_crashes = Bounds(crash=2)
    cases = [(f"one step, {g}", "2 crashes", Config(one(g), two_crashes)) for g in EFFECTS]
    if LONG == "full":
        cases += [(f"{f}, then {g}", "2 crashes", Config(two(f, g), two_crashes)) for f in EFFECTS for g in EFFECTS]
    yield from _search(cases)


def _search(cases: list[tuple[str, str, Config]]) -> Iterator[str]:
    yield "| pipeline | misfortunes | worlds | moves | violations | stuck |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name, misfortunes, cfg in cases:
        found = explore(cfg, limit=LIMIT)
        complete = "" if found.complete else " (cut)"
        counted = f"{found.states:,}{complete} | {found.moves:,} | {found.violation or 0} | {found.stuck}"
        yield f"| {name} | {misfortunes} | {counted} |"


def walked() -> Iterator[str]:
    """Every misfortune at once, three actors."""
    goal = {"": 100_000, "ci": 1_000_000, "full": 10_000_000}[LONG]
    moves = walks = 0
    for name, cfg in ROUGH_WAYS.items():
        found = walk(cfg, moves=goal // len(ROUGH_WAYS) + 1, seed=SEED)
        moves, walks = moves + found.moves, walks + found.walks
        if found.violation:
            yield f"**{found.violation}** in {name}"
            return
    yield f"{moves:,} moves in {walks:,} walks of three actors with every misfortune at once, seed {SEED}:"
    yield f"0 violations. Of {len(ROUGH_WAYS)} pipelines: a step rolled back, every pair of guards, the default one."


def wrong() -> Iterator[str]:
    """The kill matrix."""
    yield from ("| variant | caught by | worlds |", "| --- | --- | --- |")
    alive = 0
    for name, mutant in MUTANTS.items():
        found = explore(mutant.cfg, limit=LIMIT)
        alive += found.safe
        why = found.violation or ("stuck" if found.stuck else "**survives**")
        yield f"| {name} | {why} | {found.states:,} |"
    yield from ("", f"{len(MUTANTS) - alive} of {len(MUTANTS)} caught.")
    alive = sum(explore(cfg, limit=LIMIT).safe for cfg in SURVIVORS.values())
    yield f"Choices that may survive, and do ({alive} of {len(SURVIVORS)}): {', '.join(SURVIVORS)}."
    yield from broken()


def broken() -> Iterator[str]:
    """What the tests marked `mutants` break; `make prove-ourselves` fails if one is not noticed."""
    yield ""
    yield f"In copies of the product itself, each noticed by a named test: {', '.join(CHANGES)}."
    yield f"Under the rule machine, each noticed: {', '.join((*BREAKS, *RARER))}."


def killed() -> Iterator[str]:
    """Real processes."""
    with _folder() as folder:
        lines = _program("killing.py", folder, "0", "1")
    deaths = sum(not line["lived"] for line in lines)
    right = sum(line["effects"] == 6 and set(line["calls"].values()) == {1} for line in lines)
    yield f"{deaths} real processes by SIGKILL, one at each crossing of each port of a six-step edge, every second"
    yield f"successor too: {right} of {len(lines)} deliveries with each effect exactly once."
    kills = {"": 10, "ci": 100, "full": 1000}[LONG]
    with _folder() as folder:
        (told,) = _program("kill_loop.py", folder, str(SEED), str(kills))
    once = told["calls"] == [1] and told["effects"] == told["keys"]
    yield ""
    yield f"{told['killed']:,} SIGKILLs at random moments of a process that drives six tasks at once, seed {SEED}, and"
    times = "each once" if once else "**not each once**"
    yield f"{told['lives']:,} lives: {told['effects']:,} of {told['keys']:,} effects, {times}."


def cut() -> Iterator[str]:
    """Images of what a power cut may leave, recovered against the world as it was."""
    step = {"": 20, "ci": 4, "full": 1}[LONG]
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "disk.so"
        source = ROOT / "tests" / "crash" / "disk.c"
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        lines = _program("disk_faults.py", folder, "every", str(step), preload=str(library))
    right = sum(line["effects"] == 3 and not line["before"]["unwritten"] and not line["second"] for line in lines)
    which = "every image" if step == 1 else f"one in {step} of the images"
    yield f"A delivery of {lines[0]['of']} recorded calls: {which} that a power cut may leave, each subset of what"
    yield "is unsynced at each call (of more than six each prefix, each alone, all but each), each write torn at each"
    yield f"sector: {len(lines):,} different ones, {right:,} recovered, no effect twice or unwritten."


PARTS: dict[str, tuple[str, Callable[[], Iterator[str]]]] = {
    "searched": ("Searched to the end", searched),
    "whole": ("The default pipeline, to the end", whole),
    "three": ("Three actors on one step, to the end", three),
    "full": ("Nothing merged, to the end", full),
    "walked": ("Walked at random", walked),
    "wrong": ("Wrong variants", wrong),
    "killed": ("Killed", killed),
    "cut": ("Power cut", cut),
}


def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)


def _program(name: str, *argv: str, preload: str = "") -> list[dict[str, Any]]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | ({"LD_PRELOAD": preload} if preload else {})
    command = [sys.executable, str(ROOT / "tests" / "crash" / name), *argv]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return [json.loads(line) for line in ran.stdout.splitlines()]


def _seconds() -> float:
    """Processor time of this process and of what it started."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def _section(title: str, part: Callable[[], Iterator[str]]) -> str:
    began, lines = _seconds(), list[str]()
    print(f"\n## {title}\n", flush=True)
    for line in part():
        print(line, flush=True)
        lines.append(line)
    asked = f"LONG={LONG}, " if LONG else ""
    return "\n".join((f"## {title}", "", *lines, "", f"*{asked}{_seconds() - began:.0f} seconds of one core.*", ""))


def _sections() -> dict[str, str]:
    """What the page holds already, by title."""
    found = re.split(r"^(?=## )", PAGE.read_text("utf-8"), flags=re.MULTILINE)[1:]
    return {text.partition("\n")[0].removeprefix("## "): text.rstrip("\n") + "\n" for text in found}


def main(*names: str) -> None:
    for name in names or PARTS:
        title, part = PARTS[name]
        new = _section(title, part)
        have = _sections() | {title: new}  # read again: another part may have been written meanwhile
        PAGE.write_text("\n".join((HEAD, *(have[t] for t, _ in PARTS.values() if t in have))), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
