"""What was measured, for a terminal and for docs/performance.md."""

from __future__ import annotations

import os
import platform
import sqlite3
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks.measuring import Row
from tests.benchmarks.plot import svg
from tests.benchmarks.targets import TARGETS, Verdict

_COLORS = {Verdict.GOAL: "green", Verdict.FLOOR: "yellow", Verdict.MISSED: "red", Verdict.UNSET: "dim"}
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def show(rows: Sequence[Row]) -> None:
    """Print the table."""
    table = Table(title="Every figure is a ratio, measured in this run", show_lines=True)
    for name in ("#", "figure", "ratio", "spread", "by CPU", "floor", "goal", "verdict", "ours", "against"):
        table.add_column(name, justify="right" if name in ("ratio", "floor", "goal", "by CPU") else "left")
    for row in rows:
        color = _COLORS[row.verdict]
        table.add_row(*_cells(row)[:7], f"[{color}]{row.verdict}[/{color}]", *_cells(row)[8:])
    for target in (TARGETS[name] for name in TARGETS if name not in {row.target.name for row in rows}):
        table.add_row(target.name, target.what, "-", "", "", _bound(target.floor), _bound(target.goal), "not measured")
    Console(width=None if os.isatty(1) else 200).print(table)


def _cells(row: Row) -> tuple[str, ...]:
    target = row.target
    low, high = row.spread
    return (
        target.name,
        target.what + (f" ({row.note})" if row.note else ""),
        _number(row.ratio),
        f"{_number(low)}-{_number(high)}",
        "" if row.cpu_ratio is None else _number(row.cpu_ratio),
        _bound(target.floor),
        _bound(target.goal),
        str(row.verdict),
        row.ours,
        row.base,
    )


def _bound(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def write(rows: Sequence[Row], docs: Path, kind: str) -> None:
    """Put the table between its marks in docs/performance.md; what people wrote around it stays."""
    page = docs / "performance.md"
    text = page.read_text()
    before, _, rest = text.partition(BEGIN)
    earlier, _, after = rest.partition(END)
    if lines := _lines(rows):
        (docs / "performance.svg").write_text(svg("Cost against size", lines))
    page.write_text(f"{before}{BEGIN}\n{_page(rows, kind, earlier)}\n{END}{after}")


_DRAWN = {
    "P7": "recovery of a task in doubt",
    "P8": "GET /queue, p99",
    "P8t": "GET /tasks/ID, p99",
    "P10": "rebuild, an event",
    "P10v": "verification, an event",
    "P11": "inspect of a task",
    "P11t": "the queue as of an earlier point",
}


def _lines(rows: Sequence[Row]) -> dict[str, list[tuple[float, float]]]:
    """Every point of every figure that was taken at several sizes; the same size measured twice counts once."""
    lines: dict[str, dict[int, float]] = {}
    for row in rows:
        if row.target.name in _DRAWN:
            lines.setdefault(_DRAWN[row.target.name], {}).update(row.points)
    return {name: sorted(points.items()) for name, points in lines.items() if points}


def _page(rows: Sequence[Row], kind: str, earlier: str) -> str:
    """The table; figures that this run left out keep the line of an earlier one."""
    measured = {row.target.name for row in rows}
    table = [(row.target.name, "| " + " | ".join(_cells(row)) + " |") for row in rows]
    for line in earlier.splitlines():
        name = line.removeprefix("| ").partition(" |")[0]
        if name in TARGETS and name not in measured:
            table.append((name, line))
    order = list(TARGETS)
    lines = [
        f"Last measured on {datetime.now(UTC):%Y-%m-%d} ({kind} run) on {machine()}.",
        "Figures that the last run left out keep the line of an earlier run.",
        "",
        "| # | figure | ratio | spread | by CPU | floor | goal | verdict | ours | against |",
        "| --- | --- | ---: | --- | ---: | ---: | ---: | --- | --- | --- |",
    ]
    lines += [line for _, line in sorted(table, key=lambda each: order.index(each[0]))]
    return "\n".join([*lines, "", "![Cost against size](performance.svg)"])


def machine() -> str:
    """What it ran on, and how fast its disk confirms a write."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores of {model}, {memory:.0f} GiB, Linux {platform.release().split('-')[0]}, "
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, "
        f"load {os.getloadavg()[0]:.1f}, a disk that confirms {flushes_a_second(Path.cwd()):,.0f} small writes a second"
    )


def flushes_a_second(folder: Path, times: int = 500) -> float:
    """fdatasync after an append of 400 bytes."""
    path = folder / ".flush-speed"
    fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        begun = time.perf_counter()
        for n in range(times):
            os.pwrite(fd, b"x" * 400, 400 * n)
            os.fdatasync(fd)
        return times / (time.perf_counter() - begun)
    finally:
        os.close(fd)
        path.unlink()
