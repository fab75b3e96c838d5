"""`make bench`: measure, print the table, write docs/performance.md and its plot; `BENCH=quick` takes a minute."""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from integrations.telemetry.logs import configure_logs
from tests.benchmarks import appends, peers, recovering, report, stepping
from tests.benchmarks.measuring import Row
from tests.benchmarks.sizes import FULL, QUICK, Sizes

ROOT = Path(__file__).resolve().parents[2]

Part = Callable[[Path, Sizes, list[peers.Peer]], Awaitable[list[Row]]]


async def _appends(folder: Path, sizes: Sizes, others: list[peers.Peer]) -> list[Row]:
    del others
    return [await appends.measure(folder, sizes, name) for name in appends.PRODUCERS]


PARTS: dict[str, Part] = {
    "appends": _appends,
    "stepping": stepping.measure,
    "recovering": recovering.measure,
}
"""What can be asked for by name, in the order in which it is measured."""


async def _measure(names: list[str], sizes: Sizes, folder: Path) -> list[Row]:
    others = peers.installed()
    for peer in others:
        await peer.start(folder)
    rows: list[Row] = []
    try:
        for name in names:
            print(f"bench: {name}", file=sys.stderr, flush=True)
            part = folder / name
            part.mkdir()
            rows += await PARTS[name](part, sizes, others)
            shutil.rmtree(part)
    finally:
        for peer in others:
            await peer.stop()
    return rows


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
    given.dir.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        rows = asyncio.run(_measure(given.parts or list(PARTS), QUICK if kind == "quick" else FULL, Path(folder)))
    report.show(rows)
    if given.page or (kind == "full" and not given.parts):
        report.write(rows, ROOT / "docs", kind)


if __name__ == "__main__":
    main()
