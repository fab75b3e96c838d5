"""Every interleaving of hosts that share no lock and only suspect each other; the wrong variants stand in `mutants`."""

from __future__ import annotations

import pytest

from journal.words import Guard
from recovery.prove.explorer import Explored, explore
from recovery.prove.replay import Schedule, read_schedule, replay
from recovery.prove.world import Bounds, Config
from tests.property.mutants import MUTANTS
from tests.property.worlds import EFFECTS, F, P, one


def search(cfg: Config, limit: int = 300_000) -> Explored:
    found = explore(cfg, limit=limit)
    assert found.safe, "\n".join((found.violation, *found.trace))
    assert found.complete, f"cut off after {found.states} states"
    return found


@pytest.mark.proves("M1", "M2", "I23")
@pytest.mark.parametrize("guard", EFFECTS)
def test_an_owner_that_was_suspected_while_it_lived_and_acts_late_doubles_nothing(guard: Guard) -> None:
    """It may stand still between its check and its effect for as long as it likes, replaced or not."""
    found = search(Config(one(guard), Bounds(suspicion=1), hosts=True))
    assert found.endings["done"]
    assert found.endings["parked"]


@pytest.mark.proves("M1", "T7")
@pytest.mark.parametrize("guard", [P, F])
def test_a_host_that_stands_still_for_ever_leaves_its_task_to_others_or_to_a_person(guard: Guard) -> None:
    assert search(Config(one(guard), Bounds(freeze=1), hosts=True)).endings["parked"]


@pytest.mark.long
@pytest.mark.proves("M1", "M2", "T2")
@pytest.mark.parametrize("guard", EFFECTS)
def test_a_crash_and_two_suspicions_double_nothing(guard: Guard) -> None:
    search(Config(one(guard), Bounds(crash=1, suspicion=2), hosts=True), limit=3_000_000)


def test_a_schedule_of_hosts_is_replayed_from_its_file_and_the_engine_leaves_it() -> None:
    mutant = MUTANTS["a suspect's probed step is driven"].cfg
    found = explore(mutant, limit=100_000)
    read = read_schedule(Schedule(mutant, found.trace).to_text())
    assert read.cfg.hosts
    told = replay(read)
    assert told.lost == "B probes x: absent"  # the engine asks about the host again where the mutant believed
    assert not told.violation
