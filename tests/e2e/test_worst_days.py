"""Worst days, bounded: the real service under strangers, crowds and hands in its folder; a clock that is set back."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from journal.events import NOBODY
from journal.locks import read_holder
from journal.log.offline import open_evidence
from journal.ownership import Locks, lock_folder
from journal.results import Advanced, Waiting
from journal.words import Fact
from projections import all_views
from projections.base import ask
from projections.queue import due_tasks
from recovery.verify import verify
from tests.acting import desk, three_stages
from tests.builders import FileStep, StandingClock
from tests.contract.test_advance_stage import Bent
from tests.contract.test_cli_writes import service

YEAR_US = 365 * 86_400 * 1_000_000


class Reached:
    """How a service with a database is reached."""

    db: Path

    @property
    def address(self) -> str:
        return read_holder(Locks(self.db, NOBODY).writer_path()).address

    @property
    def token(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {(lock_folder(self.db) / 'local-token').read_text().strip()}"}


@dataclass
class Running(Reached):
    """A real service."""

    db: Path
    pid: int

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.address, headers=self.token, timeout=60, trust_env=False)

    def files(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))


@contextmanager
def running(folder: Path, settings: str = "") -> Iterator[Running]:
    config = folder / "journal.toml"
    config.write_text(settings)
    with service(config) as process:
        yield Running(folder / "journal.db", process.pid)


def new(task: str) -> dict[str, object]:
    return {"task": task, "repo": "acme/widgets", "branch": f"feature/{task}", "actor": "operator"}


def intact(db: Path) -> bool:
    with open_evidence(db) as opened:
        return verify(opened, projections=all_views(), deep=True).intact


@pytest.mark.proves("R93", "L3", "S7")
async def test_thirty_operators_at_once_all_get_an_answer_and_the_log_stays_whole(tmp_path: Path) -> None:
    with running(tmp_path) as at:
        async with at.client() as client:

            async def operator(n: int) -> list[int]:
                said = []
                for verb in ("pause", "resume", "cancel"):
                    task = f"T-{n % 5}"  # six of them at each task
                    answer = await client.post(f"/tasks/{task}/{verb}", json={"reason": f"operator {n}"})
                    said.append(answer.status_code)
                return said

            for n in range(5):
                assert (await client.post("/tasks", json=new(f"T-{n}"))).status_code == 201
            codes = [code for said in await asyncio.gather(*map(operator, range(30))) for code in said]
            assert len(codes) == 90 and set(codes) <= {200, 202, 409}
            assert (await client.get("/readyz")).status_code == 200
            queue = (await client.get("/queue")).json()
            assert queue["tasks"] == []  # every task was canceled by somebody, once
    assert intact(tmp_path / "journal.db")


@pytest.mark.proves("R80")
async def test_clients_that_hang_up_in_the_middle_of_a_request_cost_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as at:
        host, port = urlsplit(at.address).hostname, urlsplit(at.address).port
        assert host and port
        body = b'{"task": "T-%d", "repo": "acme/widgets", "branch": "f", "actor": "operator"}'
        async with at.client() as client:
            await client.get("/healthz")
            before = at.files()
            for n in range(200):
                text = body % n
                head = f"POST /tasks HTTP/1.1\r\nHost: x\r\nAuthorization: {at.token['Authorization']}\r\n"
                head += f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
                whole = head.encode() + text
                with socket.create_connection((host, port), timeout=10) as stranger:
                    stranger.sendall(whole[: len(whole) * (n % 20 + 1) // 20])  # the last twentieth sends all of it
            for _ in range(100):
                if at.files() <= before + 1:
                    break
                await asyncio.sleep(0.1)
            assert at.files() <= before + 1
            opened = (await client.get("/tasks", params={"limit": 200})).json()["tasks"]
            assert len(opened) <= 10  # only of those that were sent whole
            assert (await client.get("/readyz")).status_code == 200
    assert intact(tmp_path / "journal.db")


@pytest.mark.proves("R88")
async def test_a_state_folder_replaced_under_the_service_stops_every_write_and_says_so(tmp_path: Path) -> None:
    with running(tmp_path) as at:
        async with at.client() as client:
            assert (await client.post("/tasks", json=new("T-1"))).status_code == 201
            at.db.rename(tmp_path / "aside.db")
            shutil.copyfile(tmp_path / "aside.db", at.db)
            refused = await client.post("/tasks", json=new("T-2"))
            assert refused.status_code == 503 and "removed or replaced" in refused.json()["detail"]
            ready = await client.get("/readyz")
            assert ready.status_code == 503 and "removed or replaced" in ready.text
            assert (await client.get("/healthz")).status_code == 200
    assert intact(tmp_path / "aside.db")


@pytest.mark.proves("R68", "O1")
def test_sigterm_in_the_middle_of_starting_ends_within_seconds_and_harms_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as at:
        db = at.db
        os.kill(at.pid, signal.SIGTERM)
    with running(tmp_path) as again:
        assert again.pid != at.pid
    assert intact(db)


@pytest.mark.proves("L5")
async def test_a_clock_set_back_by_a_year_delays_no_look_and_harms_no_task(tmp_path: Path) -> None:
    """What was written a moment ago lies in the future then, and what was due in a second would be due in a year."""
    clock = StandingClock()
    bent: list[Bent] = []

    def step(folder: Path) -> FileStep:
        bent.append(Bent(folder, probes=[Fact.UNKNOWN] * 2))
        return bent[0]

    async with desk(tmp_path, three_stages("auto"), clock=clock, step=step) as at:
        await at.open("T-1", stage="ship")
        assert isinstance(await at.journal.advance("T-1"), Waiting)
        assert (await at.journal.stream("T-1")).look_us > clock.now_us()
        assert await ask(at.journal.log, due_tasks(clock.now_us(), 9)) == ()  # it waits its time
        clock.us -= YEAR_US
        assert [due.task for due in await ask(at.journal.log, due_tasks(clock.now_us(), 9))] == ["T-1"]
        assert isinstance(await at.journal.advance("T-1"), Advanced)
        assert len(bent[0].calls("T-1/1/merge_pr")) == 1
    assert intact(tmp_path / "j.db")
