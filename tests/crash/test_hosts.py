"""Three host processes on one server, killed, stopped and cut off at random: each effect once (M1, M2, T8)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from journal.errors import StoreError, TaskExistsError
from journal.events import Observed
from journal.hosts.pulse import Pulse
from journal.journal import Journal, NewTask
from journal.words import Hold, Kind
from tests.conftest import Counts
from tests.crash import fleet_host
from tests.crash.fleet import Host, befall, fleet, mend
from tests.doubles.postgres import Postgres, new_server

ENDS_S = 240.0
"""A bound for hangs only."""


async def open_tasks(journal: Journal, tasks: list[str]) -> None:
    """A host stopped with the log's counter in its hand holds everybody up, until the server ends its session."""

    async def opened() -> bool:
        with suppress(StoreError):
            for task in tasks:
                with suppress(TaskExistsError):
                    await journal.open_task(NewTask(task, "acme/widgets", f"feature/{task}"), actor="operator")
            return True
        return False

    await until(opened, "the log could not be written")


async def until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    by = time.monotonic() + ENDS_S
    while not await holds():
        assert time.monotonic() < by, what
        await asyncio.sleep(0.1)


async def until_joined(journal: Journal, size: int) -> None:
    hosts = journal.tools.hosts
    assert isinstance(hosts, Pulse)

    async def joined() -> bool:
        return sum(bool(m.address) for m in hosts.members()) >= size

    await until(joined, "not every host joined")


async def until_done(journal: Journal, tasks: list[str], hosts: list[Host]) -> None:
    """Start again what ended, let go on what was parked after three deaths in a row, as an operator would."""
    left, until = set(tasks), time.monotonic() + ENDS_S
    while left:
        assert time.monotonic() < until, [(t, (await journal.stream(t)).state) for t in left]
        mend(hosts)
        for task in sorted(left):
            state = (await journal.stream(task)).state
            if state.hold is Hold.PARKED:
                await journal.resume(task, reason="killed too often")
            elif state.hold is Hold.DONE:
                left.discard(task)
        await asyncio.sleep(0.2)


def count_effects(far: Path, tasks: list[str]) -> dict[str, Counter[int]]:
    """Step -> how often an effect landed -> for how many tasks."""
    return {
        name: Counter(len(fleet_host.landed(far, f"{task}/1/{name}")) for task in tasks) for name in fleet_host.GUARDS
    }


@pytest.mark.proves("M1", "M2", "T8", "I23", "TR-3")
async def test_hosts_killed_stopped_and_cut_off_do_everything_exactly_once(
    tmp_path: Path, postgres: Postgres, database: str, counts: Counts
) -> None:
    seed, misfortunes, batch = 20261, counts.of(4, most=80), 2
    chance, tasks = Random(seed), [f"T-{n}" for n in range(counts.of(8, most=200))]
    with fleet(3, tmp_path, database, postgres.port) as hosts:
        (tmp_path / "watch").mkdir()
        async with fleet_host.opened(tmp_path / "watch", tmp_path / "far", database) as journal:
            mend(hosts)
            await until_joined(journal, len(hosts))
            befell = list[str]()
            for first in range(0, len(tasks), batch):
                await open_tasks(journal, tasks[first : first + batch])
                if len(befell) < misfortunes:
                    befell.append(await asyncio.to_thread(befall, hosts, chance))
            await until_done(journal, tasks, hosts)
            found = count_effects(tmp_path / "far", tasks)
            kinds = Counter([str(event.draft.kind) for task in tasks for event in await journal.events(task)])
    assert_once(found, len(tasks), f"seed {seed}: {', '.join(befell)}; {dict(kinds)}; built {dict(found['build'])}")


@pytest.mark.long
@pytest.mark.proves("M1", "M2", "M4", "T8")
@pytest.mark.parametrize("seed", range(3))
async def test_hosts_whose_server_is_killed_again_and_again_do_everything_exactly_once(
    tmp_path: Path, seed: int
) -> None:
    chance, tasks, befell = Random(seed), [f"T-{n}" for n in range(60)], list[str]()
    with new_server() as server, fleet(3, tmp_path, server.dsn(), server.port) as hosts:
        (tmp_path / "watch").mkdir()
        async with fleet_host.opened(tmp_path / "watch", tmp_path / "far", server.dsn()) as journal:
            await open_tasks(journal, tasks)
            mend(hosts)
            await until_joined(journal, len(hosts))
            for _ in range(6):
                befell.append(await asyncio.to_thread(befall, hosts, chance))
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
            await until_done(journal, tasks, hosts)
            found = count_effects(tmp_path / "far", tasks)
    assert_once(found, len(tasks), f"seed {seed}: {', '.join(befell)}; the server after each")


def assert_once(found: dict[str, Counter[int]], tasks: int, told: str) -> None:
    print(told)
    for name in ("merge", "seal", "note"):
        assert found[name] == {1: tasks}, f"{name}: {found[name]}; {told}"
    assert not found["build"][0], told


@pytest.mark.proves("M1", "M2", "F4", "I18")
@pytest.mark.parametrize("name", [pytest.param("seal", marks=pytest.mark.long), "note"])
async def test_an_owner_that_stood_still_right_before_its_effect_and_was_replaced_doubles_nothing(
    tmp_path: Path, postgres: Postgres, database: str, name: str
) -> None:
    """Its lease was good when it looked. What can be fenced goes on without it; a probed step waits for it."""
    far = tmp_path / "far"
    with fleet(2, tmp_path, database, postgres.port) as hosts:
        (tmp_path / "watch").mkdir()
        (far / f"{name}.stop").touch()
        async with fleet_host.opened(tmp_path / "watch", far, database) as journal:
            mend(hosts)
            await until_joined(journal, len(hosts))
            await open_tasks(journal, ["T-1"])
            await until(lambda: any_stopped(hosts), "nobody stood still")

            async def replaced() -> bool:
                seen = [e.draft.body for e in await journal.events("T-1") if isinstance(e.draft.body, Observed)]
                return any(("carrier", "suspect") in body.seen for body in seen)

            await until(replaced, "nobody took over")
            if name == "seal":
                await until_done(journal, ["T-1"], [host for host in hosts if not host.stopped])
            else:
                await asyncio.sleep(1)  # it would have driven it by now
                assert not fleet_host.landed(far, "T-1/1/note")
            mend(hosts)  # it wakes up, and its effect is on its way
            await until_done(journal, ["T-1"], hosts)
            kinds = [event.kind for event in await journal.events("T-1")]
    assert kinds.count(Kind.ACQUIRED) > 1
    assert Kind.PARKED not in kinds, "the hosts' own clocks are hours apart, and no deadline is"
    assert [count_effects(far, ["T-1"])[step] for step in ("merge", "seal", "note")] == [{1: 1}] * 3


async def any_stopped(hosts: list[Host]) -> bool:
    return any(host.stopped for host in hosts)
