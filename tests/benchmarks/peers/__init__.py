"""
Peers: other systems that record steps durably, each in a process of its own, in `.venv-peers` (`make bench-peers`).

A script reads a line ("sequential 60"), does it, and answers with one JSON object: operations, seconds, cpu_s.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks.measuring import Timed

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".venv-peers" / "bin" / "python"
_NODE = ROOT / ".venv-peers" / "node_modules" / "@restatedev"
_HERE = Path(__file__).parent


@dataclass(slots=True)
class Peer:
    """One other system in one configuration."""

    name: str
    script: str
    arguments: tuple[str, ...]
    rows: dict[str, str]  # kind of row (P1, P4, P5, P6) -> name of the row that compares with it
    folder: Path = field(default_factory=Path)
    python: Path = PYTHON
    _process: Process | None = None

    def takes_part(self, *kinds: str) -> bool:
        """Whether it is the base of a row of one of these kinds."""
        return not self.rows.keys().isdisjoint(kinds)

    def compared_in(self, kind: str) -> tuple[str, ...]:
        """The row of this kind that this peer is the base of, if any."""
        return (self.rows[kind],) if kind in self.rows else ()

    async def start(self, folder: Path) -> None:
        """Start its process; its files go to the folder."""
        self.folder = folder / self.script.removesuffix(".py") / self.name.replace(" ", "-")
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "stderr.txt").open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                self.python, _HERE / self.script, self.folder, *self.arguments,
                stdin=PIPE, stdout=PIPE, stderr=errors, env=_environment(),
            )  # fmt: skip

    async def run(self, what: str, operations: int) -> Timed:
        """One round."""
        answer = await self.ask(f"{what} {operations}")
        return Timed(answer["operations"], answer["seconds"], answer["cpu_s"])

    async def recovered(self, folder: Path, operations: int) -> Timed:
        """Leave so many in doubt in a process that dies, then time another one's recovery of them."""
        first = Peer(self.name, self.script, self.arguments, self.rows)
        await first.start(folder)
        await first.ask(f"stuck {operations}")
        await first.stop()
        second = Peer(self.name, self.script, self.arguments, self.rows)
        await second.start(folder)
        try:
            return await second.run("recover", operations)
        finally:
            await second.stop()

    async def ask(self, line: str) -> dict[str, Any]:
        """Put one line to the process and wait for its answer."""
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        process.stdin.write(line.encode() + b"\n")
        await process.stdin.drain()
        while answer := await process.stdout.readline():
            if answer.startswith(b"{"):
                found: dict[str, Any] = json.loads(answer)
                return found
        raise RuntimeError(f"{self.name} ended: {(self.folder / 'stderr.txt').read_text()[-2000:]}")

    async def stop(self) -> None:
        """Let its process end what it started; then it ends by itself."""
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(10):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}


def known() -> list[Peer]:
    """Every peer there is a script for."""
    peers = [
        Peer("DBOS on SQLite-WAL", "dbos_peer.py", ("wal",), {"P4": "P4", "P5": "P5", "P6": "P6"}),
        Peer("DBOS on SQLite as shipped", "dbos_peer.py", ("shipped",), {"P4": "P4s", "P5": "P5s"}),
        Peer("eventsourcing on SQLite", "eventsourcing_peer.py", (), {"P1": "P1e"}),
    ]
    servers = _NODE.glob("restate-server-*/bin/restate-server")
    return peers + [Peer("Restate", "restate_peer.py", (str(s),), {"P5": "P5r", "P6": "P6r"}) for s in servers]


def on_server(dsn: str) -> Peer:
    """DBOS on a PostgreSQL database of its own, which several processes may share."""
    return Peer("DBOS on PostgreSQL", "dbos_peer.py", (dsn,), {})


def ours_on_server(dsn: str, nth: int, of: int) -> Peer:
    """The product in one of so many processes on a PostgreSQL database, asked as any other peer."""
    return Peer("ours on PostgreSQL", "ours.py", (dsn, str(nth), str(of)), {}, python=Path(sys.executable))


def installed() -> list[Peer]:
    """The peers that can run here."""
    if not PYTHON.exists():
        print("peers: .venv-peers is missing, so rows against peers are left out (make bench-peers)", file=sys.stderr)
        return []
    return known()
