"""What a person sees of the demo: plain lines while it goes on, then a table of what the world shows."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from integrations.demo.run import DEFAULT_CRASH, Report, new_folder, run_all, run_once
from integrations.demo.supervisor import Course, News

STYLES = {"killed": "bold red", "ended": "yellow", "started": "green", "opened": "cyan", "moved": "dim"}


def demo(
    console: Console, *, folder: Path | None, tasks: int | None, crash_at: str | None, crash_all: bool, as_json: bool
) -> int:
    """
    Run the demo and show it.

    Returns:
        The exit code: 0 if every effect happened exactly once, else 1.
    """
    place = new_folder(folder)
    if crash_all:
        return asyncio.run(_all(console, place, tasks or 1, as_json=as_json))
    return asyncio.run(_one(console, place, tasks or 3, crash_at or DEFAULT_CRASH, as_json=as_json))


async def _one(console: Console, folder: Path, tasks: int, crash: str, *, as_json: bool) -> int:
    if not as_json:
        console.print(
            f"A real bare repository with {tasks} feature branches, a real service, one SIGKILL at {crash}.\n"
        )
    report = await run_once(folder, tasks, crash, _ignore if as_json else _Lines(console).tell)
    if as_json:
        console.print_json(json.dumps(report.as_data()))
    else:
        _show(console, report)
    return 0 if report.ok else 1


async def _all(console: Console, folder: Path, tasks: int, *, as_json: bool) -> int:
    def done(report: Report) -> None:
        if not as_json:
            mark = Text("  exactly once  ", "green") if report.ok else Text("  NOT exactly once  ", "bold red")
            decided = "; ".join(f"{r.step}: {r.row} x {r.fact} -> {r.verdict}" for r in report.recovered)
            console.print(Text(f"{report.crash:32}").append_text(mark).append(decided or "nothing was in doubt", "dim"))

    if not as_json:
        console.print(
            "Every crash point of the default pipeline, each with real git, real processes and one SIGKILL.\n"
        )
    reports = await run_all(folder, tasks, _ignore, done)
    ok = all(r.ok for r in reports)
    if as_json:
        points = [r.as_data() for r in reports]
        console.print_json(json.dumps({"ok": ok, "dir": str(folder), "points": points}))
    else:
        exact = sum(r.ok for r in reports)
        console.print(f"\n{exact} of {len(reports)} crash points: every effect exactly once. Folder: {folder}")
    return 0 if ok else 1


def _ignore(point: str, news: News, course: Course) -> None:
    del point, news, course


class _Lines:
    """Plain lines as things happen."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def tell(self, point: str, news: News, course: Course) -> None:
        del point, course
        self._console.print(Text(f"  {news.what:8}", STYLES.get(news.what, "")).append(news.detail, ""))


def _show(console: Console, report: Report) -> None:
    table = Table(
        title="\nCounted in git, in files and in the deployer's ledger", box=box.SIMPLE_HEAD, title_justify="left"
    )
    for name in ("task", "stage"):
        table.add_column(name, no_wrap=True)
    for name in ("merges", "ratchets", "builds", "deploys", "exactly once"):
        table.add_column(name, justify="right")
    for c in report.counted:
        mark = Text("yes", "green") if c.exact else Text("NO", "bold red")
        table.add_row(c.task, c.stage, *(str(n) for n in (c.merges, c.ratchets, c.builds, c.deploys)), mark)
    console.print(table)
    console.print(
        f"The service was killed {report.course.kills} time and started again {report.course.restarts} times."
    )
    _show_decisions(console, report)
    for task, reason in report.course.held.items():
        console.print(Text(f"{task} is parked: {reason}", "bold red"))
    _show_next(console, report)


def _show_decisions(console: Console, report: Report) -> None:
    console.print("\nRecovery decisions, each an event of the journal:")
    for r in report.recovered:
        console.print(Text(f"  {r.task} {r.step} ({r.actor}): ", "bold").append(r.sentence, ""))
    if not report.recovered:
        console.print("  none: nothing was in doubt")


def _program() -> str:
    """How the reader's shell finds this program: `make run` puts nothing on its path."""
    if shutil.which("journal"):
        return "journal"
    program = Path(sys.argv[0]).absolute()
    here = Path.cwd()
    return str(program.relative_to(here) if program.is_relative_to(here) else program)


def _show_next(console: Console, report: Report) -> None:
    told = [*(r.task for r in report.recovered), *(c.task for c in report.counted), "DEMO-1"]
    task, command = told[0], f"{_program()} --config {report.stage.config}"
    console.print("\nEverything stays in the folder. Try next:")
    for line in (
        f"{command} inspect {task}",
        f"{command} explain {task}",
        f"{command} verify",
        f"{command} serve    # then open http://127.0.0.1:8425/task/{task}",
        f"git --git-dir={report.stage.scenery.repository} log --first-parent main",
    ):
        console.print(Text(f"  {line}"), soft_wrap=True)
    if report.ok:
        console.print(Text("\nEach change is in main once, each effect happened exactly once.", "bold green"))
    else:
        console.print(Text(f"\nNot every effect happened exactly once; see {report.stage.log}", "bold red"))
