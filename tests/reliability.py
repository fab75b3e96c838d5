"""
Writes docs/reliability.md: what was searched, walked, killed and cut, with the seeds to do it again.

`make prove-ourselves` runs it after the mutants. LONG=ci and LONG=full do more; every figure is a count.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recovery.prove.explorer import explore
from recovery.prove.walks import ROUGH, walk
from recovery.prove.world import Bounds, Config
from tests.conftest import MULTIPLIERS
from tests.property.mutants import MUTANTS, SURVIVORS
from tests.property.worlds import DEPLOY, DEPLOY_ALONE, EFFECTS, MERGE, MERGE_ALONE, E, one, reduced, two

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reliability.md"
SEED = 7
LONG = os.environ.get("LONG", "")
LIMIT = 4_000_000


def searched() -> Iterator[str]:
    """Pipelines that are searched to their end."""
    yield from ("## Searched to the end", "", "| pipeline | misfortunes | worlds | moves | violations | stuck |")
    yield "| --- | --- | --- | --- | --- | --- |"
    cases: list[tuple[str, str, Config]] = [
        (f"one step, {g}", "2 crashes, 1 suspicion, 1 bad probe", Config(one(g), reduced=not LONG)) for g in EFFECTS
    ]
    if LONG:
        pairs = [(f, g) for f in EFFECTS for g in EFFECTS]
        cases += [(f"two steps, {f} and {g}", "2 crashes", reduced(two(f, g), Bounds(crash=2))) for f, g in pairs]
    cases += [
        ("merge_pr, ratchet, rebuild", "2 crashes", reduced(MERGE_ALONE, Bounds(crash=2))),
        ("deploy_init, deploy_verified", "2 crashes", reduced((DEPLOY_ALONE,), Bounds(crash=2))),
    ]
    if LONG:
        cases.append(("the default pipeline", "1 crash", reduced((MERGE, DEPLOY), Bounds(crash=1))))
    for name, misfortunes, cfg in cases:
        found = explore(cfg, limit=LIMIT)
        complete = "" if found.complete else " (cut)"
        counted = f"{found.states:,}{complete} | {found.moves:,} | {found.violation or 0} | {found.stuck}"
        yield f"| {name} | {misfortunes} | {counted} |"


def walked() -> Iterator[str]:
    """Random walks with every misfortune at once."""
    goal = {"": 20_000, "ci": 200_000, "full": 10_000_000}[LONG]
    cfg, steps, walks, seed = Config(two(E, EFFECTS[2]), ROUGH, actors=3), 0, 0, SEED
    while steps < goal:
        found = walk(cfg, walks=200, seed=seed)
        steps, walks, seed = steps + found.moves, walks + found.walks, seed + 1
        if found.violation:
            yield f"**{found.violation}** with seed {seed - 1}"
            return
    yield from ("", "## Walked at random", "")
    yield f"{steps:,} moves in {walks:,} walks of three actors over two steps: 0 violations."
    yield f"Seeds {SEED} to {seed - 1}."


def mutants() -> Iterator[str]:
    """The kill matrix."""
    yield from ("", "## Wrong variants", "", "| variant | caught by | worlds |", "| --- | --- | --- |")
    alive = 0
    for name, mutant in MUTANTS.items():
        found = explore(mutant.cfg, limit=LIMIT)
        alive += found.safe
        why = found.violation or ("stuck" if found.stuck else "**survives**")
        yield f"| {name} | {why} | {found.states:,} |"
    yield from ("", f"{len(MUTANTS) - alive} of {len(MUTANTS)} caught.")
    yield f"Choices that may survive: {', '.join(SURVIVORS)}."


def killed() -> Iterator[str]:
    """Real processes, killed at every crossing of every port."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        lines = _program("killing.py", folder, "0", "1")
    deaths = sum(not line["lived"] for line in lines)
    right = sum(line["effects"] == 6 and set(line["calls"].values()) == {1} for line in lines)
    yield from ("", "## Killed", "")
    yield f"{deaths} real processes by SIGKILL, one at each crossing of each port of a six-step edge:"
    yield f"{right} of {len(lines)} deliveries with each effect exactly once."


def cut() -> Iterator[str]:
    """Images of what a power cut may leave, recovered against the world as it was."""
    images = min(60 * MULTIPLIERS[LONG], 5000)
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "disk.so"
        source = ROOT / "tests" / "crash" / "disk.c"
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        lines = _program("disk_faults.py", folder, "cut", str(SEED), str(images), preload=str(library))
    right = sum(line["effects"] == 3 and not line["before"]["unwritten"] and not line["second"] for line in lines)
    yield from ("", "## Power cut", "")
    yield f"{len(lines)} images of a delivery of {lines[0]['of']} recorded calls, seed {SEED}:"
    yield f"{right} recovered, no effect twice or unwritten."


def _program(name: str, *argv: str, preload: str = "") -> list[dict[str, Any]]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | ({"LD_PRELOAD": preload} if preload else {})
    command = [sys.executable, str(ROOT / "tests" / "crash" / name), *argv]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return [json.loads(line) for line in ran.stdout.splitlines()]


def main() -> None:
    began = time.process_time()
    lines = [
        "# Reliability, in figures",
        "",
        f"Written by `make prove-ourselves`{f' with LONG={LONG}' if LONG else ''}; the same seeds find the same.",
        "What is searched, and under which assumptions: [what the explorer proves](explanation/proof.md).",
        "",
    ]
    for part in (searched, walked, mutants, killed, cut):
        for line in part():
            print(line, flush=True)
            lines.append(line)
    lines += ["", f"{time.process_time() - began:.0f} seconds of one core for what is simulated."]
    PAGE.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
