"""The decision table: total, pure, equal to the protocol's, and each of its cells guarded by a test (T1)."""

from __future__ import annotations

from itertools import product

import pytest

from journal.doubt import NEEDS_QUIET, TABLE, Cell, Decision, Row, Table, Verdict, cell_in_words, decide, row_of
from journal.events import Acquired, Draft, Intended, Owner, Rejected
from journal.plan import EdgePlan, StepPlan, intern_plan
from journal.state import TaskState, fold
from journal.words import Fact, Guard, Outcome, Standing

GUARDED = (Guard.REPEATABLE, Guard.EXCLUSIVE, Guard.FENCED, Guard.PROBED)
EFFECTFUL = (*GUARDED, Guard.BLIND)


def _by_the_protocol(row: Row, fact: Fact, guard: Guard, *, adopts: bool) -> Verdict:
    """PROTOCOL 5 in other words than the table's: the oracle."""
    if guard is Guard.AWAITED:
        if fact is Fact.OURS or (fact is Fact.OTHERS and adopts):
            return Verdict.CONVERGE
        return Verdict.WAIT if fact in (Fact.ABSENT, Fact.UNKNOWN) else Verdict.PARK
    if fact is Fact.OURS:  # X2 where the journal never intended it, else P2, P3, P8
        return Verdict.HALT if row is Row.FRESH else Verdict.CONVERGE
    if fact is Fact.CONFLICT:
        return Verdict.PARK
    if guard is Guard.BLIND:  # it cannot be asked, so nothing it says counts: first attempt, or nothing in doubt
        return Verdict.PARK if row is Row.OPEN or fact is Fact.OTHERS else Verdict.DRIVE
    if fact is Fact.OTHERS:
        return Verdict.CONVERGE if adopts else Verdict.PARK
    return Verdict.WAIT if fact is Fact.UNKNOWN else Verdict.DRIVE


def met(row: Row, guard: Guard) -> bool:
    """An awaited step has no intent, so only `fresh` can be met."""
    return guard is not Guard.AWAITED or row is Row.FRESH


CELLS: list[Cell] = [(r, f, g) for r, f, g in product(Row, Fact, Guard) if met(r, g)]


def task(row: Row, guard: Guard, *, adopts: bool = False, attempts: int = 2) -> TaskState:
    """A task whose cursor stands in this row."""
    step = StepPlan("x", guard, adopts=adopts, attempts=attempts)
    plan = intern_plan(EdgePlan("a", "b", (step,)))
    events = [Draft(Acquired(Owner("run-1"), plan), 1, 1)]
    if row is not Row.FRESH:
        events.append(Draft(Intended(guard, True, "", 1000), 1, 1, step="x", attempt=1))
    if row is Row.RETRY:
        events.append(Draft(Rejected(), 1, 1, step="x", attempt=1))
    return fold(events, TaskState("a", 1))


def verdict(cell: Cell, table: Table = TABLE, *, adopts: bool = False) -> Verdict:
    row, fact, guard = cell
    state = task(row, guard, adopts=adopts)
    assert state.current is not None
    assert row_of(state) is row
    decision = decide(state, state.current, fact, table=table)
    assert decision.cell == cell
    return decision.verdict


@pytest.mark.proves("V1", "V3", "V4", "NFR-7")
@pytest.mark.parametrize("adopts", [False, True])
def test_the_table_says_what_the_protocol_says(adopts: bool) -> None:
    """Every row, fact and guard that can be met has the verdict of PROTOCOL 5, and no other cell exists."""
    assert set(TABLE) == set(CELLS)
    assert {c: verdict(c, adopts=adopts) for c in CELLS} == {c: _by_the_protocol(*c, adopts=adopts) for c in CELLS}


@pytest.mark.proves("V1")
@pytest.mark.parametrize("cell", CELLS, ids="-".join)
def test_a_wrong_word_in_a_cell_changes_what_is_decided(cell: Cell) -> None:
    """Whatever else is written in a cell, a step that adopts or one that does not is decided differently."""
    for word in Verdict:
        if word in (TABLE[cell], Verdict.REJECT):  # a reject is no cell's word
            continue
        wrong = TABLE | {cell: word}
        noticed = any(verdict(cell, wrong, adopts=a) is not _by_the_protocol(*cell, adopts=a) for a in (False, True))
        assert noticed, f"{cell} may also be {word}"


@pytest.mark.proves("V1", "V3")
@pytest.mark.parametrize("guard", Guard)
def test_a_cell_that_cannot_be_met_parks(guard: Guard) -> None:
    """The table is total: a combination nobody foresaw is left to a person."""
    state = task(Row.OPEN, guard)
    assert state.current is not None
    assert decide(state, state.current, Fact.ABSENT, table={}).verdict is Verdict.PARK


@pytest.mark.proves("V4")
def test_only_fenced_and_probed_need_silence_before_absence_counts() -> None:
    assert {Guard.FENCED, Guard.PROBED} == NEEDS_QUIET


def decided(
    row: Row, fact: Fact, guard: Guard = Guard.EXCLUSIVE, *, claim: Outcome | None = None, **more: bool
) -> Decision:
    state = task(row, guard)._replace(cancel=more.get("cancel", False), loose=more.get("loose", False))
    assert state.current is not None
    return decide(state, state.current, fact, claim=claim, superseded=more.get("superseded", False))


@pytest.mark.proves("E6", "V3")
@pytest.mark.parametrize("guard", GUARDED)
def test_a_claimed_success_that_the_probe_does_not_show_waits(guard: Guard) -> None:
    """A claim is no proof: it neither converges nor permits another attempt in this term."""
    assert decided(Row.OPEN, Fact.ABSENT, guard, claim=Outcome.APPLIED).verdict is Verdict.WAIT
    assert decided(Row.OPEN, Fact.UNKNOWN, guard, claim=Outcome.APPLIED).verdict is Verdict.WAIT
    assert decided(Row.OPEN, Fact.CONFLICT, guard, claim=Outcome.APPLIED).verdict is Verdict.PARK


@pytest.mark.proves("E6")
@pytest.mark.parametrize("guard", GUARDED)
def test_a_refusal_counts_only_when_the_probe_shows_nothing(guard: Guard) -> None:
    assert decided(Row.OPEN, Fact.ABSENT, guard, claim=Outcome.REJECTED).verdict is Verdict.REJECT
    assert decided(Row.OPEN, Fact.OURS, guard, claim=Outcome.REJECTED).verdict is Verdict.CONVERGE
    assert decided(Row.OPEN, Fact.UNKNOWN, guard, claim=Outcome.REJECTED).verdict is Verdict.WAIT


@pytest.mark.proves("E6")
def test_an_exception_claims_nothing() -> None:
    assert decided(Row.OPEN, Fact.ABSENT, claim=Outcome.UNKNOWN) == decided(Row.OPEN, Fact.ABSENT)


@pytest.mark.proves("O2", "I20")
@pytest.mark.parametrize("row", [Row.OPEN, Row.RETRY])
def test_attempts_that_are_used_up_park(row: Row) -> None:
    state = task(row, Guard.EXCLUSIVE, attempts=1)
    assert state.current is not None
    decision = decide(state, state.current, Fact.ABSENT)
    assert decision.verdict is Verdict.PARK
    assert "1 attempts are used up" in decision.why


@pytest.mark.proves("O2")
def test_a_person_who_allows_new_attempts_is_followed() -> None:
    state = task(Row.RETRY, Guard.EXCLUSIVE, attempts=1)._replace(forgiven=(("x", 1),))
    assert state.current is not None
    assert decide(state, state.current, Fact.ABSENT).verdict is Verdict.DRIVE


def test_a_cancel_lets_no_attempt_follow_one_that_may_still_land() -> None:
    assert decided(Row.OPEN, Fact.ABSENT, cancel=True).verdict is Verdict.PARK
    assert decided(Row.RETRY, Fact.ABSENT, cancel=True, loose=True).verdict is Verdict.PARK
    assert decided(Row.OPEN, Fact.OURS, cancel=True).verdict is Verdict.CONVERGE
    assert decided(Row.OPEN, Fact.ABSENT, claim=Outcome.REJECTED, cancel=True).verdict is Verdict.REJECT


def test_a_deploy_that_was_overtaken_converges_though_it_is_anothers() -> None:
    """P1 and P2, superseded: a later version runs, so there is nothing left to initiate."""
    for row in (Row.FRESH, Row.OPEN):
        assert decided(row, Fact.OTHERS).verdict is Verdict.PARK
        assert decided(row, Fact.OTHERS, superseded=True).verdict is Verdict.CONVERGE


@pytest.mark.proves("M1")
@pytest.mark.parametrize("row", [Row.FRESH, Row.OPEN, Row.RETRY])
@pytest.mark.parametrize("guard", EFFECTFUL)
def test_only_a_probed_attempt_in_doubt_waits_for_proof_that_a_silent_host_is_dead(row: Row, guard: Guard) -> None:
    """A key, an old value and a fence refuse what lands late; a probe alone cannot. A blind one parks anyway."""
    state = task(row, guard)
    assert state.current is not None
    for fact in Fact:
        certain = decide(state, state.current, fact, carrier=Standing.GONE)
        suspect = decide(state, state.current, fact, carrier=Standing.SUSPECT)
        if (row, guard, fact) == (Row.OPEN, Guard.PROBED, Fact.ABSENT):
            assert (certain.verdict, suspect.verdict) == (Verdict.DRIVE, Verdict.WAIT)
            assert "nothing proves" in suspect.why
        else:
            assert suspect == certain


def test_a_cell_is_told_in_words_a_person_reads() -> None:
    told = {cell_in_words(cell) for cell in TABLE}
    assert len(told) == len({(row, fact) for row, fact, _ in TABLE})
    assert cell_in_words((Row.OPEN, Fact.CONFLICT, Guard.PROBED)) == "the sources contradict each other"
    assert cell_in_words((Row.FRESH, Fact.OTHERS, Guard.BLIND)) == (
        "somebody else's effect is there, before the first attempt"
    )
