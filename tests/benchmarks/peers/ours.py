"""
The product as one of several processes that share a PostgreSQL server, asked as a peer is.

Usage: ours.py FOLDER DSN NTH OF. It opens the tasks NTH, NTH + OF, ...: no two processes want one repository's lane.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

from integrations.cli import collect_seldom
from integrations.telemetry.logs import configure_logs
from journal.events import Owner
from journal.hosts.port import Join
from journal.hosts.pulse import Pulse
from journal.log.postgres.connect import Server, connect
from journal.log.postgres.upstream import PostgresUpstream
from tests.benchmarks.scenery import AT_ONCE
from tests.benchmarks.stepping import transitions


def member(dsn: str, nth: int) -> Join:
    """A place among the hosts of a server, as `serve` takes it."""

    def join(me: Owner, ground: str, lost: Callable[[], None]) -> Pulse:
        new_key = count(1 + nth * 1_000).__next__
        return Pulse(lambda: connect(Server(dsn), "hosts"), me, ground, address="", new_key=new_key, on_loss=lost)

    return join


async def answer(folder: Path, dsn: str, nth: int, of: int) -> None:
    """Lines of `at-once:CALLERS TASKS` until there are no more."""
    upstream = PostgresUpstream(Server(dsn, timeout_s=60))
    async with transitions(folder / "journal.db", upstream, member(dsn, nth), count(nth, of)) as product:
        while line := await asyncio.to_thread(sys.stdin.readline):
            what, tasks = line.split()
            round_ = await product.at_once(int(tasks), int(what.partition(":")[2] or AT_ONCE))
            told = {"operations": round_.operations, "seconds": round_.seconds, "cpu_s": round_.cpu_s}
            print(json.dumps(told), flush=True)


if __name__ == "__main__":
    configure_logs("warning")
    collect_seldom()
    asyncio.run(answer(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
