"""The dispatcher's order: nobody overtakes into a lane, and nobody keeps its holder from giving it back."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from integrations.worker import Dispatcher
from journal.ports import Call, Reply
from journal.results import Advanced
from tests.acting import desk, three_stages
from tests.builders import FileStep

LANE = "merge:{repo}"


@dataclass
class Stuck(FileStep):
    """Its owner dies in the middle of the call."""

    entered: asyncio.Event = field(default_factory=asyncio.Event)

    async def apply(self, call: Call) -> Reply:
        self.entered.set()
        await asyncio.Event().wait()
        return await super().apply(call)


@pytest.mark.proves("DC-3", "O1")
async def test_the_holder_of_a_lane_goes_on_before_an_older_task_that_waits_for_the_lane(tmp_path: Path) -> None:
    """Seen in the storm: the older was parked, let the younger pass, was resumed; then the younger's owner died."""
    pipeline = three_stages("auto", lane=LANE)
    async with desk(tmp_path, pipeline, step=Stuck) as at:
        for task in ("T-1", "T-2"):
            await at.open(task, stage="ship")
        await at.journal.pause("T-1", reason="looked at")
        assert isinstance(at.step, Stuck)
        run = asyncio.create_task(at.journal.advance("T-2"))
        await at.step.entered.wait()
        await at.journal.resume("T-1", reason="mended")
        run.cancel()
        with suppress(asyncio.CancelledError):
            await run
        assert await at.journal.log.query("SELECT task FROM journal_lanes") != []
    async with desk(tmp_path, pipeline) as at:
        dispatcher = Dispatcher(at.journal)
        for expected in ("T-2", "T-1"):
            await dispatcher._start_due()
            assert dispatcher.running == {expected}
            for begun in list(dispatcher._runs.values()):
                assert isinstance(await begun, Advanced)
            await asyncio.sleep(0)  # its end is noticed
        assert [await at.stage(task) for task in ("T-1", "T-2")] == ["done", "done"]


@pytest.mark.proves("DC-3")
async def test_of_a_free_lane_the_oldest_goes_first_and_nobody_overtakes_it(tmp_path: Path) -> None:
    async with desk(tmp_path, three_stages("auto", lane=LANE)) as at:
        for task in ("T-1", "T-2", "T-3"):
            await at.open(task, stage="ship")
        dispatcher = Dispatcher(at.journal)
        await dispatcher._start_due()
        assert dispatcher.running == {"T-1"}
        await dispatcher._start_due()
        assert dispatcher.running == {"T-1"}, "the next one waits, though it would be deferred only"
        for begun in list(dispatcher._runs.values()):
            assert isinstance(await begun, Advanced)
