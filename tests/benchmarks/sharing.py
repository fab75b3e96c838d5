"""
P14: whole transitions on a PostgreSQL server, by callers and by processes that share it, against DBOS on the same one.

Both sides run in processes of their own and are asked alike. Time is the asker's, from the first line to the last
answer, so that of several processes none is left out; ours opens its tasks within it, 1 of 16 events.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks import peers
from tests.benchmarks.measuring import Row, Side, Timed, compared, in_turn
from tests.benchmarks.servers import new_database
from tests.benchmarks.sizes import Sizes
from tests.doubles.postgres import Postgres, new_server

SHAPES = {"P14c1": (1, 1), "P14c10": (1, 10), "P14": (1, 100), "P14p2": (2, 100), "P14p4": (4, 100)}
"""Row -> processes, callers in all."""


async def measure(folder: Path, sizes: Sizes, others: list[peers.Peer]) -> list[Row]:
    """Every row of this part; nothing where DBOS is not installed."""
    if not others:
        return []
    for part in (folder, folder.parent):
        part.chmod(0o711)  # the server runs as a user without rights, and must reach its files
    with new_server(place=folder) as server:
        return [await _compare(folder / name, server, sizes, name) for name in SHAPES]


async def _compare(folder: Path, server: Postgres, sizes: Sizes, name: str) -> Row:
    processes, callers = SHAPES[name]
    dsn, theirs = new_database(server, name), new_database(server, f"{name}_dbos")
    mine = [peers.ours_on_server(dsn, n, processes) for n in range(processes)]
    other = [peers.on_server(theirs) for _ in range(processes)]
    ours, base = Side(f"{_told(processes, callers)}, on PostgreSQL"), Side(other[0].name)
    each = f"at-once:{callers // processes}"
    tasks, peer_tasks = (sizes.lone_tasks, sizes.peer_lone) if callers == 1 else (sizes.tasks, sizes.peer_tasks)
    try:
        for n, peer in enumerate([*mine, *other]):
            await peer.start(folder / str(n))
            await peer.run(each, callers // processes)  # one by one: DBOS makes its tables as it starts
        await in_turn(
            sizes.rounds,
            (ours, lambda: _together(mine, each, tasks)),
            (base, lambda: _together(other, each, peer_tasks)),
        )
    finally:
        for peer in (*mine, *other):
            await peer.stop()
    return compared(name, ours, base, unit="transitions")


async def _together(processes: Sequence[peers.Peer], what: str, operations: int) -> Timed:
    begun = time.perf_counter()
    rounds = await asyncio.gather(*(each.run(what, operations // len(processes)) for each in processes))
    took = time.perf_counter() - begun
    return Timed(sum(r.operations for r in rounds), took, sum(r.cpu_s for r in rounds))


def _told(processes: int, callers: int) -> str:
    if processes > 1:
        return f"{callers} at once in {processes} processes"
    return f"{callers} at once" if callers > 1 else "one after the other"
