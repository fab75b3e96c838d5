"""A real service tells a real chat (a double on loopback) of a task that needs a person, also when it was killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from integrations.settings import load
from integrations.wiring import build, open_journal
from journal.journal import NewTask
from tests.doubles.serving import served
from tests.doubles.telegram import TOKEN, Telegram

CONFIG = """
[journal]
db = "journal.db"
[pipeline]
stages = ["deploy", "done"]
on_new_head = ""
[[pipeline.edges]]
from = "deploy"
to = "done"
advance = "auto"
steps = ["publish"]
[steps.publish]
use = "command"
guard = "exclusive"
apply = ["true"]
probe = ["sh", "-c", "exit 12"]
budget_s = 5
[gates]
[integrations.alerts]
telegram_chat = "-100"
telegram_api = "{url}"
task_url = "https://plane.example/browse/{{task}}"
"""


def start(config: Path) -> subprocess.Popen[bytes]:
    """The service as a person starts it."""
    argv = [sys.executable, "-m", "integrations.cli", "--config", str(config), "serve", "--port", "0"]
    env = {**os.environ, "ORCH_TELEGRAM_TOKEN": TOKEN}
    log = (config.parent / "service.log").open("ab")
    with log:
        return subprocess.Popen(argv, stdout=log, stderr=log, env=env, start_new_session=True)


async def told(double: Telegram, count: int, service: subprocess.Popen[bytes]) -> None:
    """Wait until the chat has read so many messages."""
    async with asyncio.timeout(40):
        while len(double.messages) < count and service.poll() is None:  # noqa: ASYNC110 - another process tells
            await asyncio.sleep(0.05)


@pytest.mark.proves("FR-6")
async def test_a_parked_task_is_told_and_told_again_only_if_the_service_died_before_it_knew(tmp_path: Path) -> None:
    double = Telegram()
    async with served(double) as url:
        config = tmp_path / "journal.toml"
        config.write_text(CONFIG.format(url=url))
        settings = load(config)
        async with open_journal(settings, build(settings)) as journal:
            await journal.open_task(NewTask("ORCH-7", "acme/widgets", "feature/1"), actor="operator")
        double.drop_after = 1  # the message is taken; the answer never comes
        service = start(config)
        await told(double, 1, service)
        os.killpg(service.pid, signal.SIGKILL)
        service.wait()
        log = (tmp_path / "service.log").read_text()
        assert len(double.messages) == 1, log
        service = start(config)
        await told(double, 2, service)
        service.send_signal(signal.SIGTERM)
        assert service.wait(20) == 0
    first, second = double.texts
    assert first == second and "ORCH-7/1/1/" in first and "parked" in first
    assert TOKEN not in (tmp_path / "service.log").read_text()


def test_a_chat_without_a_bot_is_refused_before_anything_starts(tmp_path: Path) -> None:
    config = tmp_path / "journal.toml"
    config.write_text(CONFIG.format(url="http://127.0.0.1:1"))
    argv = [sys.executable, "-m", "integrations.cli", "--config", str(config), "serve", "--port", "0"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("ORCH_")}
    done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=60, check=False)
    assert done.returncode == 2 and "ORCH_TELEGRAM_TOKEN" in done.stderr
    assert not (tmp_path / "journal.db").exists()
