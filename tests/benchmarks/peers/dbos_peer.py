"""
DBOS: a workflow of six steps that do nothing, on SQLite as shipped, on SQLite switched to WAL, or on PostgreSQL.

Usage: dbos_peer.py FOLDER shipped|wal|URL. Tries its shapes (plain functions and coroutines) and answers with the best.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import sqlalchemy
from dbos import DBOS, DBOSConfig

STEPS = 6
AT_ONCE = 100
STUCK_AT = 2

stuck = False
reached = 0


@DBOS.step()
def step(n: int) -> int:
    return n


@DBOS.workflow()
def workflow() -> int:
    return sum(step(n) for n in range(STEPS))


@DBOS.step()
async def async_step(n: int) -> int:
    return n


@DBOS.step()
async def doubtful_step(n: int) -> int:
    global reached
    if stuck and n == STUCK_AT:
        reached += 1
        await asyncio.Event().wait()
    return n


@DBOS.workflow()
async def async_workflow() -> int:
    return sum([await async_step(n) for n in range(STEPS)])


@DBOS.workflow()
async def doubtful_workflow() -> int:
    return sum([await doubtful_step(n) for n in range(STEPS)])


def configure(folder: Path, kind: str) -> None:
    url = f"sqlite:///{folder / 'dbos.sqlite'}" if kind in ("shipped", "wal") else kind
    if kind == "wal":

        @sqlalchemy.event.listens_for(sqlalchemy.engine.Engine, "connect")
        def pragmas(connection: Any, record: object) -> None:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")

    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": url,
        "log_level": "ERROR",
        "run_admin_server": False,
        "application_version": "bench",
        "executor_id": str(folder),  # of several processes none takes another's work for its own of before
    }
    DBOS(config=config)


def shapes(what: str, loop: asyncio.AbstractEventLoop) -> dict[str, Callable[[int], None]]:
    what, _, given = what.partition(":")
    callers = int(given or AT_ONCE)

    def sequential(n: int) -> None:
        for _ in range(n):
            workflow()

    async def one_by_one(n: int) -> None:
        for _ in range(n):
            await async_workflow()

    def threads(n: int) -> None:
        with ThreadPoolExecutor(callers) as pool:
            for future in [pool.submit(workflow) for _ in range(n)]:
                future.result()

    def handles(n: int) -> None:
        for handle in [DBOS.start_workflow(workflow) for _ in range(n)]:
            handle.get_result()

    async def gathered(n: int) -> None:
        async def some(k: int) -> None:
            for _ in range(k):
                await async_workflow()

        share, rest = divmod(n, callers)
        await asyncio.gather(*(some(share + (w < rest)) for w in range(min(callers, n))))

    def run(work: Callable[[int], Awaitable[None]]) -> Callable[[int], None]:
        return lambda n: loop.run_until_complete(work(n))

    if what == "sequential" or callers == 1:
        return {"functions": sequential, "coroutines": run(one_by_one)}
    found = {"threads": threads, "coroutines": run(gathered)}
    return {**found, "handles": handles} if callers > 10 else found  # handles know no bound


best: dict[str, Callable[[int], None]] = {}


def measure(what: str, n: int, loop: asyncio.AbstractEventLoop) -> dict[str, Any]:
    if what not in best:
        tried = {}
        for shape in shapes(what, loop).values():
            begun = time.perf_counter()
            shape(max(6, n // 3))
            tried[time.perf_counter() - begun] = shape
        best[what] = tried[min(tried)]
    begun, cpu = time.perf_counter(), time.process_time()
    best[what](n)
    return {"operations": n, "seconds": time.perf_counter() - begun, "cpu_s": time.process_time() - cpu}


async def get_stuck(n: int) -> None:
    """Begin workflows that hang in their third step, then die."""
    global stuck
    stuck = True
    for _ in range(n):
        await DBOS.start_workflow_async(doubtful_workflow)
    while reached < n:  # noqa: ASYNC110  (the steps may run on another loop than this one)
        await asyncio.sleep(0.05)
    print(json.dumps({"stuck": n}), flush=True)
    os._exit(0)


def recover(n: int) -> dict[str, Any]:
    """Launch, which recovers what was pending; wait until all of it has succeeded."""
    begun, cpu = time.perf_counter(), time.process_time()
    DBOS.launch()
    while len(DBOS.list_workflows(status=["PENDING", "ENQUEUED"], limit=1, load_input=False, load_output=False)):
        time.sleep(0.05)
    done = time.perf_counter() - begun
    succeeded = len(DBOS.list_workflows(status="SUCCESS", load_input=False, load_output=False))
    assert succeeded >= n, succeeded
    return {"operations": n, "seconds": done, "cpu_s": time.process_time() - cpu}


def main() -> None:
    folder, kind = Path(sys.argv[1]), sys.argv[2]
    configure(folder, kind)
    launched = False
    loop = asyncio.new_event_loop()
    for line in sys.stdin:
        what, number = line.split()
        if what == "recover":
            print(json.dumps(recover(int(number))), flush=True)
            continue
        if not launched:
            DBOS.launch()
            launched = True
        if what == "stuck":
            loop.run_until_complete(get_stuck(int(number)))
        print(json.dumps(measure(what, int(number), loop)), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
