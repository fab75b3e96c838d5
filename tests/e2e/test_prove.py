"""`journal prove` as a person or a script runs it: over a configuration, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CONFIG = """
[pipeline]
stages = ["review", "deploy", "done"]
on_new_head = "review"

[[pipeline.edges]]
from = "review"
to = "deploy"
steps = ["merge_pr"]

[[pipeline.edges]]
from = "deploy"
to = "done"
steps = ["publish"]

[steps.merge_pr]
use = "git-merge"

[steps.publish]
use = "command"
guard = "repeatable"
irreversible = false
apply = ["./publish"]
probe = ["./published"]

[gates]
"""
PROBED = CONFIG.replace('"repeatable"\nirreversible = false', '"probed"\ndrain_s = 1')


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "journal.toml").write_text(CONFIG)
    return tmp_path


def run(folder: Path, *argv: str, code: int) -> str:
    command = [sys.executable, "-m", "integrations.cli", "prove", *argv]
    root = Path(__file__).parents[2]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(root)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout or done.stderr


def document(folder: Path, *argv: str, code: int) -> Any:
    return json.loads(run(folder, *argv, "--json", code=code))


@pytest.mark.proves("T2", "T7", "I23")
def test_a_pipeline_of_ones_own_is_searched_to_its_end_and_leaves_nothing_behind(folder: Path) -> None:
    found = document(folder, "--budget", "12000", code=0)
    assert found["proved"] and found["failure"] is None
    assert [e["name"] for e in found["edges"]] == ["review -> deploy", "deploy -> done"]
    assert "crash" in found["edges"][0]["level"]
    after = found["edges"][0]["matrix"]["crashes inside apply merge_pr, after the effect"]
    assert after["at deploy"] > 0
    assert found["walks"] > 0
    assert [p.name for p in folder.iterdir()] == ["journal.toml"]


@pytest.mark.proves("E2", "R55")
def test_a_wrong_declaration_fails_with_a_story_that_can_be_replayed(folder: Path) -> None:
    """A merge that is called exclusive and refuses nothing: the late first request lands beside the second."""
    told = run(folder, "--assume", "merge_pr=probed", code=1)
    assert "merge_pr#1 leaves this machine" in told
    assert "!! double: merge_pr landed twice" in told.splitlines()[-2]
    assert "journal prove --replay journal-prove.replay.json" in told.splitlines()[-1]
    assert len([line for line in told.splitlines() if ". worker " in line]) < 15
    again = run(folder, "--replay", "journal-prove.replay.json", code=1)
    assert again.splitlines()[-1] == "still fails: double: merge_pr landed twice"
    # The story goes on while the far side does what was declared: nothing is wrong with the engine.
    schedule = folder / "journal-prove.replay.json"
    schedule.write_text(schedule.read_text().replace('"merge_pr": "probed"', '"merge_pr": "exclusive"'))
    assert not document(folder, "--replay", schedule.name, code=0)["failed"]


@pytest.mark.proves("E2")
def test_a_declaration_that_is_too_modest_harms_nothing(folder: Path) -> None:
    (folder / "journal.toml").write_text(PROBED)
    assert document(folder, "--budget", "12000", "--assume", "publish=exclusive", code=0)["proved"]


@pytest.mark.proves("S1")
def test_what_rests_on_an_assumption_fails_without_it(folder: Path) -> None:
    (folder / "journal.toml").write_text(PROBED)
    found = document(folder, "--without", "commits-survive", code=1)
    assert found["failure"]["where"] == "deploy -> done"
    assert found["failure"]["why"] == "double: publish landed twice"
    assert any("power cut" in line for line in found["failure"]["story"])


def test_a_budget_that_is_too_small_proves_nothing_and_says_so(folder: Path) -> None:
    told = run(folder, "--budget", "1000", code=1)
    assert "raise --budget" in told


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--assume", "merge=probed"), "there are: merge_pr, publish"),
        (("--assume", "merge_pr=lucky"), "'lucky' is none of repeatable, exclusive, fenced, probed, blind"),
        (("--without", "luck"), "'luck' is none of lock-holds"),
        (("--replay", "journal.toml"), "not a schedule"),
        (("other.toml",), "no such file"),
    ],
)
def test_what_cannot_be_is_refused_with_what_could(folder: Path, argv: tuple[str, ...], said: str) -> None:
    assert said in run(folder, *argv, code=2)
