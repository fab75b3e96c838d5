"""Every actor and every neighbour at once: nothing twice, nothing forgotten, and what is shown is what is."""

from __future__ import annotations

import asyncio
import faulthandler
from pathlib import Path

import pytest

from tests.conftest import Counts
from tests.doubles.gitea import Faults
from tests.e2e.outcome import alerts, comments, landed, superseded, verified
from tests.e2e.scenario import Scenario, scenario

STUBBORN = 3
"""Orders that meet an owner at the end of a run."""


async def weathered(folder: Path, seed: int, *, tasks: int, kills: int) -> None:
    """Live through one storm, then count. It has a deadline of its own, which a busy machine needs."""
    faulthandler.cancel_dump_traceback_later()
    async with scenario(folder, seed, tasks=tasks, kills=kills, more=1) as run:
        await run.run()
        assert run.service.kills == kills, run.told()
        await ownership_is_told(run)
        await run.until_told(alerts)
        assert await run.service.stop() == 0
        await counted(run)


async def counted(run: Scenario) -> None:
    """Outside: the repository, the ledger, the tracker, the forge, the chat; then the journal against itself."""
    contained = await superseded(run)
    for n in range(1, run.tasks + 2):
        found = landed(run, n)
        once = int(found.task not in contained)
        assert (found.merges, found.deploys, found.releases) == (1, once, once), (found, run.told())
        assert found.marks <= 1 and found.contained and not found.branch, (found, run.told())
        said = comments(run, n)
        assert set(said.values()) <= {1} and bool(said) >= bool(run.retries[found.task]), (said, run.told())
    assert run.unshown(run.tasks + 1) == []
    assert run.tracker.overruled == [], run.told()
    wanted, read = await alerts(run)
    assert wanted and run.retries, "nobody had to be told of anything"
    assert wanted == set(read), (wanted, read, run.told())
    assert all(times <= 1 + run.service.kills + run.service.ends for times in read.values()), (read, run.told())
    assert sum(read.values()) <= len(wanted) + run.service.kills + run.service.ends + run.chat.lost, (read, run.told())
    told = verified(run.stage.config)
    assert told.returncode == 0, (told.stdout, told.stderr, run.told())


async def ownership_is_told(run: Scenario) -> None:
    """What the queue says of owners, against a merge that we hold, orders that we give, and deaths that we counted."""
    last, service = run.tasks + 1, run.service
    task, hold = run.stage.task(last), asyncio.Event()
    before = (await service.get("/queue"))["transition_ownership"]
    assert before["reclaims"] == {"gone": service.orphans, "budget": 0, "operator": 0}, (before, run.told())
    assert before["held"] == [] and before["parked"] == [], before
    run.forge.reached.clear()
    run.forge.faults = Faults(hold=hold, cut=False)
    try:
        await run.open_tasks(range(last, last + 1))
        while not run.forge.reached.is_set():
            await run.tick()
        for _ in range(STUBBORN):
            assert await service.post(f"/tasks/{task}/advance?wait=5", {"actor": "visitor"}) == 409
        block = await run.ownership(lambda block: block["deferred"].get("visitor", 0) >= STUBBORN)
        (held,) = block["held"]
        assert (held["task"], held["step"], held["alive"], held["in_doubt"]) == (task, "merge_pr", True, True), held
        assert (held["from_stage"], held["to_stage"]) == ("deploy-staging", "deploy")
        assert service.process is not None and held["owner"]["pid"] == service.process.pid
        assert 0 <= held["age_s"] < 60
        assert block["deferred"]["visitor"] == STUBBORN, block
        service.kill()
        await run.tick()  # buried, and started again
    finally:
        hold.set()
        run.forge.faults.hold = None
    await run.finish(last)
    after = (await service.get("/queue"))["transition_ownership"]
    assert after["reclaims"] == {"gone": service.orphans, "budget": 0, "operator": 0}, (after, run.told())
    assert after["held"] == [] and after["deferred"]["visitor"] == STUBBORN


@pytest.mark.proves("FR-2", "FR-5", "FR-6", "TR-5", "TR-9", "E5", "R69", "R73", "R75")
async def test_five_tasks_get_through_bad_weather_and_five_kills_with_each_effect_once(
    tmp_path: Path, counts: Counts
) -> None:
    for seed in range(1, counts.of(1, most=10) + 1):
        await weathered(tmp_path / str(seed), seed, tasks=5, kills=5)


@pytest.mark.long
async def test_twenty_tasks_get_through_bad_weather_and_thirty_kills_with_each_effect_once(tmp_path: Path) -> None:
    await weathered(tmp_path / "storm", 20, tasks=20, kills=30)
