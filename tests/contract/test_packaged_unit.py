"""
The unit of docs/deploy: liked by systemd's own checks, and its command run as it says, killed, and started again.

No systemd runs where tests do: what it would give a service (folder, environment, credential, notify socket), and what
it would do after a kill, is done by hand.
"""

from __future__ import annotations

import configparser
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from journal.events import NOBODY
from journal.locks import read_holder
from journal.ownership import Locks
from tests.conftest import need_tool
from tests.lived import ROOT

UNIT = ROOT / "docs" / "deploy" / "journal.service"
INSTALLED = "/opt/journal/bin/journal"
EXPOSED = 20
"""Tenths of what systemd calls an exposure: 2.0 is "ok" by its own words."""
BEGUN_S = 60.0


def unit() -> configparser.SectionProxy:
    read = configparser.ConfigParser(interpolation=None, strict=False, delimiters=("=",))
    read.optionxform = str  # type: ignore[assignment, method-assign]
    read.read_string(UNIT.read_text("utf-8"))
    return read["Service"]


@pytest.mark.proves("R68")
def test_systemd_finds_nothing_wrong_with_the_unit_and_calls_its_exposure_ok(tmp_path: Path) -> None:
    systemd = need_tool("systemd-analyze")
    here = tmp_path / "journal.service"
    here.write_text(UNIT.read_text("utf-8").replace(INSTALLED, sys.executable).replace("User=journal", "User=root"))
    for argv in (
        ["verify", "--man=no", str(here)],
        ["security", "--offline=true", f"--threshold={EXPOSED}", str(UNIT)],
    ):
        done = subprocess.run([systemd, *argv], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout[-1500:] + done.stderr


@contextmanager
def begun(folder: Path, notified: socket.socket) -> Iterator[subprocess.Popen[bytes]]:
    """What ExecStart says, where and with what the unit says; ready once it has told so."""
    service, credentials = unit(), folder / "credentials"
    credentials.mkdir(exist_ok=True)
    (credentials / "operator_token").write_text("made-up-token")
    given = dict(pair.split("=", 1) for pair in shlex.split(service["Environment"]))
    state = service["WorkingDirectory"]
    given = {k: v.replace("%d", str(credentials)).replace(state, str(folder)) for k, v in given.items()}
    program, *rest = shlex.split(service["ExecStart"])
    assert program == INSTALLED
    given |= {"NOTIFY_SOCKET": str(notified.getsockname()), "PATH": os.environ["PATH"], "WATCHDOG_USEC": "30000000"}
    argv = [sys.executable, "-m", "integrations.cli", *rest, "--port", "0"]
    env = given | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while b"READY=1" not in notified.recv(4096):
            pass
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.proves("R68", "O1")
def test_the_units_command_is_ready_under_its_environment_and_goes_on_after_a_kill(tmp_path: Path) -> None:
    db = tmp_path / "journal.db"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(tmp_path / "notify"))
        notified.settimeout(BEGUN_S)
        for epoch, stage in ((1, "architecture"), (2, "development")):
            with begun(tmp_path, notified) as process:
                address = read_holder(Locks(db, NOBODY).writer_path()).address
                headers = {"Authorization": "Bearer made-up-token"}
                with httpx.Client(base_url=address, headers=headers, timeout=30, trust_env=False) as client:
                    if epoch == 1:
                        body = {"task": "T-1", "repo": "acme/widgets", "branch": "f", "actor": "operator"}
                        assert client.post("/tasks", json=body).status_code == 201
                    moved = client.post("/tasks/T-1/advance?wait=20", json={}).json()
                    assert (moved["to_stage"], moved["epoch"]) == (stage, epoch), moved
                process.send_signal(signal.SIGKILL if epoch == 1 else signal.SIGTERM)
                assert process.wait(30) == (-signal.SIGKILL if epoch == 1 else 0)
    told = subprocess.run(
        [sys.executable, "-m", "integrations.cli", "--db", db, "--json", "inspect", "T-1"],
        cwd=ROOT, capture_output=True, check=True,
    )  # fmt: skip
    assert json.loads(told.stdout)["verified"] is True
