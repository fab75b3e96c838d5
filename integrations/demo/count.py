"""
What happened, counted in the outside world: git, files, the deployer's ledger. Never in the journal.

The journal is asked for one thing only: which recovery decisions it recorded, and why.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from integrations.demo.scenery import BASE
from integrations.demo.stage import Stage


@dataclass(frozen=True, slots=True)
class Counted:
    """One task, as the world shows it."""

    task: str
    stage: str
    merges: int  # commits on main's first-parent line that carry the task's key
    in_main: bool  # the branch's head is an ancestor of main
    ratchets: int  # commits of the baseline's history that carry the task's key
    builds: int  # artefacts of the merged commit
    deploys: int  # finished deploys of the task's key in the deployer's ledger
    releases: int  # times the deploy command ran for the key

    @property
    def exact(self) -> bool:
        """Each effect exactly once, and the task is done."""
        once = self.merges == self.ratchets == self.builds == self.deploys == self.releases == 1
        return once and self.in_main and self.stage == "done"

    def as_data(self) -> dict[str, Any]:
        return asdict(self) | {"exact": self.exact}


def count(stage: Stage, stages: dict[str, str]) -> list[Counted]:
    """Count the effects of every task; `stages` says where the service shows each."""
    lines = _lines(stage.deploys / "ledger.jsonl")
    finished = Counter(line["key"] for line in lines if line.get("event") == "finished")
    releases = Counter(line["key"] for line in _lines(stage.releases / "releases.log"))
    counted = []
    for n, feature in enumerate(stage.scenery.features, 1):
        task = stage.task(n)
        merged = _carrying(stage, f"refs/heads/{BASE}", f"{task}/1/merge_pr")
        counted.append(
            Counted(
                task,
                stages.get(task, "?"),
                len(merged),
                _git(stage, "merge-base", "--is-ancestor", feature.head, f"refs/heads/{BASE}") is not None,
                len(_ratchets(stage, f"{task}/1/ratchet")),
                sum((stage.artefacts / f"{commit}.tar").exists() for commit in merged),
                finished[f"{task}/1/deploy_init"],
                releases[f"{task}/1/deploy_init"],
            )
        )
    return counted


def _carrying(stage: Stage, ref: str, key: str) -> list[str]:
    """Commits on the first-parent line whose message has the key's trailer as a whole line."""
    said = _git(stage, "log", "--first-parent", "--format=%H", f"--grep=^Transition: {key}$", ref)
    return (said or "").split()


def _ratchets(stage: Stage, key: str) -> list[str]:
    refs = _git(stage, "for-each-ref", "--format=%(refname)", "refs/journal/coverage") or ""
    return [commit for ref in refs.split() for commit in _carrying(stage, ref, key)]


def _git(stage: Stage, *argv: str) -> str | None:
    done = subprocess.run(
        ["git", f"--git-dir={stage.scenery.repository}", *argv],
        capture_output=True,
        check=False,
        text=True,
    )
    return done.stdout if done.returncode == 0 else None


def _lines(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text("utf-8").splitlines() if line.strip()]


@dataclass(frozen=True, slots=True)
class Recovered:
    """One recovery decision, from the journal's `observed` events."""

    task: str
    step: str
    actor: str
    row: str
    fact: str
    verdict: str
    seen: dict[str, Any]

    @property
    def sentence(self) -> str:
        """Why, in words."""
        via = self.seen.get("via") or self.seen.get("source") or ""
        shown = f" ({via})" if via else ""
        facts = {"ours": "the effect is there and carries our key", "absent": "the effect is not there"}
        prefix = {"open": "an attempt was in doubt", "retry": "an attempt was refused", "fresh": "not begun"}
        return f"{prefix.get(self.row, self.row)}; {facts.get(self.fact, self.fact)}{shown} -> {self.verdict}"


def recoveries(events: list[dict[str, Any]]) -> list[Recovered]:
    """Decisions about steps that were in doubt; waiting for a fact is no recovery."""
    found = []
    for event in events:
        body = event["body"]
        if event["kind"] == "observed" and body["row"] != "fresh":
            found.append(
                Recovered(
                    event["task"],
                    event["step"],
                    event["actor"],
                    body["row"],
                    body["fact"],
                    body["verdict"],
                    body.get("seen", {}),
                )
            )
    return found
