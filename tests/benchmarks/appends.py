"""P1-P3: durable appends of one event each, against raw transactions of as many events as there are producers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count, islice
from pathlib import Path

from journal.clock import SystemClock, SystemIds
from journal.events import Acquired, Applied, Draft, Intended, Opened, Owner, Released, StageMoved
from journal.log.sqlite import SqliteLog
from journal.log.unit import Unit, Written
from journal.plan import EdgePlan
from journal.stream import Stream
from journal.words import Ending, Guard, evidence
from projections import all_views
from tests.benchmarks.flushes import counting
from tests.benchmarks.measuring import Row, Side, Timed, compared, in_turn, timed
from tests.benchmarks.peers import Peer
from tests.benchmarks.raw import Body, RawLog, as_bodies
from tests.benchmarks.scenery import GUARDS, SOURCE, TARGET, commit_of, six_steps
from tests.benchmarks.sizes import Sizes

PRODUCERS = {"P1": 1, "P2": 100, "P3": 1000}
_OWNER = Owner(
    "0123456789ab.1", "0123456789abcdef0123456789abcdef", "host-1", 4711, "c0ffee00-1234-5678-9abc-def012345678", 99
)
_LOOKS = evidence(
    base="main", behind=0, checks="all of 14 passed", remote="origin", source="a fresh fetch, then cat-file"
)


def history_of(task: str, plan: EdgePlan) -> list[Draft]:
    """All events of a task that moved over the six-step edge, with evidence as the real adapters write it."""
    head = commit_of(task)
    opened = Opened("acme/widgets", f"feature/{task.lower()}", "main", head, 1, SOURCE)
    drafts = [
        Draft(opened, 0, 1, "operator"),
        Draft(Acquired(_OWNER, plan), 1, 1, "worker"),
    ]
    for name, guard in GUARDS.items():
        seen = evidence(head=head, key=f"{task}/1/{name}", **dict(_LOOKS))
        intended = Intended(guard, guard is not Guard.REPEATABLE, f"merge:acme/{task.lower()}/main", 300_000, seen)
        drafts += [
            Draft(intended, 1, 1, "worker", name, 1),
            Draft(
                Applied("apply", evidence(commit=commit_of(name), cites=f"123456:{head}{head[:24]}", **dict(seen))),
                1,
                1,
                "worker",
                name,
                1,
            ),
        ]
    moved, released = StageMoved(SOURCE, TARGET, final=True), Released(Ending.ADVANCED)
    return [*drafts, Draft(moved, 1, 1, "worker"), Draft(released, 1, 1, "worker")]


def plan_of_six() -> EdgePlan:
    """The plan as the pipeline makes it."""
    from journal.ports import Subject

    plan = six_steps().route(Subject("", "", "")).edge(SOURCE)
    assert plan is not None
    return plan


class Producers:
    """So many coroutines that append one event and wait for it, each with a task of its own, again and again."""

    def __init__(self, log: SqliteLog, producers: int, prefix: str = "BENCH") -> None:
        self._log, self._numbers, self._prefix = log, count(1), prefix
        self._plan = plan_of_six()
        self._stocks = [self._stock() for _ in range(producers)]
        self._streams: dict[str, Stream] = {}

    async def run(self, events: int) -> Timed:
        """Append so many events, shared out evenly. What is appended is made beforehand, as it is on the raw side."""
        share = events // len(self._stocks)
        work = [list(islice(stock, share)) for stock in self._stocks]
        with timed(share * len(work)) as round_:
            await asyncio.gather(*map(self._produce, work))
        return round_

    async def _produce(self, work: list[tuple[str, Draft]]) -> None:
        for task, draft in work:
            stream = self._streams.pop(task) if task in self._streams else Stream(task)
            answer = await self._log.append(Unit(stream, (draft,)))
            assert isinstance(answer, Written), answer
            self._streams[task] = answer.stream

    def _stock(self) -> Iterator[tuple[str, Draft]]:
        while True:
            task = f"{self._prefix}-{next(self._numbers)}"
            for draft in history_of(task, self._plan):
                yield task, draft


def raw_bodies(producers: int) -> Iterator[Body]:
    """The same events in the order in which so many producers would write them."""
    plan, numbers = plan_of_six(), count(1)
    while True:
        tasks = [
            as_bodies(task, history_of(task, plan)) for task in (f"BENCH-{next(numbers)}" for _ in range(producers))
        ]
        for together in zip(*tasks, strict=True):
            yield from together


@asynccontextmanager
async def open_log(path: Path) -> AsyncIterator[SqliteLog]:
    """The log with its views, as a service has it."""
    log = await SqliteLog.open(
        path, write=True, clock=SystemClock(), new_id=SystemIds().instance, projections=all_views()
    )
    try:
        yield log
    finally:
        await log.close()


async def measure(folder: Path, sizes: Sizes, name: str) -> Row:
    """One of P1-P3."""
    producers = PRODUCERS[name]
    events = sizes.lone_appends if producers == 1 else max(sizes.appends, producers * 4)
    ours, base = (
        Side(f"{producers} producers" if producers > 1 else "1 producer"),
        Side(f"raw, {producers} a transaction"),
    )
    raw, bodies = RawLog(folder / f"{name}-raw.db"), raw_bodies(producers)
    # What the raw side writes is made beforehand, outside its time.
    stock = iter([next(bodies) for _ in range((events + producers) * (sizes.rounds + 2))])

    async def write_raw() -> Timed:
        with timed(events // producers * producers) as round_:
            raw.write(stock, events // producers, producers)
        return round_

    async with open_log(folder / f"{name}.db") as log:
        side = Producers(log, producers)
        await side.run(events // 4)
        raw.write(stock, events // producers // 4, producers)
        await in_turn(sizes.rounds, (ours, lambda: side.run(events)), (base, write_raw))
    raw.close()
    ours.flushes, base.flushes = await _flushes(folder, name, producers)
    return compared(name, ours, base, unit="events")


async def beside(folder: Path, sizes: Sizes, peer: Peer) -> Row:
    """P1 against another library that appends."""
    ours, base, (name,) = Side("1 producer"), Side(peer.name), peer.compared_in("P1")
    await peer.start(folder)
    try:
        async with open_log(folder / f"{name}.db") as log:
            side = Producers(log, 1)
            await side.run(sizes.lone_appends // 4)
            await peer.run("appends", sizes.lone_appends // 4)
            await in_turn(
                sizes.rounds,
                (ours, lambda: side.run(sizes.lone_appends)),
                (base, lambda: peer.run("appends", sizes.lone_appends)),
            )
    finally:
        await peer.stop()
    return compared(name, ours, base, unit="events")


async def _flushes(folder: Path, name: str, producers: int) -> tuple[float, float]:
    """Flushes an event, each side."""
    events = max(200, producers * 4)
    with counting() as counter:
        async with open_log(folder / f"{name}-counted.db") as log:
            before = counter.count
            await Producers(log, producers).run(events)
            ours = (counter.count - before) / events
        raw = RawLog(folder / f"{name}-raw-counted.db")
        before = counter.count
        raw.write(raw_bodies(producers), events // producers, producers)
        base = (counter.count - before) / (events // producers * producers)
        raw.close()
    return ours, base


async def bytes_an_event(folder: Path, events: int = 20_000) -> tuple[float, float]:
    """Bytes of disk an event and of its body, the views included, after a checkpoint."""
    path = folder / "size.db"
    async with open_log(path) as log:
        await Producers(log, 100).run(events)
        rows = await log.query("SELECT avg(length(CAST(body AS BLOB))) FROM journal_events")
    return path.stat().st_size / events, rows[0][0]
