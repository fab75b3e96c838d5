"""Real service processes on a real stage, for tests: started, asked over HTTP, stopped by their id."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from integrations.demo.stage import Stage

DEADLINE_S = 60.0


@dataclass
class Services:
    """The processes of one test."""

    stage: Stage
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, *, prefix: tuple[str, ...] = (), env: dict[str, str] | None = None) -> Running:
        """Start one more service on the stage's journal; whether it drives or stands by is its own finding."""
        port = free_port()
        argv = [*prefix, sys.executable, "-m", "integrations.demo.service", str(self.stage.config), str(port)]
        with self.stage.log.open("ab") as log:
            process = subprocess.Popen(
                argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})}
            )
        self.processes.append(process)
        return Running(self.stage, process, f"http://127.0.0.1:{port}")


@dataclass(frozen=True)
class Running:
    """One service process."""

    stage: Stage
    process: subprocess.Popen[bytes]
    address: str

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.address + path, timeout=10)

    def post(self, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        token = (self.stage.db.with_name(self.stage.db.name + ".locks") / "local-token").read_text("ascii").strip()
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.post(self.address + path, json=body, headers=headers, timeout=30)

    def wait_for(self, path: str, status: int = 200) -> httpx.Response:
        """Ask until the answer has this status; the deadline is for hangs, no test rests on it."""
        until = time.monotonic() + DEADLINE_S
        last = "no answer"
        while time.monotonic() < until:
            with suppress(httpx.HTTPError):
                answer = self.get(path)
                if answer.status_code == status:
                    return answer
                last = answer.text
            assert self.process.poll() is None, f"the service ended: {self.stage.log.read_text()[-2000:]}"
            time.sleep(0.05)
        raise AssertionError(f"{path} did not answer {status} in time: {last}")

    def wait_for_stage(self, task: str, *stages: str) -> dict[str, Any]:
        """Ask until the task is in one of these stages."""
        until = time.monotonic() + DEADLINE_S
        found: dict[str, Any] = {}
        while time.monotonic() < until:
            with suppress(httpx.HTTPError):
                found = self.get(f"/tasks/{task}").json()
                if found.get("stage") in stages:
                    return found
            time.sleep(0.05)
        raise AssertionError(f"{task} did not reach {stages}: {found}")

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        return self.process.wait(timeout=DEADLINE_S)


@contextmanager
def services(stage: Stage) -> Iterator[Services]:
    """Whatever a test leaves running is ended by its id."""
    found = Services(stage)
    try:
        yield found
    finally:
        for process in found.processes:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    process.send_signal(signal.SIGCONT)
                    process.kill()
            process.wait(timeout=DEADLINE_S)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def open_task(service: Running, stage: Stage, n: int) -> str:
    """Open the n-th task of the stage through the API."""
    feature = stage.scenery.features[n - 1]
    body = {"task": stage.task(n), "repo": "acme/widgets", "branch": feature.branch, "head": feature.head}
    answer = service.post("/tasks", body)
    assert answer.status_code == 201, answer.text
    return stage.task(n)


def artefact_count(folder: Path) -> int:
    return len(list(folder.glob("*.tar"))) if folder.exists() else 0
