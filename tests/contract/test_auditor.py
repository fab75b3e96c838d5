"""The auditor: facts that contradict the journal are written down once; only a parked task is freed (PROTOCOL 5)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from journal.engine import MAX_FRUITLESS
from journal.events import HazardFound, Observed
from journal.ports import Call, Reply
from journal.results import Advanced, Done, Parked
from journal.words import Fact, Guard, Kind, Outcome, evidence
from recovery.auditor import Auditor
from tests.acting import Desk, desk, three_stages
from tests.builders import FileStep, perform

KEY = "T-1/1/merge_pr"


@dataclass
class LateStep(FileStep):
    """A far side that refuses, and later does it all the same."""

    refusing: bool = True

    async def apply(self, call: Call) -> Reply:
        if self.refusing:
            return Reply(Outcome.REJECTED, evidence(reason="busy"))
        perform(self.folder, call.key, call.fence)
        return Reply(Outcome.APPLIED)


def step_of(d: Desk) -> FileStep:
    assert isinstance(d.step, FileStep)
    return d.step


async def hazards(d: Desk) -> list[str]:
    bodies = [e.draft.body for e in await d.events("T-1", Kind.HAZARD_FOUND)]
    return [b.reason for b in bodies if isinstance(b, HazardFound)]


async def audited(d: Desk, times: int = 2) -> None:
    """Rounds by two auditors that remember nothing of each other, as before and after a restart."""
    for _ in range(times):
        await Auditor(d.journal).round(audit=True)


@pytest.mark.proves("V9", "FR-4", "I7", "I18")
async def test_a_parked_task_whose_effect_shows_up_is_freed_and_converges_without_another_call(tmp_path: Path) -> None:
    async with desk(tmp_path, three_stages(ship="manual", attempts=2), step=LateStep) as d:
        await d.open("T-1", stage="ship")
        assert isinstance(await d.journal.advance("T-1"), Parked)
        version = (await d.journal.stream("T-1")).version
        await audited(d)
        assert (await d.journal.stream("T-1")).version == version  # nothing there, nothing follows
        perform(step_of(d).folder, KEY, (1, 2))  # the refused request was executed after all
        await audited(d)
        assert (await d.journal.stream("T-1")).state.hold == ""
        seen = (await d.events("T-1", Kind.OBSERVED))[-1]
        assert isinstance(seen.draft.body, Observed)
        assert (seen.draft.body.fact, seen.draft.actor) == (Fact.OURS, "reconciler")
        assert isinstance(await d.journal.advance("T-1"), Advanced)
        assert step_of(d).calls(KEY) == ["1.2"]


@pytest.mark.proves("I21")
async def test_a_parked_task_that_somebody_holds_is_not_written_to(tmp_path: Path) -> None:
    async with desk(tmp_path, three_stages(ship="manual", attempts=2), step=LateStep) as d:
        await d.open("T-1", stage="ship")
        await d.journal.advance("T-1")
        perform(step_of(d).folder, KEY, (1, 2))
        lock = d.journal.locks.take_task("T-1", "operator", "looks")
        assert lock is not None
        version = (await d.journal.stream("T-1")).version
        await audited(d)
        assert (await d.journal.stream("T-1")).version == version
        lock.release()


@pytest.mark.proves("O2", "R55")
async def test_what_was_parked_for_its_fruitless_terms_is_left_to_a_person(tmp_path: Path) -> None:
    """Freed, it would be parked again before it looks: round and round, an alert each time."""

    class HangingStep(FileStep):
        async def apply(self, call: Call) -> Reply:
            raise asyncio.CancelledError

    async with desk(tmp_path, three_stages(ship="manual", attempts=9), step=HangingStep) as d:
        await d.open("T-1", stage="ship")
        for _ in range(MAX_FRUITLESS):
            with pytest.raises(asyncio.CancelledError):
                await d.journal.advance("T-1")
        assert isinstance(await d.journal.advance("T-1"), Parked)
        perform(step_of(d).folder, KEY, (1, 3))
        version = (await d.journal.stream("T-1")).version
        await audited(d)
        assert (await d.journal.stream("T-1")).version == version


@pytest.mark.proves("V7", "FR-5")
@pytest.mark.parametrize("verb", ["pause", "cancel"])
async def test_what_a_person_decided_is_not_undone_by_an_effect_that_shows_up(tmp_path: Path, verb: str) -> None:
    async with desk(tmp_path, three_stages(ship="manual", attempts=2), step=LateStep) as d:
        await d.open("T-1", stage="ship")
        await d.journal.advance("T-1")
        assert isinstance(await getattr(d.journal, verb)("T-1", reason="stop"), Done)
        perform(step_of(d).folder, KEY, (1, 2))
        await audited(d)
        state = (await d.journal.stream("T-1")).state
        assert state.hold == {"pause": "paused", "cancel": "canceled"}[verb]
        # P10: it landed after the cancel, which is said once.
        landed = ["merge_pr: ours in the world; landed after the task was canceled"]
        assert await hazards(d) == (landed if verb == "cancel" else [])


@pytest.mark.proves("V5", "V7", "R50")
async def test_an_effect_that_vanished_under_a_done_task_is_a_hazard_once_and_drives_nothing(tmp_path: Path) -> None:
    async with desk(tmp_path, three_stages(ship="manual")) as d:
        await d.open("T-1", stage="ship")
        assert isinstance(await d.journal.advance("T-1"), Advanced)
        await audited(d)
        assert await hazards(d) == []
        step_of(d).effect(KEY).unlink()
        await audited(d, times=3)
        assert await hazards(d) == ["merge_pr: absent in the world; the journal says applied"]
        assert (await d.stage("T-1"), len(step_of(d).calls(KEY))) == ("done", 1)


@pytest.mark.proves("V5", "V3")
async def test_a_passed_step_that_is_absent_is_a_hazard_and_one_that_cannot_be_asked_is_none(tmp_path: Path) -> None:
    async with desk(tmp_path, three_stages(ship="manual")) as d:
        await d.open("T-1", stage="ship")
        await d.journal.advance("T-1")
        effect = step_of(d).effect(KEY)
        effect.unlink()
        effect.mkdir()  # reading it fails now: unknown, which is neither yes nor no
        await audited(d)
        assert await hazards(d) == []
        effect.rmdir()
        await audited(d)
        assert len(await hazards(d)) == 1
        assert step_of(d).traits.guard is Guard.EXCLUSIVE
