"""`journal prove` as a library: searches, matrix, the failing schedule as a story, the replay file, the walks."""

from __future__ import annotations

import pytest

from journal.errors import InvalidInputError
from recovery.prove.explorer import explore
from recovery.prove.replay import Schedule, read_schedule, replay
from recovery.prove.story import ASSUMPTIONS, Report, prove, small
from recovery.prove.walks import ROUGH, walk
from recovery.prove.world import Bounds, Config
from tests.conftest import Counts
from tests.property.mutants import fence_as
from tests.property.worlds import DEPLOY_ALONE, ROUGH_WAYS, E, F, P, one

ALL = frozenset(ASSUMPTIONS)


def test_a_probed_step_is_proved_and_each_crash_point_has_its_endings() -> None:
    report = prove(one(P), budget=12_000)
    assert report.proved
    (only,) = report.edges
    assert only.level
    points = {p for p in only.matrix if "apply x" in p}
    assert points == {
        "crashes before apply x",
        "crashes inside apply x, before the effect",
        "crashes inside apply x, after the effect",
    }
    assert only.matrix["crashes inside apply x, after the effect"]["done"]


@pytest.mark.proves("V2", "S1", "TR-10")
@pytest.mark.parametrize("without", sorted(ASSUMPTIONS))
def test_without_an_assumption_a_probed_step_doubles_and_the_schedule_is_told(without: str) -> None:
    report = prove(one(P), budget=12_000, assume=ALL - {without})
    assert not report.proved
    assert report.failure is not None
    assert report.failure.story[-1] == "!! double: x landed twice"
    assert any("x is in the world" in line for line in report.failure.story)


def test_a_failing_schedule_can_be_replayed_from_its_file() -> None:
    report = prove(one(F), budget=12_000, assume=ALL - {"fresh-probes"})
    assert report.failure is not None
    again = replay(read_schedule(report.failure.schedule.to_text()))
    assert (again.story, again.violation) == (report.failure.story, report.failure.why)
    assert again.lost == ""


def test_a_schedule_that_is_no_longer_possible_says_where_it_ends() -> None:
    replayed = replay(Schedule(Config(one(P)), ("A locks", "A flies")))
    assert replayed.lost == "A flies"
    assert len(replayed.story) == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2}', '{"version": 1, "edges": 3}'])
def test_a_file_that_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        read_schedule(text)


@pytest.mark.proves("T2")
@pytest.mark.parametrize("name", ROUGH_WAYS)
def test_a_hundred_thousand_random_moves_find_nothing(name: str, counts: Counts) -> None:
    """Three actors and every misfortune at once."""
    walked = walk(ROUGH_WAYS[name], moves=counts.of(100_000, ci=3_000_000, most=10_000_000) // len(ROUGH_WAYS), seed=7)
    assert walked.violation == "", "\n".join(walked.trace)


def test_walks_find_a_mutant_and_shorten_what_they_found() -> None:
    cfg = Config(one(F), Bounds(), next_action=fence_as(lambda f: (f[0], 0)))
    walked = walk(cfg, moves=100_000, seed=1)
    assert walked.violation == "double: x landed twice"
    assert len(walked.trace) <= 2 * len(explore(cfg).trace)


def test_the_same_seed_walks_the_same_ways() -> None:
    cfg = Config((DEPLOY_ALONE,), ROUGH)
    assert walk(cfg, moves=300, seed=5) == walk(cfg, moves=300, seed=5)
    assert walk(cfg, moves=300, seed=5).moves != walk(cfg, moves=300, seed=6).moves


def test_a_pipeline_is_searched_edge_by_edge_and_as_a_whole() -> None:
    plans = (*one(P), DEPLOY_ALONE)
    report = prove(plans, budget=4_000)
    assert isinstance(report, Report)
    assert [e.name for e in report.edges] == ["a -> b", "deploy -> done"]
    assert report.whole is not None
    assert report.walks > 0
    assert report.failure is None


def test_limits_shrink_to_what_a_search_can_exhaust() -> None:
    (plan,) = one(E)
    assert small(plan) is plan  # small already, and interned
