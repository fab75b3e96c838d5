"""
G1-G100: durable appends on a PostgreSQL server, against raw transactions of as many rows on the same server; and hosts.

The server is the one the tests bring along, with its files on the measured disk and its flushes on. The raw side is one
connection that inserts finished rows into a table without a trigger, which is what the driver and the server can do.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg

from journal.clock import SystemClock, SystemIds
from journal.log.postgres.connect import Server
from journal.log.postgres.upstream import PostgresUpstream
from journal.log.sqlite import SqliteLog
from projections import all_views
from tests.benchmarks.appends import Producers, raw_bodies
from tests.benchmarks.measuring import Row, Side, Timed, compared, in_turn, timed
from tests.benchmarks.raw import Body, Chained
from tests.benchmarks.sizes import Sizes
from tests.doubles.postgres import Postgres, new_server

ROOT = Path(__file__).resolve().parents[2]
CALLERS = {"G1": 1, "G10": 10, "G100": 100}
HOSTS = {"G2p": 2, "G4p": 4}
ALL_CALLERS = 100

_RAW_TABLE = """
CREATE TABLE raw (position bigint PRIMARY KEY, task text, version bigint, generation bigint, epoch bigint, kind text,
    schema bigint, step text, attempt bigint, key text, actor text, body text, body_hash bytea, at bigint,
    prev_hash bytea, hash bytea);
CREATE UNIQUE INDEX ON raw (task, version)
"""
_RAW_INSERT = """
INSERT INTO raw SELECT * FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[],
    $7::bigint[], $8::text[], $9::bigint[], $10::text[], $11::text[], $12::text[], $13::bytea[], $14::bigint[],
    $15::bytea[], $16::bytea[])
"""


async def measure(folder: Path, sizes: Sizes) -> list[Row]:
    """Every row of this part; nothing where the server's package is not installed."""
    for part in (folder, folder.parent):
        part.chmod(0o711)  # the server runs as a user without rights, and must reach its files
    with new_server(place=folder) as server:
        return [
            *[await _callers(folder, server, sizes, name) for name in CALLERS],
            *[await _hosts(folder, server, sizes, name) for name in HOSTS],
        ]


async def _callers(folder: Path, server: Postgres, sizes: Sizes, name: str) -> Row:
    callers = CALLERS[name]
    events = max(sizes.lone_appends // 2, callers * 20)
    ours, base = Side(_told(callers)), Side(f"raw, {callers} a transaction")
    database = new_database(server, name)
    bodies = raw_bodies(callers)
    stock = iter([next(bodies) for _ in range((events + callers) * (sizes.rounds + 2))])
    raw = await asyncpg.connect(database)
    await raw.execute(_RAW_TABLE)
    chain = Chained()

    async def write_raw() -> Timed:
        with timed(events // callers * callers) as round_:
            await _write(raw, chain, stock, events // callers, callers)
        return round_

    async with _log(folder / name, database) as log:
        side = Producers(log, callers)
        await side.run(max(callers, events // 4))
        await _write(raw, chain, stock, 2, callers)
        await in_turn(sizes.rounds, (ours, lambda: side.run(events)), (base, write_raw))
    await raw.close()
    return compared(name, ours, base, unit="events")


def _told(callers: int) -> str:
    return f"{callers} callers" if callers > 1 else "1 caller"


async def _write(raw: Any, chain: Chained, bodies: Iterator[Body], transactions: int, size: int) -> None:
    for _ in range(transactions):
        columns = [list(column) for column in zip(*chain.rows(bodies, size), strict=True)]
        await raw.execute(_RAW_INSERT, *columns)


async def _hosts(folder: Path, server: Postgres, sizes: Sizes, name: str) -> Row:
    """So many processes of our own share the callers and one server, against one process with all of them."""
    count, events = HOSTS[name], max(sizes.lone_appends * 2, ALL_CALLERS * 20)
    ours, base = Side(f"{count} hosts"), Side("1 host")
    for turn in range(sizes.rounds):
        for side, hosts in ((ours, count), (base, 1)):
            database = new_database(server, f"{name.lower()}_{turn}_{hosts}")
            side.rounds.append(
                await asyncio.to_thread(_together, folder / f"{name}-{turn}-{hosts}", database, hosts, events)
            )
    return compared(name, ours, base, unit="events")


def _together(folder: Path, dsn: str, hosts: int, events: int) -> Timed:
    """Start the hosts, let them begin at once, and count from the first to the last."""
    folder.mkdir()
    argv = [sys.executable, "-m", "tests.benchmarks.servers", dsn]
    started = []
    for n in range(hosts):
        more = [str(folder / f"{n}"), str(ALL_CALLERS // hosts), str(events // hosts)]
        started.append(
            subprocess.Popen([*argv, *more], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
    for host in started:
        assert host.stdout is not None
        assert host.stdout.readline() == "ready\n"
    for host in started:
        assert host.stdin is not None
        host.stdin.write("go\n")
        host.stdin.flush()
    told = [json.loads(host.communicate()[0]) for host in started]
    shutil.rmtree(folder)
    return Timed(sum(t["events"] for t in told), max(t["seconds"] for t in told), sum(t["cpu_s"] for t in told))


def new_database(server: Postgres, name: str) -> str:
    database = f"bench_{name.lower()}"
    server.sql(f"CREATE DATABASE {database}")
    return server.dsn(database)


@asynccontextmanager
async def _log(folder: Path, dsn: str) -> AsyncIterator[SqliteLog]:
    """The log with its views, as a service has it."""
    folder.mkdir()
    log = await SqliteLog.open(
        folder / "journal.db", write=True, clock=SystemClock(), new_id=SystemIds().instance, projections=all_views(),
        upstream=PostgresUpstream(Server(dsn, timeout_s=60)),
    )  # fmt: skip
    try:
        yield log
    finally:
        await log.close()


async def _host(dsn: str, folder: Path, callers: int, events: int) -> None:
    """One of several processes: says when it is ready, begins when it is told to, tells what it did."""
    async with _log(folder, dsn) as log:
        side = Producers(log, callers, prefix=folder.name)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        round_ = await side.run(events)
    print(json.dumps({"events": round_.operations, "seconds": round_.seconds, "cpu_s": round_.cpu_s}))


if __name__ == "__main__":
    asyncio.run(_host(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
