"""What came of the storm, counted outside: in the repository, the ledger, the tracker, the forge, the chat."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from integrations.alerts.alert import alert_of
from integrations.settings import Environment, load
from integrations.wiring import build, open_journal
from journal.events import Event
from journal.words import Kind
from tests.doubles.gitea import ACCOUNT
from tests.e2e.scenario import Scenario
from tests.widgets import run_git

_ALERT = re.compile(r"\bid ([A-Za-z0-9][^\s)]*)")


@dataclass(frozen=True, slots=True)
class Landed:
    """One task, as the world shows it."""

    task: str
    merges: int  # commits of main's first-parent line that bring its change
    marks: int  # of them with the task's mark
    deploys: int  # finished ones in the ledger
    releases: int  # times that the deploy command ran for it
    contained: bool  # what runs at the end includes the change
    branch: bool  # its branch is still there


def landed(run: Scenario, n: int) -> Landed:
    """Count the effects of the n-th task."""
    task, feature = run.stage.task(n), run.stage.scenery.features[n - 1]
    repository = run.stage.scenery.repository
    line = run_git(repository, "log", "--first-parent", "--format=%H", "main", "--", feature.module).split()
    said = run_git(repository, "log", "--first-parent", "--format=%B", "main").splitlines()
    running = (run.stage.releases / "current").read_text("ascii").strip()
    finished = Counter(entry["key"] for entry in _lines(run.stage.ledger) if entry.get("event") == "finished")
    released = Counter(entry["key"] for entry in _lines(run.stage.releases / "releases.log"))
    key = f"{task}/1/deploy_init"
    return Landed(
        task,
        merges=len(line) - 1,  # the first commit brought every file
        marks=said.count(f"Transition: {task}/1/merge_pr"),
        deploys=finished[key],
        releases=released[key],
        contained=run_git(repository, "merge-base", feature.head, running) == feature.head,
        branch=bool(run_git(repository, "for-each-ref", f"refs/heads/{feature.branch}")),
    )


async def superseded(run: Scenario) -> set[str]:
    """Tasks whose deploy was contained in a newer one, as the journal says."""
    return {
        event.task
        for event in await events(run)
        if event.kind is Kind.APPLIED
        and event.draft.step == "deploy_init"
        and json.loads(event.body_text)["via"] == "other"
    }


async def events(run: Scenario) -> list[Event]:
    """The whole log."""
    settings = load(run.stage.config, environment=Environment())
    found: list[Event] = []
    async with open_journal(settings, build(settings), write=False) as journal:
        while more := await journal.log.events(after=len(found), limit=1000):
            found += more
    return found


async def alerts(run: Scenario) -> tuple[set[str], Counter[str]]:
    """Ids of everything that a person must learn of, and how often the chat has read each."""
    wanted = {alert.id for event in await events(run) if (alert := alert_of(event))}
    return wanted, Counter(found for text in run.chat.texts for found in _ALERT.findall(text))


def comments(run: Scenario, n: int) -> Counter[str]:
    """Our comments on the n-th pull request, by what is invisible in them."""
    mine = [c for c in run.forge.comments if c["issue_url"] == f"/issues/{40 + n}" and c["user"]["login"] == ACCOUNT]
    return Counter(str(comment["body"]).splitlines()[-1] for comment in mine)


def verified(config: Path) -> subprocess.CompletedProcess[str]:
    """`journal verify`, as a person types it."""
    argv = [sys.executable, "-m", "integrations.cli", "--config", str(config), "verify"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)


def _lines(file: Path) -> Iterator[dict[str, object]]:
    if file.exists():
        yield from (json.loads(line) for line in file.read_text("utf-8").splitlines() if line.strip())
