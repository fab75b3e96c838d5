"""
`admit`: each event that the protocol forbids is refused with the invariant it would break, and only then (PROTOCOL 10).

One history goes through all states; each row of the table takes the unit it is at its end, and one forbidden unit.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from journal.admit import admit
from journal.errors import InadmissibleError
from journal.events import (
    Acquired,
    Applied,
    Body,
    Canceled,
    CancelRequested,
    Draft,
    HeadChanged,
    JournalCreated,
    Observed,
    Opened,
    Owner,
    Parked,
    Paused,
    Rejected,
    Released,
    Reopened,
    Resumed,
    Settled,
    StageMoved,
)
from journal.plan import StepPlan, intern_plan
from journal.state import TaskState, fold
from journal.words import Ending, Fact, Guard
from tests.builders import acquired, intended, opened, plan

EDGE = plan("merge_pr", "ratchet")


def by_owner(body: Body, step: str = "", attempt: int = 0, epoch: int = 1, generation: int = 1) -> Draft:
    return Draft(body, epoch, generation, "worker", step, attempt)


ACQUIRED, INTENT = acquired(EDGE), intended("merge_pr")
APPLIED = by_owner(Applied("apply"), "merge_pr", 1)
REJECTED = by_owner(Rejected(), "merge_pr", 1)
PARKED = by_owner(Parked("why", "alert"))
ABSENT = by_owner(Observed("open", Fact.ABSENT, Guard.EXCLUSIVE, "drive"), "merge_pr", 1)
PRESENT = by_owner(Observed("open", Fact.OURS, Guard.EXCLUSIVE, "converge"), "merge_pr", 1)
DONE = (by_owner(StageMoved("deploy-staging", "deploy", True)), by_owner(Released(Ending.ADVANCED)))
SECOND = (intended("ratchet"), by_owner(Applied("apply"), "ratchet", 1))

NEW: tuple[Draft, ...] = ()
FREE = (opened(),)
OWNED = (*FREE, ACQUIRED)
OPEN = (*OWNED, INTENT)
SUPERSEDED = (*OPEN, ABSENT, intended("merge_pr", 2))
CLOSED = (*OPEN, APPLIED)
BOTH = (*CLOSED, *SECOND)
FINISHED = (*BOTH, *DONE)
HELD = (*OPEN, PARKED, by_owner(Released(Ending.PARKED)))
PAUSED = (*FREE, by_owner(Paused("why"), epoch=0))
CANCELED = (*FREE, by_owner(Canceled("why"), epoch=0))

BACK = intern_plan(replace(EDGE, on_failure="development"))
ASKS = intern_plan(replace(EDGE, steps=(StepPlan("merged", Guard.AWAITED),)))
ROLLED_BACK = (by_owner(StageMoved("deploy-staging", "development")),)

FORBIDDEN: dict[str, tuple[tuple[Draft, ...], tuple[Draft, ...], str]] = {
    "anything before opened": (NEW, (ACQUIRED,), "P0"),
    "opened twice": (FREE, (opened(),), "P0"),
    "opened with generation 2": (NEW, (replace(opened(), generation=2),), "P0"),
    "an event of the log's own stream": (FREE, (by_owner(JournalCreated("x"), epoch=0),), "I3"),
    "an epoch skipped": (FREE, (acquired(EDGE, 2),), "I4"),
    "an epoch reused": (OWNED, (acquired(EDGE, 1),), "I4"),
    "an owner's event of an older epoch": (
        (*OPEN, by_owner(Released(Ending.LOST)), acquired(EDGE, 2)), (APPLIED,), "I5",
    ),
    "an intent while nobody owns": (FREE, (replace(INTENT, epoch=0),), "I21"),
    "a release while nobody owns": (FREE, (by_owner(Released(Ending.LOST), epoch=0),), "I21"),
    "another generation": (OWNED, (replace(INTENT, generation=2),), "I16"),
    "acquired while parked": (HELD, (acquired(EDGE, 2),), "I7"),
    "acquired while paused": (PAUSED, (ACQUIRED,), "I7"),
    "acquired after done": (FINISHED, (acquired(EDGE, 2),), "I15"),
    "acquired after canceled": (CANCELED, (ACQUIRED,), "I15"),
    "an intent of a later step": (OWNED, (intended("ratchet"),), "I8"),
    "an intent of a closed step": (CLOSED, (INTENT,), "I8"),
    "an intent of an unknown step": (OWNED, (intended("fly"),), "I8"),
    "an attempt skipped": (OWNED, (intended("merge_pr", 2),), "I11"),
    "a second open intent": (OPEN, (intended("merge_pr", 2),), "I11"),
    "a second open intent over a present effect": (OPEN, (PRESENT, intended("merge_pr", 2)), "I11"),
    "applied without an intent": (OWNED, (APPLIED,), "I9"),
    "applied for another attempt": (OPEN, (replace(APPLIED, attempt=2),), "I9"),
    "applied twice": (CLOSED, (APPLIED,), "I10"),
    "applied by an attempt that was rejected": ((*OPEN, REJECTED), (APPLIED,), "I9"),
    "applied by a probe that nobody wrote down": (OPEN, (by_owner(Applied("probe"), "merge_pr", 1),), "I18"),
    "another's effect that nobody observed": (OWNED, (by_owner(Applied("other"), "merge_pr"),), "I18"),
    "rejected without an intent": (OWNED, (REJECTED,), "I9"),
    "rejected twice": ((*OPEN, REJECTED), (REJECTED,), "I9"),
    "the stage moved with a step open": (CLOSED, DONE, "I13"),
    "the stage moved with an attempt in doubt": ((*CLOSED, SECOND[0]), DONE, "I13"),
    "the stage moved from elsewhere": (BOTH, (by_owner(StageMoved("review", "deploy", True)),), "I12"),
    "the stage moved along no edge": (BOTH, (by_owner(StageMoved("deploy-staging", "done", True)),), "I12"),
    "the end of the pipeline denied": (BOTH, (by_owner(StageMoved("deploy-staging", "deploy")),), "I12"),
    "released as advanced with an open intent": (OPEN, (by_owner(Released(Ending.ADVANCED)),), "I14"),
    "released as parked without parking": (OWNED, (by_owner(Released(Ending.PARKED)),), "I17"),
    "a new head with an open intent": (OPEN, (by_owner(HeadChanged("", "x"), generation=2),), "I16"),
    "a new head while a superseded attempt may still land": (
        (*SUPERSEDED, by_owner(Rejected(), "merge_pr", 2)), (by_owner(HeadChanged("", "x"), generation=2),), "I16",
    ),
    "reopened while a superseded attempt may still land": (
        (*SUPERSEDED, by_owner(Rejected(), "merge_pr", 2), by_owner(Released(Ending.WAITING))),
        (by_owner(Reopened("a", "", "why"), generation=2),), "I16",
    ),
    "a new head after something landed": (CLOSED, (by_owner(HeadChanged("", "x"), generation=2),), "I16"),
    "a new head in the old generation": (OWNED, (by_owner(HeadChanged("", "x")),), "I16"),
    "settled while not parked": (OPEN, (by_owner(Settled(True, "e", "r"), "merge_pr", 1),), "V6"),
    "settled for another step": (HELD, (by_owner(Settled(True, "e", "r"), "ratchet"),), "V6"),
    "paused after done": (FINISHED, (by_owner(Paused("why")),), "I15"),
    "cancel requested after canceled": (CANCELED, (by_owner(CancelRequested("why"), epoch=0),), "I15"),
    "resumed what is not held": (FREE, (by_owner(Resumed("why"), epoch=0),), "I7"),
    "canceled with an attempt in doubt": (OPEN, (by_owner(Canceled("why")),), "I15"),
    "parked twice": ((*OPEN, PARKED), (PARKED,), "I7"),
    "an intent while parked": ((*OWNED, PARKED), (INTENT,), "I17"),
    "an intent of a step that only asks": ((*FREE, acquired(ASKS)), (intended("merged"),), "I8"),
    "the stage moved along an edge that was left": (
        (*OWNED, by_owner(HeadChanged("", "review"), generation=2)),
        (by_owner(StageMoved("review", "deploy", True), generation=2),), "I12",
    ),
    "rolled back with an attempt in doubt": ((*FREE, acquired(BACK), INTENT), ROLLED_BACK, "I13"),
    "rolled back after something landed": ((*FREE, acquired(BACK), INTENT, APPLIED), ROLLED_BACK, "E8"),
    "rolled back while an earlier attempt may still land": (
        (*FREE, acquired(BACK), INTENT, ABSENT, intended("merge_pr", 2), by_owner(Rejected(), "merge_pr", 2)),
        ROLLED_BACK, "E8",
    ),
    "reopened two generations on": (FINISHED, (by_owner(Reopened("a", "", "why"), generation=3),), "I16"),
    "reopened while owned": (OWNED, (by_owner(Reopened("a", "", "why"), generation=2),), "I16"),
}  # fmt: skip

ALLOWED: dict[str, tuple[tuple[Draft, ...], tuple[Draft, ...]]] = {
    "the whole good path": (NEW, FINISHED),
    "a second attempt after an observed absence": (OPEN, (ABSENT, intended("merge_pr", 2))),
    "a second attempt after a refusal": ((*OPEN, REJECTED), (intended("merge_pr", 2),)),
    "taking over a term without an end": (OPEN, (acquired(EDGE, 2),)),
    "converging on an observed effect": (OPEN, (PRESENT, by_owner(Applied("probe"), "merge_pr", 1))),
    "rolling back after a refusal": ((*FREE, acquired(BACK), INTENT, REJECTED), ROLLED_BACK),
    "waiting with an open intent": (OPEN, (by_owner(Released(Ending.WAITING, "r", 5)),)),
    "settling what is parked": (HELD, (by_owner(Settled(False, "e", "r"), "merge_pr", 1),)),
    "taking a settled task": ((*HELD, by_owner(Settled(False, "e", "r"), "merge_pr", 1)), (acquired(EDGE, 2),)),
    "a new head before anything landed": (OWNED, (by_owner(HeadChanged("", "deploy-staging"), generation=2),)),
    "reopening what is done": (FINISHED, (by_owner(Reopened("deploy-staging", "", "why"), generation=2),)),
    "pausing an owner with an open intent": (OPEN, (by_owner(Paused("why")),)),
}


@pytest.mark.proves("L3", "F2", "I4", "I5", "I6", "I7", "I8", "I9", "I10", "I11", "I12", "I13", "I14", "I15", "I16")
@pytest.mark.parametrize(("history", "unit", "rule"), FORBIDDEN.values(), ids=FORBIDDEN)
def test_what_the_protocol_forbids_is_refused_by_its_rule(
    history: tuple[Draft, ...], unit: tuple[Draft, ...], rule: str
) -> None:
    with pytest.raises(InadmissibleError) as caught:
        admit(fold(history), unit)
    assert caught.value.rule == rule, str(caught.value)


@pytest.mark.proves("L3")
@pytest.mark.parametrize(("history", "unit"), ALLOWED.values(), ids=ALLOWED)
def test_what_the_protocol_allows_is_admitted_and_folds_alike(
    history: tuple[Draft, ...], unit: tuple[Draft, ...]
) -> None:
    assert admit(fold(history), unit) == fold((*history, *unit))


@pytest.mark.proves("F1", "I4", "V8")
def test_no_epoch_at_or_below_the_floor_of_an_incarnation_is_handed_out_again() -> None:
    state = fold(FREE)._replace(floor=7)
    for epoch in (1, 7, 9):
        with pytest.raises(InadmissibleError):
            admit(state, (acquired(EDGE, epoch),))
    assert admit(state, (acquired(EDGE, 8),)).epoch == 8


@pytest.mark.proves("F1")
def test_the_epoch_grows_over_every_ending() -> None:
    state = admit(fold(OWNED), (by_owner(Released(Ending.WAITING)),))
    again = Draft(Acquired(Owner("run-2"), EDGE), 2, 1, "reaper")
    assert admit(state, (again,)).epoch == 2


def test_a_unit_is_judged_as_a_whole_and_an_empty_one_changes_nothing() -> None:
    assert admit(TaskState(), ()) == TaskState()
    with pytest.raises(InadmissibleError):
        admit(fold(OWNED), (INTENT, APPLIED, APPLIED))
    assert isinstance(FREE[0].body, Opened)
