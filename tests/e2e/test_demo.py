"""The main job as a user runs it: real git, processes and signals; counted in git, files and the ledger."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from integrations.demo.crash import POINTS, CrashPoint, all_points
from integrations.demo.run import run_once
from integrations.demo.stage import build_stage
from integrations.demo.supervisor import Course, News
from integrations.settings import Environment, load
from integrations.wiring import build

STEPS = ("merge_pr", "ratchet", "rebuild", "deploy_init")
AWAITED = ("merge_verified", "deploy_verified")
EVERY = [f"{step}:{point}" for step in STEPS for point in POINTS] + [f"{step}:after-outcome" for step in AWAITED]


def _ignore(point: str, news: News, course: Course) -> None:
    del point, news, course


@pytest.mark.proves("FR-4", "DC-1", "DC-3", "DC-4", "V9", "V10", "E1", "I23", "TR-3", "R03", "R56", "R59", "R60")
@pytest.mark.parametrize("crash", EVERY)
async def test_a_kill_at_any_point_leaves_each_effect_exactly_once(tmp_path: Path, crash: str) -> None:
    """SIGKILL the real service there, start it again, let it redeploy itself; then count outside."""
    report = await run_once(tmp_path / "demo", 1, crash, _ignore)
    (counted,) = report.counted
    assert report.course.kills == 1, "the service did not die where it should"
    assert counted.exact, counted
    assert not report.course.held


def test_the_crash_points_are_all_there_are(tmp_path: Path) -> None:
    """A step that is added to the demo's pipeline must be killed at, too."""
    pipeline = build(load(build_stage(tmp_path / "demo", 1).config, environment=Environment())).pipeline
    assert {str(p) for p in all_points(pipeline)} == set(EVERY)
    assert CrashPoint("merge_verified", "after-effect") not in all_points(pipeline)


@pytest.mark.proves("FR-1", "FR-4", "E13", "O2", "R12", "R48", "R53")
def test_the_demo_command_drives_three_tasks_through_a_kill_and_three_self_deploys(tmp_path: Path) -> None:
    """`journal demo --json`: one document on standard output, exit 0, every count exactly one."""
    command = [sys.executable, "-m", "integrations.cli", "--json", "demo", "--dir", str(tmp_path / "demo")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    report = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert report["ok"]
    assert report["kills"] == 1
    assert report["restarts"] >= 4  # the kill, and each task's deploy ends the service that asked for it
    assert [t["merges"] for t in report["tasks"]] == [1, 1, 1]
    merging = {d["task"] for d in report["decisions"] if d["step"] == "merge_pr" and d["verdict"] == "converge"}
    assert any(_told_to_a_stranger(tmp_path / "demo", task) for task in merging), report["decisions"]


def _told_to_a_stranger(folder: Path, task: str) -> bool:
    """Who owned it, what was in doubt, which fact settled it, and why nothing ran twice."""
    command = [sys.executable, "-m", "integrations.cli", "--config", str(folder / "journal.toml"), "--json"]
    said = subprocess.run([*command, "explain", task], capture_output=True, timeout=60, check=True).stdout
    whole = re.compile(
        r"merge_pr: worker@\S+:\d+ began attempt 1 in epoch \d+ and its term ended without a word \(gone\), so whether "
        r"it happened was not known\. \w+@\S+:\d+ took over in epoch \d+ and asked git: the effect is there and "
        rf"carries our key {task}/1/merge_pr\. It was recorded as done; nothing was run again \(position \d+\)\. "
        r"merge_pr was begun once in all\."
    )
    return any(map(whole.fullmatch, json.loads(said)["doubts"]))


def test_a_folder_in_use_is_refused_and_left_alone(tmp_path: Path) -> None:
    """A demo must not write into somebody's folder."""
    (tmp_path / "mine").write_text("precious")
    command = [sys.executable, "-m", "integrations.cli", "demo", "--dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "not empty" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]
