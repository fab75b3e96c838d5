"""Several service processes on one journal: one drives, the others stand by; kernel locks say who."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from integrations.demo.count import count
from integrations.demo.stage import Stage, build_stage
from tests.conftest import missing
from tests.e2e.services import open_task, services


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return build_stage(tmp_path / "stage", 1)


@pytest.mark.proves("S4", "O4", "FR-1", "R38", "R99", "TR-6")
def test_a_second_service_stands_by_reads_and_takes_over_when_the_first_is_killed(stage: Stage) -> None:
    """No TTL and no heartbeat: the kernel hands the lock over the moment its holder dies."""
    with services(stage) as group:
        first = group.start()
        first.wait_for("/readyz")
        second = group.start()
        answer = second.wait_for("/readyz", 503)
        assert answer.json()["standby"] is True
        assert second.get("/queue").status_code == 200
        refused = second.post("/tasks", {"task": "X-1", "repo": "acme/widgets", "branch": "feature/1"})
        assert refused.status_code == 503
        first.kill()
        first.wait()
        second.wait_for("/readyz")
        task = open_task(second, stage, 1)
        second.wait_for_stage(task, "deploy", "done")


@pytest.mark.proves("E5", "O3", "R29", "TR-10")
def test_nobody_takes_over_from_a_stopped_service_until_it_is_killed(stage: Stage) -> None:
    """A frozen process keeps its locks: it may wake up at any time, so nobody acts for it."""
    with services(stage) as group:
        first = group.start()
        first.wait_for("/readyz")
        second = group.start()
        second.wait_for("/readyz", 503)
        first.kill(signal.SIGSTOP)
        for _ in range(20):  # asked again and again, the answer stays the same: no timer is running anywhere
            assert second.get("/readyz").json()["standby"] is True
        first.kill()
        first.wait()
        second.wait_for("/readyz")


@pytest.mark.proves("R68", "E1")
def test_sigterm_ends_the_service_cleanly_and_frees_the_journal(stage: Stage) -> None:
    """Exit 0, no traceback; a successor drives at once."""
    with services(stage) as group:
        first = group.start()
        first.wait_for("/readyz")
        first.kill(signal.SIGTERM)
        assert first.wait() == 0
        assert "Traceback" not in stage.log.read_text()
        group.start().wait_for("/readyz")


@pytest.mark.proves("F6", "R27", "R28", "R31")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a pid namespace")
def test_as_pid_1_it_is_killed_and_its_successor_with_the_same_pid_recovers(tmp_path: Path) -> None:
    """In a container everyone is pid 1 with the host's boot id: neither may make a dead owner look alive, or ours."""
    if shutil.which("unshare") is None:
        missing("unshare")
    stage = build_stage(tmp_path / "stage", 1)
    namespace = ("unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--")
    with services(stage) as group:
        first = group.start(prefix=namespace, env={"JOURNAL_DEMO_CRASH": "merge_pr:after-effect"})
        first.wait_for("/readyz")
        task = open_task(first, stage, 1)
        first.wait()
        holder = (stage.db.with_name(stage.db.name + ".locks") / "writer.lock").read_text()
        assert json.loads(holder)["pid"] == 1
        second = group.start(prefix=namespace)
        second.wait_for("/readyz")
        second.wait_for_stage(task, "deploy", "done")
        assert count(stage, {})[0].merges == 1


@pytest.mark.proves("NFR-2", "NFR-8")
def test_the_switch_off_without_a_host_refuses_to_serve(stage: Stage) -> None:
    """There is no earlier behaviour to return to."""
    argv = [sys.executable, "-m", "integrations.cli", "--config", str(stage.config), "serve", "--port", "0"]
    env = {**os.environ, "ORCH_TRANSITION_JOURNAL_ENABLED": "false"}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env=env)
    assert done.returncode == 2
    assert "ORCH_TRANSITION_JOURNAL_ENABLED" in done.stderr
    assert not stage.db.exists()
