"""A pipeline that cannot work is refused as a whole, with the place and the remedy in the message (NFR-6, E3, E4)."""

from __future__ import annotations

from typing import Any

import pytest

from journal.errors import InvalidInputError, PipelineError
from journal.pipeline import Edge, Pipeline, StepDefinition, with_limits
from journal.plan import StepPlan
from journal.ports import Subject
from journal.words import Guard

MERGE = StepDefinition(StepPlan("merge_pr", Guard.EXCLUSIVE), lane="merge:{repo}/{base}")
RATCHET = StepDefinition(StepPlan("ratchet", Guard.EXCLUSIVE, budget_ms=60_000))
GOOD: dict[str, Any] = {
    "stages": ("review", "deploy", "done"),
    "edges": (
        Edge("review", "deploy", ("merge_pr",), ("coverage",), on_failure="review"),
        Edge("deploy", "done", ("ratchet",)),
    ),
    "steps": {"merge_pr": MERGE, "ratchet": RATCHET},
    "gates": frozenset({"coverage"}),
    "on_new_head": "review",
}  # fmt: skip


def test_a_good_definition_is_taken_and_names_its_ends() -> None:
    pipeline = Pipeline(**GOOD)
    assert (pipeline.first, pipeline.ends) == ("review", frozenset({"done"}))
    assert pipeline.edge("done") is None


EDGE = Edge("review", "deploy")
END = Edge("deploy", "done")
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "one stage": ({"stages": ("review",), "edges": ()}, "at least two stages"),
    "a stage twice": ({"stages": ("review", "deploy", "done", "review")}, "stage 'review' stands there twice"),
    "two ways out of a stage": ({"edges": (EDGE, Edge("review", "done"), END)}, "'review' stands there twice"),
    "an unknown source": ({"edges": (EDGE, END, Edge("x", "done"))}, "unknown stage 'x'; known: deploy, done, review"),
    "an unknown target": ({"edges": (EDGE, Edge("deploy", "x"))}, "unknown stage 'x'"),
    "an unknown way back": ({"edges": (EDGE, Edge("deploy", "done", on_failure="x"))}, "unknown stage 'x'"),
    "an unknown on_new_head": ({"on_new_head": "x"}, "on_new_head"),
    "a loop of one": ({"edges": (EDGE, Edge("deploy", "deploy"))}, "another stage than it leaves"),
    "an unknown step": ({"edges": (EDGE, Edge("deploy", "done", ("fly",)))}, "unknown step 'fly'"),
    "an unknown gate": ({"edges": (EDGE, Edge("deploy", "done", (), ("moon",)))}, "unknown gate 'moon'"),
    "a stage nobody reaches": ({"edges": (EDGE,)}, "no edges lead from 'review' to done"),
    "a circle": ({"stages": ("review", "deploy"), "edges": (EDGE, Edge("deploy", "review"))}, "go in a circle"),
    "a step on two edges": (
        {"edges": (Edge("review", "deploy", ("ratchet",)), Edge("deploy", "done", ("ratchet",)))},
        "step 'ratchet' stands there twice",
    ),
    "a blind irreversible step without a policy": (
        {"steps": {"merge_pr": StepDefinition(StepPlan("merge_pr")), "ratchet": RATCHET}},
        "at-most-once",
    ),
    "no attempt": ({"steps": {"merge_pr": with_limits(MERGE, attempts=0), "ratchet": RATCHET}}, "at least 1"),
    "a negative budget": ({"steps": {"merge_pr": with_limits(MERGE, budget_ms=-1), "ratchet": RATCHET}}, "negative"),
    "two lanes on an edge": (
        {
            "edges": (Edge("review", "deploy", ("merge_pr", "ratchet")), END),
            "steps": {"merge_pr": MERGE, "ratchet": StepDefinition(RATCHET.plan, lane="other")},
        },
        "one edge holds one lane",
    ),
}  # fmt: skip


@pytest.mark.proves("E3", "E4", "NFR-6", "NFR-8")
@pytest.mark.parametrize(("change", "why"), REFUSED.values(), ids=REFUSED)
def test_a_definition_that_cannot_work_is_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(PipelineError) as caught:
        Pipeline(**GOOD | change)
    assert why in str(caught.value)


def test_a_name_that_is_no_word_is_refused() -> None:
    with pytest.raises(InvalidInputError):
        Pipeline(**GOOD | {"stages": ("review", "deploy", "done", "a b")})
    with pytest.raises(InvalidInputError):
        Pipeline(**GOOD | {"steps": {"merge_pr": MERGE, "ratchet": RATCHET, "a\nb": RATCHET}})


@pytest.mark.proves("E4")
def test_the_policy_lets_a_blind_step_in() -> None:
    blind = StepDefinition(StepPlan("merge_pr"), at_most_once=True)
    assert Pipeline(**GOOD | {"steps": {"merge_pr": blind, "ratchet": RATCHET}}).first == "review"


@pytest.mark.proves("NFR-6")
def test_the_budgets_must_fit_into_the_reapers_patience_and_both_sides_are_shown() -> None:
    """300 + 60 + grace 600 = 960: 960 is refused, 961 is not."""
    with pytest.raises(PipelineError) as caught:
        Pipeline(**GOOD, reaper_max_running_s=960)
    message = str(caught.value)
    for part in ("960 s must be more than 960 s", "merge_pr 300", "ratchet 60", "reaper_finalize_grace_s 600"):
        assert part in message
    assert Pipeline(**GOOD, reaper_max_running_s=961).reaper_max_running_s == 961


@pytest.mark.proves("NFR-6")
def test_fractions_of_a_second_are_not_lost_in_the_sum() -> None:
    steps = {"merge_pr": with_limits(MERGE, budget_ms=300_999), "ratchet": with_limits(RATCHET, budget_ms=60_999)}
    with pytest.raises(PipelineError):
        Pipeline(**GOOD | {"steps": steps}, reaper_max_running_s=961)


@pytest.mark.proves("E13")
def test_a_route_fills_the_lane_in_and_knows_the_end() -> None:
    route = Pipeline(**GOOD).route(Subject("T-1", "acme/widgets", "feature/1"))
    first, last = route.edge("review"), route.edge("deploy")
    assert first is not None
    assert last is not None
    assert (first.lane, first.final, last.lane, last.final) == ("merge:acme/widgets/main", False, "", True)
    assert route.edge("review") is first  # interned
    assert route.edge("done") is None
