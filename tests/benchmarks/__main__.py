"""`make bench`: measure, print the table, write docs/performance.md and its plot; `BENCH=quick` takes a few minutes."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from integrations.cli import collect_seldom
from integrations.telemetry.logs import configure_logs
from tests.benchmarks import appends, peers, reading, recovering, report, servers, serving, sharing, starting, stepping
from tests.benchmarks.logs import Logs
from tests.benchmarks.measuring import Row
from tests.benchmarks.sizes import FULL, QUICK, Sizes

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Run:
    """What every part gets."""

    folder: Path  # of this part, gone after it
    sizes: Sizes
    others: list[peers.Peer]
    logs: Logs


async def _appends(run: Run) -> list[Row]:
    rows = [await appends.measure(run.folder, run.sizes, name) for name in appends.PRODUCERS]
    return rows + [await appends.beside(run.folder, run.sizes, peer) for peer in run.others if peer.takes_part("P1")]


PARTS: dict[str, Callable[[Run], Awaitable[list[Row]]]] = {
    "appends": _appends,
    "servers": lambda run: servers.measure(run.folder, run.sizes),
    "sharing": lambda run: sharing.measure(run.folder, run.sizes, run.others),
    "stepping": lambda run: stepping.measure(run.folder, run.sizes, run.others),
    "recovering": lambda run: recovering.measure(run.folder, run.sizes, run.others),
    "reading": lambda run: reading.measure(run.logs, run.sizes),
    "starting": lambda run: starting.measure(run.logs, run.sizes),
    "serving": lambda run: serving.measure(run.folder, run.logs, run.sizes),
    "growing": lambda run: recovering.measure_growth(run.logs, run.sizes),
}
"""What can be asked for by name, in the order in which it is measured; the last one writes to the long logs."""


async def _measure(names: list[str], sizes: Sizes, folder: Path, rows: list[Row]) -> None:
    others = peers.installed() if {"appends", "sharing", "stepping", "recovering"} & set(names) else []
    for name in names:
        print(f"bench: {name}", file=sys.stderr, flush=True)
        part = folder / name
        part.mkdir()
        measured = await PARTS[name](Run(part, sizes, others, Logs(folder)))
        for row in measured:
            print(f"bench: {row.target.name} {row.ratio:.3g} ({row.verdict})", file=sys.stderr, flush=True)
        rows += measured
        shutil.rmtree(part)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"what to measure; default: all of {', '.join(PARTS)}")
    parser.add_argument("--dir", type=Path, default=ROOT / ".bench", help="where files go: a disk, no tmpfs")
    parser.add_argument("--page", action="store_true", help="write docs/performance.md also for a quick or partial run")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(PARTS)}")
    kind = os.environ.get("BENCH", "full")
    if kind not in ("quick", "full"):
        parser.error(f"BENCH is '{kind}'; use BENCH=quick, or leave it unset")
    configure_logs("warning")
    collect_seldom()  # as every command and the service do
    given.dir.mkdir(exist_ok=True)
    rows: list[Row] = []
    try:
        with tempfile.TemporaryDirectory(dir=given.dir) as folder:
            asyncio.run(_measure(given.parts or list(PARTS), QUICK if kind == "quick" else FULL, Path(folder), rows))
    finally:  # a part that fails after an hour takes nothing of that hour with it
        report.show(rows)
        if given.page or (kind == "full" and not given.parts):
            report.write(rows, ROOT / "docs", kind)


if __name__ == "__main__":
    main()
