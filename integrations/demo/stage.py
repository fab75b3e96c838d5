"""The demo's stage: a folder with a real repository and a `journal.toml` that uses only embedded adapters."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from integrations.demo.scenery import REPO, REPORTS, Scenery, build_scenery
from journal.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Stage:
    """Where everything lies."""

    folder: Path
    scenery: Scenery

    @property
    def config(self) -> Path:
        return self.folder / "journal.toml"

    @property
    def db(self) -> Path:
        return self.folder / "orchestrator.db"

    @property
    def artefacts(self) -> Path:
        return self.folder / "artefacts"

    @property
    def deploys(self) -> Path:
        return self.folder / "deploys"

    @property
    def releases(self) -> Path:
        return self.folder / "releases"

    @property
    def log(self) -> Path:
        return self.folder / "service.log"

    def task(self, n: int) -> str:
        return f"DEMO-{n}"


def build_stage(folder: Path, tasks: int) -> Stage:
    """
    Make the folder and what lies in it.

    Raises:
        InvalidInputError: The folder holds something already.
    """
    if folder.exists() and any(folder.iterdir()):
        raise InvalidInputError(what=f"folder {folder}", why="is not empty; name a new one with --dir")
    folder.mkdir(parents=True, exist_ok=True)
    stage = Stage(folder, build_scenery(folder, tasks))
    stage.releases.mkdir()
    (stage.releases / "current").write_text(stage.scenery.main + "\n", "ascii")
    stage.config.write_text(_toml(stage), "utf-8")
    return stage


def _toml(stage: Stage) -> str:
    """Every edge is `auto`, waits are short; otherwise the default pipeline."""
    python, repository = sys.executable, str(stage.scenery.repository)
    build = [python, "-m", "integrations.demo.build"]
    place = [repository, str(stage.artefacts), "{landed}"]
    release = [python, "-m", "integrations.demo.release", str(stage.releases), str(stage.db), "{target}"]
    names = ("analysis", "architecture", "development", "review", "testing", "deploy-staging", "deploy", "done")
    extra = {
        "deploy-staging": 'gates = ["coverage"]\nsteps = ["merge_pr", "ratchet", "rebuild"]\non_failure = "review"\n',
        "deploy": 'steps = ["merge_verified", "deploy_init", "deploy_verified"]\n',
    }
    edges = "".join(
        f'[[pipeline.edges]]\nfrom = "{a}"\nto = "{b}"\nadvance = "auto"\n{extra.get(a, "")}\n'
        for a, b in pairwise(names)
    )
    code = str(Path(__file__).resolve().parents[2])
    return f"""# Made by `journal demo`: the default pipeline over embedded adapters, driven without a person.
[journal]
db = "{stage.db.name}"

[pipeline]
stages = {json.dumps(names)}
on_new_head = "review"

{edges}
[gates.coverage]
use = "coverage"
reports = {json.dumps(REPORTS)}

[steps.merge_pr]
use = "git-merge"
retry_s = 0.1

[steps.ratchet]
use = "ratchet"
budget_s = 60
reports = {json.dumps(REPORTS)}
retry_s = 0.1

[steps.rebuild]
use = "command"
budget_s = 1800
guard = "repeatable"
irreversible = false
apply = {json.dumps(build + place)}
probe = {json.dumps([*build, "--probe", *place])}
cwd = {json.dumps(code)}
retry_s = 0.1

[steps.merge_verified]
use = "git-merge-verified"
budget_s = 0
retry_s = 0.1

[steps.deploy_init]
use = "self-deploy"
folder = "deploys"
command = {json.dumps(release)}
cwd = {json.dumps(code)}
retry_s = 0.1

[steps.deploy_verified]
use = "deploy-verified"
budget_s = 2000
folder = "deploys"
waits = 8
retry_s = 0.1

[integrations.git.repositories]
"{REPO}" = {json.dumps(repository)}

[integrations.deploy]
version_file = "releases/current"
"""
