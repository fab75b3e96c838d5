"""The service with its actors: jobs that outlive it, a webhook to its end, a writer that hangs (DESIGN 5, 8)."""

from __future__ import annotations

import hashlib
import hmac
import json
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from integrations.demo.stage import Stage, build_stage
from tests.acting import notes, python
from tests.e2e.services import DEADLINE_S, open_task, services
from tests.widgets import run_git

JOB = """
import os, sys, time
out, go = sys.argv[1:]
fd = os.open(out, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
os.write(fd, b"x")
while not os.path.exists(go):
    time.sleep(0.01)
"""
SECRET = "webhook-secret-of-the-tests"


def until(holds: Callable[[], object], what: str) -> None:
    """Look again and again; the deadline is for hangs, no test rests on it."""
    end = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def with_job(stage: Stage, *command: str) -> None:
    """Let the first stage have work: a job before its edge."""
    text = stage.config.read_text("utf-8")
    first = 'from = "analysis"\nto = "architecture"\nadvance = "auto"\n'
    assert first in text
    text = text.replace(first, first.replace("auto", "job"))
    stage.config.write_text(f"{text}\n[jobs.analysis]\nretries = 0\ncommand = {json.dumps(command)}\n", "utf-8")


def jobs(stage: Stage) -> list[tuple[str, int, int]]:
    """(state, attempts, losses) of every job, read beside the service."""
    with closing(sqlite3.connect(f"file:{stage.db}?mode=ro", uri=True)) as db:
        return db.execute("SELECT state, attempts, losses FROM journal_jobs ORDER BY id").fetchall()


@pytest.mark.proves("R126", "R48", "FR-3", "R29", "R68")
def test_neither_a_clean_stop_nor_a_kill_in_the_last_try_of_a_job_uses_it_up(tmp_path: Path) -> None:
    stage = build_stage(tmp_path / "stage", 1)
    ran, go = tmp_path / "ran", tmp_path / "go"
    with_job(stage, *python(JOB), str(ran), str(go))
    with services(stage) as group:
        first = group.start()
        first.wait_for("/readyz")
        task = open_task(first, stage, 1)
        until(lambda: notes(ran) == 1, "the job starts")
        first.kill(signal.SIGTERM)  # ended with its service: back into the queue, uncharged
        first.wait()
        assert jobs(stage) == [("queued", 0, 0)]
        second = group.start()
        until(lambda: notes(ran) == 2, "the job starts again")
        second.kill()
        second.wait()
        third = group.start()
        third.wait_for("/readyz")
        position = third.get("/queue").json()["position"]
        time.sleep(2.5)  # more than two rounds of reaper and worker: both meet the job, and leave it alone
        assert (notes(ran), jobs(stage)) == (2, [("running", 0, 0)])
        assert third.get("/queue").json()["position"] == position
        go.touch()  # it ends; nobody saw with which code, so it is done again
        third.wait_for_stage(task, "deploy-staging", "deploy", "done")
        assert (notes(ran), jobs(stage)) == (3, [("done", 0, 1)])


@pytest.mark.proves("R69", "R70", "R73", "DC-4")
def test_a_signed_push_reaches_the_task_and_an_unsigned_one_reaches_nothing(tmp_path: Path) -> None:
    stage = build_stage(tmp_path / "stage", 2)
    text = stage.config.read_text("utf-8").replace('advance = "auto"', 'advance = "manual"')
    forge = '[integrations.gitea]\nurl = "http://127.0.0.1:9"\n'  # nobody listens: the repository is a local one
    # No poll comes to the webhook's help.
    stage.config.write_text(f"{text}\n{forge}[serve]\npoll_s = 3600\n", "utf-8")
    feature, other = stage.scenery.features
    body = {"ref": f"refs/heads/{feature.branch}", "after": other.head, "repository": {"full_name": "acme/widgets"}}
    raw = json.dumps(body).encode()
    signed = hmac.new(SECRET.encode(), raw, hashlib.sha256).hexdigest()
    with services(stage) as group:
        service = group.start(env={"ORCH_GITEA_WEBHOOK_SECRET": SECRET})
        service.wait_for("/readyz")
        new = {"task": "P-1", "repo": "acme/widgets", "branch": feature.branch, "head": feature.head}
        assert service.post("/tasks", new | {"stage": "testing"}).status_code == 201
        run_git(stage.scenery.repository, "update-ref", f"refs/heads/{feature.branch}", other.head)  # a force-push

        def send(signature: str) -> int:
            headers = {"X-Gitea-Event": "push", "X-Gitea-Delivery": "d-1", "X-Gitea-Signature": signature}
            url = service.address + "/webhooks/gitea"
            return httpx.post(url, content=raw, headers=headers, timeout=10).status_code

        position = service.get("/queue").json()["position"]
        assert send("0" * 64) == 401
        assert service.get("/queue").json()["position"] == position
        assert [send(signed), send(signed)] == [200, 200]
        service.wait_for_stage("P-1", "review")  # a new head sends it back
        found = service.get("/tasks/P-1").json()
        assert (found["head"], found["generation"]) == (other.head, 2)
        assert SECRET not in stage.log.read_text()


@pytest.mark.proves("TR-1", "TR-7", "R39")
def test_a_service_that_hangs_is_ended_by_a_standby_that_is_told_to_and_the_work_goes_on(tmp_path: Path) -> None:
    stage = build_stage(tmp_path / "stage", 1)
    stage.config.write_text(stage.config.read_text("utf-8") + "\n[serve]\nstandby_kills_after_s = 10\n", "utf-8")
    with services(stage) as group:
        first = group.start()
        first.wait_for("/readyz")
        second = group.start()
        second.wait_for("/readyz", 503)
        first.kill(signal.SIGSTOP)
        second.wait_for("/readyz")
        assert first.wait() == -signal.SIGKILL
        task = open_task(second, stage, 1)
        second.wait_for_stage(task, "deploy", "done")
