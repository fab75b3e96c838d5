"""Worst days of a disk, a crowd and a stop, on real file systems and real processes; each ends with a whole log."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from integrations.cli.app import main
from journal.errors import JournalError
from journal.events import Event
from journal.results import Advanced, Unavailable
from tests.acting import desk, three_stages
from tests.conftest import Counts, missing
from tests.contract.test_openapi_fuzz import NEIGHBOURS, SECRETS
from tests.doubles import gitea
from tests.e2e.test_worst_days import Reached, intact, new
from tests.lived import ROOT

KEPT = httpx.Limits(max_connections=40, keepalive_expiry=1)
"""Shorter than the server keeps a connection: else one that it closes is used once more."""
STOP_S = 5.0
"""A stop takes no longer, whatever goes on."""


@contextmanager
def small_disk(folder: Path, size: str = "48m") -> Iterator[Path]:
    """A file system of its own, a little larger than what must be free before an effect starts."""
    if os.geteuid() != 0:
        missing("root, which mounting needs,")
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(folder)]
    done = subprocess.run(mount, capture_output=True, check=False)
    if done.returncode:
        missing("leave to mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path) -> Path:
    """Take the last free byte."""
    ballast = folder / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            with suppress(OSError):
                while file.write(b"x" * size):
                    pass
    return ballast


@pytest.mark.proves("E1", "O1")
async def test_a_disk_that_is_full_at_any_event_of_a_delivery_stops_it_and_it_goes_on_once_there_is_room(
    tmp_path: Path,
) -> None:
    """Full right after each commit in turn. No effect without its intent, and exactly one when all is done."""
    met = Counter[str]()
    for nth in range(1, 7):
        with small_disk(tmp_path / f"disk-{nth}") as disk:
            effects = tmp_path / f"effects-{nth}"
            effects.mkdir()

            def filling(events: Sequence[Event], disk: Path = disk, nth: int = nth) -> None:
                if any(e.position >= nth for e in events):
                    fill(disk)

            (disk / "world").symlink_to(effects)
            with suppress(JournalError):
                async with desk(disk, three_stages("auto", "auto")) as at:
                    writer = at.journal.log.writer
                    assert writer is not None
                    writer.on_events = filling
                    if nth == 1:
                        fill(disk)
                    with suppress(JournalError):
                        await at.open("T-1", stage="ship")
                    result = await at.journal.advance("T-1")
                    met[type(result).__name__] += 1
                    assert isinstance(result, Advanced | Unavailable) or nth == 1, (nth, result)
            (disk / "ballast").unlink(missing_ok=True)
            async with desk(disk, three_stages("auto", "auto")) as at:
                with suppress(JournalError):
                    await at.open("T-1", stage="ship")
                if await at.stage("T-1") != "done":
                    assert isinstance(await at.journal.advance("T-1"), Advanced), nth
                assert await at.stage("T-1") == "done"
            assert len((effects / "T-1__1__merge_pr.calls").read_text().splitlines()) == 1, nth
            assert intact(disk / "j.db")
    assert met["Unavailable"] >= 2, met


def test_on_a_file_system_that_became_read_only_audits_go_on_and_writing_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*argv: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["--db", str(disk / "journal.db"), *argv])
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out + said.err

    with small_disk(tmp_path / "disk") as disk:
        assert run("init", str(disk))[0] == run("open", "T-1", "--repo", "acme/widgets", "--branch", "f")[0] == 0
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        for audit in (["inspect", "T-1"], ["explain", "T-1"], ["queue"], ["log"], ["verify"]):
            code, said = run(*audit)
            assert (code, "Traceback" in said) == (0, False), said
        for writing in (["advance", "T-1"], ["pause", "T-1", "--reason", "r"], ["serve", "--port", "0"]):
            code, said = run(*writing)
            assert code == 4 and "Traceback" not in said, (writing, code, said)
            assert "read-only" in said.lower() or "read only" in said.lower(), said
        code, said = run("doctor")
        assert (code, "mounted read-only" in said) == (0, True), said
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
        assert run("advance", "T-1")[0] == 0
        assert intact(disk / "journal.db")


# -- real services -----------------------------------------------------------------------------------------------------


class Service(Reached):
    """A real service whose log goes to a file: nobody's pipe fills up."""

    def __init__(self, folder: Path, name: str = "service") -> None:
        self.folder, self.db, self.log = folder, folder / "journal.db", folder / f"{name}.log"
        config = str(folder / "journal.toml")
        argv = [sys.executable, "-m", "integrations.cli", "--config", config, "serve", "--port", "0"]
        with self.log.open("wb") as log:
            env = os.environ | {"ORCH_LOG_FORMAT": "json"}
            self.process = subprocess.Popen(argv, cwd=ROOT, env=env, stderr=log, stdout=log, stdin=subprocess.DEVNULL)

    def said(self, event: str) -> dict[str, str] | None:
        for line in self.log.read_text("utf-8", "replace").splitlines():
            with suppress(ValueError):
                if (found := json.loads(line)).get("event") == event:
                    return dict(found)
        return None

    def until(self, event: str) -> dict[str, str]:
        """Wait until the log says so; the deadline is for hangs."""
        ends_s = time.monotonic() + 60
        while (found := self.said(event)) is None:
            assert self.process.poll() is None and time.monotonic() < ends_s, self.log.read_text()[-2000:]
            time.sleep(0.05)
        return found

    def stop(self) -> float:
        """SIGTERM; seconds until it had ended, cleanly."""
        began_s = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, self.log.read_text()[-2000:]
        return time.monotonic() - began_s


@contextmanager
def services(folder: Path, settings: str) -> Iterator[type[Service]]:
    """Whatever was started in it is ended by its own id."""
    (folder / "journal.toml").write_text(settings)
    begun: list[Service] = []

    class Begun(Service):
        def __init__(self, folder: Path, name: str = "service") -> None:
            super().__init__(folder, name)
            begun.append(self)

    try:
        yield Begun
    finally:
        for each in begun:
            if each.process.poll() is None:
                each.process.kill()
            each.process.wait()


def push(n: int) -> tuple[dict[str, str], bytes]:
    body = {"ref": f"refs/heads/feature/{n}", "after": f"{n:040x}", "repository": {"full_name": "acme/widgets"}}
    raw = json.dumps(body).encode()
    return gitea.signed("push", raw, SECRETS["ORCH_GITEA_WEBHOOK_SECRET"]), raw


def rss_mb(pid: int) -> float:
    (line,) = [x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


@pytest.mark.proves("R69", "TR-9")
async def test_a_flood_of_webhooks_is_recorded_once_each_or_told_to_come_again_and_people_are_still_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: Counts
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    total, said = counts.of(150, most=9_000), Counter[int]()
    with services(tmp_path, NEIGHBOURS) as begin:
        service = begin(tmp_path)
        service.until("ready")
        async with httpx.AsyncClient(
            base_url=service.address, headers=service.token, timeout=60, trust_env=False, limits=KEPT
        ) as client:
            before_mb = rss_mb(service.process.pid)

            async def sender(first: int) -> None:
                for n in range(first + 1, total + 1, 20):
                    headers, raw = push(n)
                    first_time = await client.post("/webhooks/gitea", content=raw, headers=headers)
                    said[first_time.status_code] += 1
                    again = await client.post("/webhooks/gitea", content=raw, headers=headers)
                    assert again.status_code == 200 and again.json() == {"recorded": False}

            floods = [asyncio.create_task(sender(first)) for first in range(20)]
            answered = 0
            while not all(flood.done() for flood in floods):
                assert (await client.get("/queue")).status_code == 200
                answered += 1
            await asyncio.gather(*floods)
            assert said[200] == total and answered > 3, (said, answered)
            assert rss_mb(service.process.pid) - before_mb < 64
        assert service.stop() < STOP_S * 4  # the machine of a test may be busy with others
    assert intact(service.db)


def probing(service: Service) -> None:
    """Wait until a probe of its recovery is running."""
    tasks, ends_s = Path(f"/proc/{service.process.pid}/task"), time.monotonic() + 60
    while not any((task / "children").read_text().strip() for task in tasks.iterdir()):
        assert service.process.poll() is None and time.monotonic() < ends_s
        time.sleep(0.02)


SLOW = """
[pipeline]
stages = ["analysis", "done"]
edges = [{ from = "analysis", to = "done", advance = "auto", steps = ["deed"] }]
[steps.deed]
use = "command"
guard = "exclusive"
budget_s = 600
apply = ["sleep", "300"]
probe = ["sleep", "300"]
"""


@pytest.mark.proves("R68")
async def test_sigterm_under_load_and_inside_recovery_ends_within_seconds_and_harms_nothing(tmp_path: Path) -> None:
    """Thirty operators, and steps whose commands would take minutes; then a recovery whose probes would."""
    with services(tmp_path, SLOW) as begin:
        service = begin(tmp_path)
        service.until("ready")
        halt = threading.Event()
        async with httpx.AsyncClient(
            base_url=service.address, headers=service.token, timeout=60, trust_env=False
        ) as client:
            for n in range(6):
                assert (await client.post("/tasks", json=new(f"T-{n}"))).status_code == 201

            async def operator(n: int) -> None:
                while not halt.is_set():
                    with suppress(httpx.HTTPError):
                        await client.post(f"/tasks/T-{n % 6}/advance", json={"actor": f"operator-{n}"})
                        await client.get("/queue")

            busy = [asyncio.create_task(operator(n)) for n in range(30)]
            for _ in range(5):  # the load is on
                assert (await client.get("/queue")).status_code == 200
            took_s = await asyncio.to_thread(service.stop)
            halt.set()
            await asyncio.gather(*busy)
        assert took_s < STOP_S, took_s
        again = begin(tmp_path, "again")
        await asyncio.to_thread(probing, again)
        assert await asyncio.to_thread(again.stop) < STOP_S
    assert intact(tmp_path / "journal.db")


@pytest.mark.proves("R69", "TR-9")
async def test_a_rolling_restart_loses_no_webhook_and_records_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new process stands by before the old one ends; a sender that is refused comes again."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    with services(tmp_path, NEIGHBOURS) as begin:
        old = begin(tmp_path, "old")
        old.until("ready")
        doors, taken = [old.address], Counter[int]()
        async with httpx.AsyncClient(timeout=10, trust_env=False) as client:

            async def send(n: int) -> None:
                headers, raw = push(n)
                while True:
                    for door in doors:
                        with suppress(httpx.HTTPError):
                            answer = await client.post(door + "/webhooks/gitea", content=raw, headers=headers)
                            if answer.status_code == 200:
                                taken[n] += 1
                                return
                    await asyncio.sleep(0.02)

            async def sender() -> None:
                for n in range(1, 101):
                    await send(n)

            sending = asyncio.create_task(sender())
            fresh = begin(tmp_path, "new")
            doors.append((await asyncio.to_thread(fresh.until, "standing_by"))["address"])
            await asyncio.to_thread(old.stop)
            ready = await asyncio.to_thread(fresh.until, "ready")
            await sending
            asked = await client.get(ready["address"] + "/metrics", headers={"Accept": "application/json"})
            figures = asked.json()
        assert sum(taken.values()) == len(taken) == 100 and figures["standby"] == 0
        assert fresh.stop() < STOP_S * 4
    with closing(sqlite3.connect(tmp_path / "journal.db")) as db:
        found = [row[0] for row in db.execute("SELECT json_extract(hint, '$.head') FROM journal_inbox")]
    assert sorted(found) == [f"{n:040x}" for n in range(1, 101)]
    assert intact(tmp_path / "journal.db")


@pytest.mark.long
async def test_a_soak_by_count_leaves_memory_threads_files_wal_and_log_lines_flat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks are opened, moved, paused, ended and read; what grows must be the log of events and nothing else."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    rounds, seen = int(os.environ.get("SOAK_ROUNDS", "40")), []
    with services(tmp_path, NEIGHBOURS) as begin:
        service = begin(tmp_path)
        service.until("ready")
        pid = service.process.pid
        async with httpx.AsyncClient(
            base_url=service.address, headers=service.token, timeout=60, trust_env=False, limits=KEPT
        ) as client:

            async def life(task: str, n: int) -> None:
                assert (await client.post("/tasks", json=new(task))).status_code == 201
                assert (await client.post(f"/tasks/{task}/advance?wait=20", json={})).status_code == 200
                for verb in ("pause", "resume", "cancel"):
                    assert (await client.post(f"/tasks/{task}/{verb}", json={"reason": "soak"})).status_code == 200
                headers, raw = push(n)
                assert (await client.post("/webhooks/gitea", content=raw, headers=headers)).status_code == 200
                for path in ("/queue", f"/task/{task}", "/metrics", "/"):
                    assert (await client.get(path)).status_code == 200

            for turn in range(rounds):
                before = service.log.stat().st_size
                await asyncio.gather(*(life(f"T-{turn}-{n}", turn * 20 + n + 1) for n in range(20)))
                threads, files = (len(list(Path(f"/proc/{pid}/{what}").iterdir())) for what in ("task", "fd"))
                wal_mb = service.db.with_name("journal.db-wal").stat().st_size / (1 << 20)
                seen.append((rss_mb(pid), threads, files, wal_mb, (service.log.stat().st_size - before) / 1024))
        service.stop()
    first, last = (
        tuple(max(row[i] for row in part) for i in range(5))
        for part in (seen[rounds // 8 : rounds // 4], seen[-rounds // 4 :])
    )
    print("memory MB, threads, files, WAL MB, log KB a round:", first, "->", last)
    assert last[0] < first[0] * 1.15 + 8 and last[1] <= first[1] + 2 and last[2] <= first[2] + 8, (first, last)
    assert last[3] < first[3] + 8 and last[4] < first[4] * 1.5, (first, last)
    assert intact(service.db)
