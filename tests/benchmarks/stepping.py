"""P4, P5: whole transitions of six steps, every intent and outcome durable, one after the other and 100 at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

from journal.hosts.port import Join
from journal.journal import Journal
from journal.log.upstream import Upstream
from journal.results import Advanced
from tests.benchmarks.flushes import counting
from tests.benchmarks.measuring import Row, Side, Timed, compared, in_turn, timed
from tests.benchmarks.peers import Peer
from tests.benchmarks.scenery import AT_ONCE, GUARDS, FarSide, new_task, open_six
from tests.benchmarks.sizes import Sizes


class Transitions:
    """The product, driven as a worker drives it."""

    def __init__(self, journal: Journal, far: FarSide, numbers: Iterator[int]) -> None:
        self._journal, self._far, self._numbers = journal, far, numbers

    async def one_by_one(self, tasks: int) -> Timed:
        """Advance so many new tasks, each after the one before."""
        return await self._run(tasks, 1)

    async def at_once(self, tasks: int, callers: int = AT_ONCE) -> Timed:
        """Advance so many new tasks, one for each caller under way at any moment; `callers` divides 100."""
        return await self._run(tasks, callers)

    async def _run(self, tasks: int, workers: int) -> Timed:
        names = await self._opened(tasks)
        # Worker w takes task numbers that are w modulo the workers: no two at once want the lane of one repository.
        shares = [names[w::workers] for w in range(workers)]
        landed = self._far.landed
        with timed(tasks) as round_:
            await asyncio.gather(*(self._drive(share) for share in shares))
        if self._far.landed - landed != tasks * len(GUARDS):
            raise AssertionError("an effect is missing or came twice")
        return round_

    async def _opened(self, tasks: int) -> list[str]:
        wanted = [new_task(next(self._numbers)) for _ in range(tasks)]
        await asyncio.gather(*(self._journal.open_task(each, actor="operator") for each in wanted))
        return [each.task for each in wanted]

    async def _drive(self, names: list[str]) -> None:
        for name in names:
            result = await self._journal.advance(name, actor="worker")
            assert isinstance(result, Advanced), result


@asynccontextmanager
async def transitions(
    path: Path, upstream: Upstream | None = None, join: Join | None = None, numbers: Iterator[int] | None = None
) -> AsyncIterator[Transitions]:
    """The product over a journal of its own; `numbers` of its tasks, if other processes open some on the same log."""
    far = FarSide()
    async with open_six(path, far, upstream, join) as journal:
        yield Transitions(journal, far, numbers or count(1))


async def measure(folder: Path, sizes: Sizes, peers: list[Peer]) -> list[Row]:
    """P4 and P5 against whatever peers are installed."""
    lone_flushes, flushes = await _flushes(folder)
    peers = [peer for peer in peers if peer.takes_part("P4", "P5")]
    for peer in peers:
        await peer.start(folder)
    try:
        return await _compare(folder, sizes, peers, lone_flushes, flushes)
    finally:
        for peer in peers:  # they hold ports and cores that the next part needs
            await peer.stop()


async def _compare(folder: Path, sizes: Sizes, peers: list[Peer], lone_flushes: float, flushes: float) -> list[Row]:
    rows: list[Row] = []
    async with transitions(folder / "P4.db") as product:
        await product.one_by_one(20)
        await product.at_once(AT_ONCE)
        for peer in peers:
            for name in peer.compared_in("P4"):
                ours, base = Side("one after the other", flushes=lone_flushes), Side(peer.name)
                await in_turn(
                    sizes.rounds,
                    (ours, lambda: product.one_by_one(sizes.lone_tasks)),
                    (base, lambda peer=peer: peer.run("sequential", sizes.peer_lone)),  # type: ignore[misc]
                )
                rows.append(compared(name, ours, base, unit="transitions"))
            for name in peer.compared_in("P5"):
                ours, base = Side("100 at once", flushes=flushes), Side(peer.name)
                await in_turn(
                    sizes.rounds,
                    (ours, lambda: product.at_once(sizes.tasks)),
                    (base, lambda peer=peer: peer.run("at-once", sizes.peer_tasks)),  # type: ignore[misc]
                )
                rows.append(compared(name, ours, base, unit="transitions"))
    return rows


async def _flushes(folder: Path) -> tuple[float, float]:
    """Flushes a transition, one after the other and 100 at once."""
    with counting() as counter:
        async with transitions(folder / "P4-counted.db") as product:
            opened = counter.count
            await product.one_by_one(20)
            lone = (counter.count - opened - 1) / 20  # opening the tasks was one group commit
            before = counter.count
            await product.at_once(2 * AT_ONCE)
            return lone, (counter.count - before - 1) / (2 * AT_ONCE)
