"""Three host processes on one server, killed, stopped and cut off at random: each effect once (M1, M2, T8)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from journal.hosts.pulse import Pulse
from journal.journal import Journal, NewTask
from journal.words import Hold
from tests.conftest import Counts
from tests.crash import fleet_host
from tests.crash.fleet import Host, befall, fleet, mend
from tests.doubles.postgres import Postgres

ENDS_S = 240.0
"""A bound for hangs only."""


async def open_tasks(journal: Journal, tasks: list[str]) -> None:
    for task in tasks:
        await journal.open_task(NewTask(task, "acme/widgets", f"feature/{task}"), actor="operator")


async def until_joined(journal: Journal, size: int) -> None:
    hosts, until = journal.tools.hosts, time.monotonic() + ENDS_S
    assert isinstance(hosts, Pulse)
    while sum(bool(m.address) for m in hosts.members()) < size:
        assert time.monotonic() < until, hosts.members()
        await asyncio.sleep(0.1)


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
    seed, misfortunes, batch = 20261, counts.of(6, most=80), 2
    chance, tasks = Random(seed), [f"T-{n}" for n in range(counts.of(12, most=200))]
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
    told = f"seed {seed}: {', '.join(befell)}; {dict(kinds)}; built {dict(found['build'])}"
    print(told)
    for name in ("merge", "seal", "note"):
        assert found[name] == {1: len(tasks)}, f"{name}: {found[name]}; {told}"
    assert not found["build"][0], told
