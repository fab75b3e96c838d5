"""The stage of the storm: a folder with a forge's repository, and the `journal.toml` of docs/how-to."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from integrations.demo.scenery import REPORTS, build_scenery
from integrations.demo.stage import Stage
from tests.doubles.plane import BOT, IDENTIFIER, PROJECT, WORKSPACE

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "run-with-gitea-and-plane.md"
STATES = ("Todo", "Review", "Approved", "Testing", "Merging", "Staging", "Confirm Deploy", "Done")
WISHES = {"Approved": "review", "Confirm Deploy": "deploy"}
SHOWN = {
    "development": "Todo", "review": "Review", "testing": "Testing", "deploy-staging": "Merging", "deploy": "Staging",
    "done": "Done",
}  # fmt: skip
CHECK = "ci/tests"
_WORK = "import os, sys; os.write(os.open(sys.argv[1], 1089, 0o600), (sys.argv[2] + '\\n').encode())"


@dataclass(frozen=True, slots=True)
class StormStage(Stage):
    """The demo's stage, with what a forge and a tracker add."""

    @property
    def ledger(self) -> Path:
        return self.deploys / "ledger.jsonl"

    @property
    def worked(self) -> Path:
        """One line for each run of a task's job."""
        return self.folder / "worked.log"

    def task(self, n: int) -> str:
        return f"{IDENTIFIER}-{n}"

    def write_config(self, urls: Mapping[str, str]) -> None:
        """Write the page's configuration with the places of this stage."""
        self.config.write_text(config_of(PAGE.read_text("utf-8"), self, urls), "utf-8")


def build_storm_stage(folder: Path, tasks: int) -> StormStage:
    """Make the folder and the forge's repository."""
    folder.mkdir(parents=True)
    stage = StormStage(folder, build_scenery(folder / "forge", tasks))
    stage.releases.mkdir()
    (stage.releases / "current").write_text(stage.scenery.main + "\n", "ascii")
    return stage


def config_of(page: str, stage: StormStage, urls: Mapping[str, str]) -> str:
    """Take the page's configuration, and put this stage's places and short waits where it has its examples."""
    text: str
    (text,) = re.findall(r"^```toml\n(# journal\.toml.*?)^```$", page, re.DOTALL | re.MULTILINE)
    clone, artefacts = str(stage.folder / "clones" / "acme" / "widgets.git"), str(stage.folder / "artefacts")
    build = [sys.executable, "-m", "integrations.demo.build"]
    place = [clone, artefacts, "{landed}"]
    release = [sys.executable, "-m", "integrations.demo.release", str(stage.releases), str(stage.db), "{target}"]
    changed: dict[str, object] = {
        "integrations.gitea/url": urls["forge"],
        "integrations.plane/url": urls["tracker"],
        "integrations.plane/workspace": WORKSPACE,
        "integrations.plane/project": PROJECT,
        "integrations.plane/account": BOT,
        "integrations.plane/calls_per_minute": 10_000,
        "integrations.alerts/telegram_api": urls["chat"],
        "integrations.deploy/version_file": "releases/current",
        "serve/poll_s": 3,
        "jobs.development/command": [sys.executable, "-S", "-E", "-c", _WORK, str(stage.worked), "{task}"],
        "jobs.development/backoff_s": 0,
        "gates.coverage/reports": REPORTS,
        "steps.merge_pr/settle_s": 2,
        "steps.merge_pr/reply_s": 3,
        "steps.merge_pr/retry_s": 0.1,
        "steps.ratchet/reports": REPORTS,
        "steps.ratchet/retry_s": 0.1,
        "steps.rebuild/apply": [*build, *place],
        "steps.rebuild/probe": [*build, "--probe", *place],
        "steps.rebuild/cwd": str(ROOT),
        "steps.rebuild/retry_s": 0.1,
        "steps.merge_verified/retry_s": 0.1,
        "steps.deploy_init/command": release,
        "steps.deploy_init/cwd": str(ROOT),
        "steps.deploy_init/retry_s": 0.1,
        "steps.deploy_verified/waits": 8,
        "steps.deploy_verified/retry_s": 0.1,
        "steps.delete_branch/retry_s": 0.1,
    }
    for place_of, value in changed.items():
        table, _, key = place_of.partition("/")
        text = _with(text, table, key, json.dumps(value))
    return text


def _with(text: str, table: str, key: str, value: str) -> str:
    head, begin, rest = text.partition(f"[{table}]\n")
    assert begin, f"the page's configuration has no table [{table}]"
    body, end, more = rest.partition("\n[")
    # A value may go over several lines; the next one begins with a word at the start of a line.
    found, count = re.subn(rf"(?ms)^{key} = .*?(?=\n\w|\n*\Z)", lambda _: f"{key} = {value}", body)
    assert count < 2, f"{table}.{key} stands twice"
    return head + begin + (found if count else f"{key} = {value}\n{body}") + end + more
