"""The engine by itself: what it says next, and what it takes in (DESIGN 1, PROTOCOL 4, ENGINE 2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from journal.actions import (
    Action,
    Append,
    Appended,
    Apply,
    Ask,
    Asked,
    Busy,
    Ended,
    EndHolder,
    Finished,
    Locked,
    Lost,
    Occupied,
    Probe,
    Probed,
    Quiesce,
    Quiet,
    Read,
    Replied,
    Result,
    Seen,
    TakeLock,
    Unlock,
    Unlocked,
    Wait,
    Waited,
)
from journal.admit import admit
from journal.engine import MAX_FRUITLESS, next_action
from journal.events import Acquired, CancelRequested, Draft, Observed, Owner, Parked, Paused, Released, Resumed
from journal.learn import learn
from journal.plan import EdgePlan, StepPlan, intern_plan
from journal.ports import Answer, Finding, Reply
from journal.run import Run
from journal.state import TaskState, fold
from journal.words import Cause, Ending, Fact, Guard, Hold, Kind, Opening, Outcome

E, P, B, W = Guard.EXCLUSIVE, Guard.PROBED, Guard.BLIND, Guard.AWAITED
OURS, OTHERS, ABSENT, UNKNOWN, CONFLICT = Fact.OURS, Fact.OTHERS, Fact.ABSENT, Fact.UNKNOWN, Fact.CONFLICT
APPLIED, REJECTED, TIMEOUT = (Reply(o) for o in (Outcome.APPLIED, Outcome.REJECTED, Outcome.UNKNOWN))


def step(name: str, guard: Guard = E, *, adopts: bool = False, attempts: int = 2, waits: int = 1) -> StepPlan:
    return StepPlan(name, guard, adopts=adopts, attempts=attempts, waits=waits, looks=2)


def edge(
    *steps: StepPlan, gates: tuple[str, ...] = (), lane: str = "", on_failure: str = "", target: str = "b"
) -> EdgePlan:
    return intern_plan(EdgePlan("a", target, steps, gates, lane, on_failure, final=True))


@dataclass
class OneEdge:
    """A route of one edge, which a test may change."""

    plan: EdgePlan | None

    def edge(self, stage: str) -> EdgePlan | None:
        return self.plan if self.plan and self.plan.source == stage else None

    __hash__ = object.__hash__


@dataclass
class Play:
    """Performs what the engine names: over a log that admits, and a world that answers from a list."""

    plan: EdgePlan
    answers: Iterable[object] = ()  # Fact, Reply, Opening, in the order they are asked for
    state: TaskState = TaskState("a", 1)
    units: list[tuple[str, ...]] = field(default_factory=list)
    did: list[Action] = field(default_factory=list)
    lane_holder: str = ""
    busy: list[bool] = field(default_factory=list)  # what TakeLock answers before it is free; True = overdue

    def run(self, expect: str = "", run: str = "run-1") -> Finished:
        route = OneEdge(self.plan)
        answers = iter(self.answers)
        r = Run("worker", Owner(run), route, "t", expect)
        while not isinstance(action := next_action(r), Finished):
            self.did.append(action)
            r = learn(r, action, self._perform(action, answers))
        assert not r.locked, "a run that ends gives its lock back"
        return action

    def _perform(self, action: Action, answers: Iterable[object]) -> Result:
        match action:
            case TakeLock():
                return Busy(self.busy.pop(0)) if self.busy else Locked()
            case EndHolder():
                return Ended()
            case Read():
                return Seen(self.state)
            case Ask():
                return Asked(Answer(next(answers)))  # type: ignore[call-overload]
            case Append(expect=expect, drafts=drafts):
                return self._append(expect, drafts)
            case Quiesce():
                return Quiet()
            case Probe():
                fact = next(answers)  # type: ignore[call-overload]
                return fact if isinstance(fact, Probed) else Probed(Finding(fact))
            case Apply():
                return Replied(next(answers))  # type: ignore[call-overload]
            case Wait():
                return Waited()
            case Unlock():
                return Unlocked()
            case Finished():
                raise AssertionError

    def _append(self, expect: TaskState, drafts: tuple[Draft, ...]) -> Result:
        if expect != self.state:
            return Lost(self.state)
        if self.lane_holder and any(d.kind is Kind.INTENDED for d in drafts):
            return Occupied(self.lane_holder)
        self.state = admit(self.state, drafts)
        self.units.append(tuple(d.kind for d in drafts))
        self.last = drafts[-1]
        self.drafts = [*getattr(self, "drafts", []), *drafts]
        return Appended(self.state)

    def names(self) -> list[str]:
        return [type(a).__name__ for a in self.did]

    def body(self, kind: Kind) -> object:
        return next(d.body for d in self.drafts if d.kind is kind)


@pytest.mark.proves("FR-1", "E1", "E5", "F4", "E10")
def test_a_step_is_locked_read_acquired_probed_intended_applied_and_confirmed_in_this_order() -> None:
    play = Play(edge(step("x")), [ABSENT, APPLIED, OURS])
    assert play.run() == Finished(Ending.ADVANCED)
    assert play.names() == [
        "TakeLock", "Read", "Append", "Probe", "Append", "Apply", "Probe", "Append", "Unlock",
    ]  # fmt: skip
    assert play.units == [("acquired",), ("intended",), ("applied", "stage_moved", "released")]
    assert play.state.hold is Hold.DONE


def test_an_outcome_rides_with_the_next_intent() -> None:
    """Two steps cost four commits, not five: each outcome goes out with what follows it."""
    play = Play(edge(step("x"), step("y")), [ABSENT, APPLIED, OURS, ABSENT, APPLIED, OURS])
    play.run()
    assert play.units == [
        ("acquired",), ("intended",), ("applied", "intended"), ("applied", "stage_moved", "released"),
    ]  # fmt: skip


@pytest.mark.proves("E3", "F5", "I16", "I19")
def test_the_key_stays_and_the_fence_grows_from_attempt_to_attempt() -> None:
    play = Play(edge(step("x")), [ABSENT, TIMEOUT, ABSENT, ABSENT, APPLIED, OURS])
    play.run()
    first, second = (a for a in play.did if isinstance(a, Apply))
    assert first.key == second.key == (1, "x")
    assert first.fence < second.fence == (1, 2)


@pytest.mark.proves("FR-3", "O3")
def test_a_busy_lock_defers_and_writes_nothing() -> None:
    play = Play(edge(step("x")), busy=[False])
    assert play.run().ending is Ending.DEFERRED
    assert play.units == []


@pytest.mark.proves("FR-3", "TR-7", "O3")
def test_an_overdue_holder_is_ended_and_its_lock_taken() -> None:
    play = Play(edge(step("x")), [ABSENT, APPLIED, OURS], busy=[True])
    play.state = fold([Draft(Acquired(Owner("hung"), play.plan), 1, 1)], play.state)
    assert play.run().ending is Ending.ADVANCED
    acquired = play.body(Kind.ACQUIRED)
    assert isinstance(acquired, Acquired)
    assert (acquired.before, acquired.cause) == ("hung", Cause.BUDGET)


@pytest.mark.proves("TR-1", "I7", "O3")
def test_a_lock_that_does_not_come_free_costs_its_holder_the_epoch_and_drives_nothing() -> None:
    play = Play(edge(step("x")), busy=[True, True])
    assert play.run().ending is Ending.PARKED
    assert play.units == [("acquired", "parked", "released")]
    assert not any(isinstance(a, Probe | Apply) for a in play.did)


@pytest.mark.proves("FR-2", "F2")
def test_whoever_believes_in_another_stage_writes_nothing() -> None:
    play = Play(edge(step("x")))
    assert play.run(expect="z").ending is Ending.LOST
    assert play.units == []


@pytest.mark.proves("F2", "I7")
@pytest.mark.parametrize("hold", [Hold.PARKED, Hold.PAUSED, Hold.CANCELED, Hold.DONE])
def test_a_task_that_is_held_is_not_acquired(hold: Hold) -> None:
    play = Play(edge(step("x")))
    play.state = play.state._replace(hold=hold)
    assert play.run().ending is Ending.REFUSED
    assert play.units == []


def test_a_stage_without_an_edge_is_refused() -> None:
    play = Play(edge(step("x")), state=TaskState("elsewhere", 1))
    assert play.run().ending is Ending.REFUSED


@pytest.mark.proves("FR-2", "L3")
def test_who_loses_the_race_runs_no_effect() -> None:
    """An operator pauses right before the intent: the append loses, nothing is applied."""
    play = Play(edge(step("x")), [ABSENT])
    route = OneEdge(play.plan)
    run = Run("worker", Owner("run-1"), route, "t")
    for result in (Locked(), Seen(play.state)):
        run = learn(run, next_action(run), result)
    acquire = next_action(run)
    assert isinstance(acquire, Append)
    run = learn(run, acquire, Appended(admit(play.state, acquire.drafts)))
    run = learn(run, next_action(run), Probed(Finding(ABSENT)))
    paused = fold([Draft(Paused("x"), 1, 1)], run.state or TaskState())
    run = learn(run, next_action(run), Lost(paused))
    assert next_action(run) == Unlock()
    run = learn(run, Unlock(), Unlocked())
    assert next_action(run) == Finished(Ending.LOST, "the task moved on meanwhile")


def test_an_edge_without_steps_is_one_commit() -> None:
    play = Play(edge())
    assert play.run().ending is Ending.ADVANCED
    assert play.units == [("acquired", "stage_moved", "released")]


@pytest.mark.proves("O2", "R55")
def test_terms_without_a_closed_step_end_with_a_person() -> None:
    play = Play(edge(step("x")))
    play.state = play.state._replace(fruitless=MAX_FRUITLESS)
    assert play.run().ending is Ending.PARKED
    assert play.units == [("acquired", "parked", "released")]


@pytest.mark.proves("O2")
def test_a_parked_task_that_evidence_frees_is_driven_again() -> None:
    """Else it would be acquired only to be parked, freed and parked again, for ever."""
    play = Play(edge(step("x")), [OURS])
    play.state = play.state._replace(fruitless=MAX_FRUITLESS, hold=Hold.PARKED, plan=play.plan, intents=(("x", 1),))
    play.state = play.state._replace(open=True)
    play.state = fold([Draft(Observed("open", OURS, E, "converge"), 0, 1, step="x")], play.state)
    assert play.run().ending is Ending.ADVANCED


@pytest.mark.proves("E12")
@pytest.mark.parametrize(("opening", "ending"), [(Opening.CLOSED, Ending.REFUSED), (Opening.UNKNOWN, Ending.WAITING)])
def test_a_gate_that_is_not_open_stops_before_the_epoch(opening: Opening, ending: Ending) -> None:
    play = Play(edge(step("x"), gates=("coverage",)), [opening])
    assert play.run().ending is ending
    assert play.units == []


@pytest.mark.proves("E12")
@pytest.mark.parametrize("opening", [Opening.CLOSED, Opening.UNKNOWN])
def test_a_gate_that_shuts_before_the_first_intent_releases_the_task(opening: Opening) -> None:
    play = Play(edge(step("x"), gates=("coverage",)), [Opening.OPEN, ABSENT, opening])
    assert play.run().ending is Ending.WAITING
    assert play.units == [("acquired",), ("released",)]


@pytest.mark.proves("E13")
def test_a_busy_lane_releases_the_task_and_names_who_holds_it() -> None:
    play = Play(edge(step("x"), lane="merge:r/main"), [ABSENT], lane_holder="other-task")
    assert play.run() == Finished(Ending.WAITING, "lane merge:r/main is held by other-task")


@pytest.mark.proves("E6", "V4")
def test_a_timeout_is_settled_by_silence_then_a_probe_never_by_the_reply() -> None:
    play = Play(edge(step("x", P)), [ABSENT, TIMEOUT, OURS])
    assert play.run().ending is Ending.ADVANCED
    assert play.names()[5:8] == ["Apply", "Quiesce", "Probe"]
    assert play.units[-1] == ("observed", "applied", "stage_moved", "released")


@pytest.mark.proves("E6", "V4")
def test_a_re_drive_pauses_probes_again_and_records_why() -> None:
    play = Play(edge(step("x", P)), [ABSENT, TIMEOUT, ABSENT, ABSENT, APPLIED, OURS])
    assert play.run().ending is Ending.ADVANCED
    assert play.names()[6:10] == ["Quiesce", "Probe", "Wait", "Probe"]
    assert ("observed", "intended") in play.units


@pytest.mark.proves("E6", "I9")
def test_a_confirmed_refusal_is_recorded_and_tried_again() -> None:
    play = Play(edge(step("x")), [ABSENT, REJECTED, ABSENT, ABSENT, APPLIED, OURS])
    assert play.run().ending is Ending.ADVANCED
    assert ("rejected",) in play.units


@pytest.mark.proves("E8", "I12", "O2")
def test_a_step_refused_for_good_rolls_the_stage_back() -> None:
    play = Play(edge(step("x", attempts=1), on_failure="review"), [ABSENT, REJECTED, ABSENT, ABSENT])
    assert play.run().ending is Ending.ROLLED_BACK
    assert play.state.stage == "review"


@pytest.mark.proves("E8")
def test_nothing_rolls_back_once_something_irreversible_landed() -> None:
    plan = edge(step("x"), step("y", attempts=1), on_failure="review")
    play = Play(plan, [ABSENT, APPLIED, OURS, ABSENT, REJECTED, ABSENT, ABSENT])
    assert play.run().ending is Ending.PARKED
    assert play.state.stage == "a"


@pytest.mark.proves("E8", "I12")
def test_nothing_rolls_back_while_an_earlier_attempt_may_still_land() -> None:
    """Attempt 1 of an exclusive step timed out and was superseded; attempt 2 is refused. A person decides."""
    play = Play(edge(step("x"), on_failure="review"), [ABSENT, TIMEOUT, ABSENT, ABSENT, REJECTED, ABSENT, ABSENT])
    assert play.run().ending is Ending.PARKED
    assert (play.state.stage, play.state.loose) == ("a", True)


def test_a_rollback_gives_each_step_its_own_attempts_back() -> None:
    back = edge(step("x", attempts=1), on_failure="review")
    play = Play(back, [ABSENT, REJECTED, ABSENT, ABSENT])
    play.run()
    assert (play.state.attempts, play.state.tries) == (1, 0)
    other = intern_plan(EdgePlan("review", "a", (step("z"),)))
    again = Play(other, [ABSENT, APPLIED, OURS], state=play.state)
    again.run(run="run-2")
    assert again.state._replace(plan=back).tries == 0


@pytest.mark.proves("V3", "O2", "I14")
def test_a_fact_that_is_not_there_yet_releases_the_task_until_its_next_look() -> None:
    play = Play(edge(step("verified", W)), [ABSENT, ABSENT])
    assert play.run().ending is Ending.WAITING
    released = play.last.body
    assert isinstance(released, Released)
    assert released.look_ms > 0
    assert (play.state.owner, play.state.looks, play.state.fruitless) == ("", 1, 0)


@pytest.mark.proves("V3", "I17")
def test_waiting_has_an_end() -> None:
    play = Play(edge(step("verified", W)), [ABSENT] * 5)
    endings = [play.run(run=f"run-{n}").ending for n in range(3)]
    assert endings == [Ending.WAITING, Ending.WAITING, Ending.PARKED]


@pytest.mark.proves("V3")
def test_past_its_deadline_a_fact_is_left_to_a_person() -> None:
    play = Play(edge(step("verified", W)), [Probed(Finding(ABSENT), late=True)])
    assert play.run().ending is Ending.PARKED
    parked = play.body(Kind.PARKED)
    assert isinstance(parked, Parked)
    assert parked.reason == "verified: absent past the deadline"


def test_nobody_waits_with_something_unwritten() -> None:
    play = Play(edge(step("x"), step("verified", W)), [ABSENT, APPLIED, OURS, ABSENT, OURS])
    assert play.run().ending is Ending.ADVANCED
    assert ("applied",) in play.units
    assert play.names()[play.names().index("Wait") - 1] == "Append"


@pytest.mark.proves("V8", "I22")
def test_our_key_in_the_world_without_an_intent_halts_the_task() -> None:
    play = Play(edge(step("x")), [OURS])
    assert play.run().ending is Ending.PARKED
    observed = play.body(Kind.OBSERVED)
    assert isinstance(observed, Observed)
    assert observed.verdict == "halt"


@pytest.mark.proves("E10")
@pytest.mark.parametrize(("adopts", "ending"), [(True, Ending.ADVANCED), (False, Ending.PARKED)])
def test_anothers_effect_counts_only_for_a_step_that_takes_it(adopts: bool, ending: Ending) -> None:
    play = Play(edge(step("x", adopts=adopts)), [OTHERS])
    assert play.run().ending is ending
    assert not any(isinstance(a, Apply) for a in play.did)


def test_a_deploy_overtaken_by_a_later_one_converges() -> None:
    play = Play(edge(step("x")), [Probed(Finding(OTHERS, (("superseded", True),)))])
    assert play.run().ending is Ending.ADVANCED


@pytest.mark.proves("V3")
def test_conflict_parks() -> None:
    assert Play(edge(step("x")), [CONFLICT]).run().ending is Ending.PARKED


@pytest.mark.proves("E4")
@pytest.mark.parametrize(
    ("reply", "ending"), [(APPLIED, Ending.ADVANCED), (TIMEOUT, Ending.PARKED)], ids=["claimed", "in doubt"]
)
def test_a_blind_step_runs_unasked_and_a_doubt_parks_it(reply: Reply, ending: Ending) -> None:
    play = Play(edge(step("x", B)), [UNKNOWN, reply, UNKNOWN])
    assert play.run().ending is ending
    assert sum(isinstance(a, Apply) for a in play.did) == 1


@pytest.mark.proves("E4", "V4", "V6")
def test_a_person_who_says_not_applied_lets_a_blind_step_run_again() -> None:
    play = Play(edge(step("x", B)), [UNKNOWN, REJECTED, UNKNOWN, UNKNOWN, APPLIED])
    assert play.run().ending is Ending.ADVANCED
    assert sum(isinstance(a, Apply) for a in play.did) == 2


def test_a_transition_that_has_begun_keeps_its_plan() -> None:
    old, new = edge(step("x")), edge(step("y"))
    play = Play(old, [ABSENT, TIMEOUT, UNKNOWN, UNKNOWN])
    assert play.run().ending is Ending.WAITING
    changed = Play(new, [OURS], state=play.state)
    changed.run(run="run-2")
    assert changed.state.closed == ("x",)


def test_a_transition_that_has_not_begun_takes_the_new_plan() -> None:
    play = Play(edge(step("x")), [UNKNOWN, UNKNOWN])
    assert play.run().ending is Ending.WAITING
    changed = Play(edge(step("y")), [ABSENT, APPLIED, OURS], state=play.state)
    changed.run(run="run-2")
    assert changed.state.closed == ("y",)


def test_a_cancel_ends_a_task_that_nothing_is_in_flight_for() -> None:
    play = Play(edge(step("x")))
    play.state = fold([Draft(CancelRequested("not wanted"), 0, 1)], play.state)
    assert play.run().ending is Ending.REFUSED
    assert play.state.hold is Hold.CANCELED
    assert play.units == [("canceled",)]


def test_a_cancel_waits_for_the_doubt_and_then_lets_no_further_step_begin() -> None:
    play = Play(edge(step("x"), step("y")), [ABSENT, TIMEOUT, UNKNOWN, UNKNOWN])
    play.run()
    play.state = fold([Draft(CancelRequested("not wanted"), 1, 1)], play.state)
    after = Play(play.plan, [OURS], state=play.state)
    after.run(run="run-2")
    assert after.state.closed == ("x",)
    assert after.state.hold is Hold.CANCELED
    assert not any(isinstance(a, Apply) for a in after.did)


def test_a_person_who_resumes_allows_new_attempts() -> None:
    play = Play(edge(step("x", attempts=1)), [ABSENT, TIMEOUT, ABSENT])
    assert play.run().ending is Ending.PARKED
    play.state = admit(play.state, (Draft(Resumed("again"), 1, 1, "operator"),))
    again = Play(play.plan, [ABSENT, ABSENT, APPLIED, OURS], state=play.state)
    assert again.run(run="run-2").ending is Ending.ADVANCED


def test_actions_and_results_of_different_kinds_are_never_equal() -> None:
    """As named tuples Locked() == Unlocked(), and a cache would take one for the other (ENGINE 9)."""
    empty = (Locked(), Unlocked(), Ended(), Quiet(), Waited(), TakeLock(), EndHolder(), Read(), Unlock())
    assert len(set(empty)) == len(empty)
