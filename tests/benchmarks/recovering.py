"""P6, P7: everything open is in doubt after a kill; from opening the journal to every task decided and at its end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from integrations.worker import Dispatcher
from journal.advance import Wrap
from journal.events import Event
from journal.journal import Journal
from journal.plan import StepPlan
from journal.shell import Ports
from journal.words import Kind
from projections import all_views
from recovery.plan import make_plan
from tests.benchmarks.logs import Logs
from tests.benchmarks.measuring import Row, Side, Timed, compared, grown, in_turn, timed
from tests.benchmarks.peers import Peer
from tests.benchmarks.scenery import AT_ONCE, FarSide, adapters, new_task, open_six, six_steps
from tests.benchmarks.sizes import Sizes

STUCK_AT = "rebuild"
"""The third of six: what the peers get stuck in, too."""


class _Killed(BaseException):
    """Ends a run where a kill would: the effect has landed, its outcome was never written."""


class _Dying:
    """Ports that die right after the effect of one step."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    def __getattr__(self, name: str) -> object:
        return getattr(self._ports, name)

    async def apply(self, step: StepPlan, fence: tuple[int, int]) -> object:
        replied = await self._ports.apply(step, fence)
        if step.name == STUCK_AT:
            raise _Killed
        return replied


async def leave_in_doubt(path: Path, far: FarSide, tasks: int, prefix: str) -> None:
    """Open tasks and drive each into the middle of its third step."""

    def dying(ports: Ports, task: str) -> Ports:
        del task
        return _Dying(ports)  # type: ignore[return-value]

    wrap: Wrap = dying
    journal = await Journal.open(path, pipeline=six_steps(), steps=adapters(far), projections=all_views(), wrap=wrap)
    try:
        wanted = [new_task(n, prefix, tasks) for n in range(tasks)]
        await asyncio.gather(*(journal.open_task(each, actor="operator") for each in wanted))
        await asyncio.gather(*(_share(journal, [t.task for t in wanted[w::AT_ONCE]]) for w in range(AT_ONCE)))
    finally:
        await journal.close()


async def _share(journal: Journal, names: list[str]) -> None:
    for name in names:
        with suppress(_Killed):
            await journal.advance(name, actor="worker")


async def recover(path: Path, far: FarSide, tasks: int) -> Timed:
    """What a starting service does: open, decide every open task, drive what was decided through the dispatcher."""
    landed = far.landed
    with timed(tasks) as round_:
        async with open_six(path, far) as journal:
            plan = await make_plan(journal)
            assert len(plan.forecasts) == tasks, len(plan.forecasts)
            dispatcher = Dispatcher(journal, parallel=AT_ONCE)
            dispatcher.startup = {f.task for f in plan.forecasts}
            assert journal.log.writer is not None
            done = _Done(tasks, dispatcher)
            journal.log.writer.on_events = done.on_events
            serving = asyncio.create_task(dispatcher.serve())
            await done.all.wait()
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving
    if far.landed - landed != 3 * tasks:  # the fourth to the sixth; the third had landed and must not land again
        raise AssertionError(f"{far.landed - landed} effects, expected {3 * tasks}")
    return round_


class _Done:
    """Notices when the last task has moved to its end."""

    def __init__(self, tasks: int, dispatcher: Dispatcher) -> None:
        self.all, self._left, self._dispatcher = asyncio.Event(), tasks, dispatcher
        self._loop = asyncio.get_running_loop()

    def on_events(self, events: Sequence[Event]) -> None:
        self._dispatcher.on_events(events)
        self._left -= sum(event.kind is Kind.STAGE_MOVED for event in events)
        if self._left <= 0:
            self._loop.call_soon_threadsafe(self.all.set)


async def measure(folder: Path, sizes: Sizes, peers: list[Peer]) -> list[Row]:
    """P6 against whatever peers are installed."""
    rows, far, numbers = [], FarSide(), count()

    async def ours() -> Timed:
        number = next(numbers)
        await leave_in_doubt(folder / "P6.db", far, sizes.doubts, f"DOUBT{number}")
        return await recover(folder / "P6.db", far, sizes.doubts)

    for peer in peers:
        for name in peer.compared_in("P6"):
            side, base = Side(f"{sizes.doubts} in doubt"), Side(f"{peer.name}, {sizes.peer_doubts} in doubt")

            async def theirs(peer: Peer = peer) -> Timed:
                return await peer.recovered(folder / f"P6-{next(numbers)}", sizes.peer_doubts)

            await in_turn(min(sizes.rounds, 3), (side, ours), (base, theirs))
            rows.append(compared(name, side, base, unit="tasks"))
    return rows


async def measure_growth(logs: Logs, sizes: Sizes) -> list[Row]:
    """P7: the same doubts on top of a short history and of longer ones."""
    rows, far, numbers = [], FarSide(), count()

    async def once(path: Path) -> Timed:
        await leave_in_doubt(path, far, sizes.doubts, f"GROWN{next(numbers)}")
        return await recover(path, far, sizes.doubts)

    for events in sizes.long_logs:
        short, long = Side(f"{sizes.short_log:,} events"), Side(f"{events:,} events")
        paths = logs.of(sizes.short_log), logs.of(events)
        await in_turn(min(sizes.rounds, 3), (short, lambda: once(paths[0])), (long, lambda: once(paths[1])))  # noqa: B023
        rows.append(
            grown("P7", short, long, unit="tasks", note=f"{sizes.doubts:,} in doubt", sizes=(sizes.short_log, events))
        )
    return rows
