"""
Two books about one protocol: `admit` decides what may be written, `recovery.invariants` what may have been written.

They share no code. On walks through whatever `admit` allows, the checker must find nothing that `admit` looks for; and
what `admit` refuses, the checker must find if it is written all the same.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from journal.admit import admit
from journal.errors import InadmissibleError
from journal.events import Draft, Rejected
from journal.stream import Stream
from journal.words import Kind
from recovery.invariants import Checker, Violation, check
from recovery.ledger import Ledger
from tests.builders import acquired, intended, opened, plan
from tests.conftest import Counts
from tests.property.histories import TASKS, History, _admissible, _units

RARE = frozenset(
    {Kind.REOPENED, Kind.HAZARD_FOUND, Kind.PAUSED, Kind.CANCEL_REQUESTED, Kind.CANCELED, Kind.HEAD_CHANGED}
)
"""Taken now and then, so that walks get somewhere."""

BEYOND_ADMIT = frozenset({"I8", "I15", "I18", "I20"})
"""The writer keeps lanes, the engine keeps bounds and asks before it concludes; `admit` leaves those to them."""


def walk(seed: int, steps: int) -> Iterator[tuple[History, str, list[tuple[Draft, ...]]]]:
    """A seeded walk; at each step also the units that `admit` refuses there."""
    chance, history = random.Random(seed), History()
    for _ in range(steps):
        task = chance.choice(TASKS)
        state = history.streams.get(task, Stream(task)).state
        history.at += chance.randrange(3_000_000)
        units = list(_units(state, history.at))
        allowed = [unit for unit in units if _admissible(state, unit)]
        yield history, task, [unit for unit in units if unit not in allowed]
        common = [unit for unit in allowed if unit[0].kind not in RARE]
        if allowed:
            history._place(task, chance.choice(common if common and chance.random() < 0.97 else allowed))


def found(history: History) -> list[Violation]:
    return [v for v in check(history.events) if "awaited" not in v.detail and "applied seen#0" not in v.detail]


@pytest.mark.proves("I2", "I4", "I5", "I6", "I7", "I9", "I10", "I11", "I12", "I13", "I14", "I16", "I17", "I19", "I21")
def test_what_admit_lets_through_breaks_nothing_that_admit_looks_for(counts: Counts) -> None:
    for seed in range(counts.of(20, most=400)):
        *_, (history, _, _) = walk(seed, 150)
        beyond = [v for v in found(history) if v.invariant not in BEYOND_ADMIT]
        assert not beyond, (seed, beyond)


@pytest.mark.proves("I2", "I4", "I5", "I6", "I7", "I9", "I10", "I11", "I12", "I13", "I14", "I16", "I17", "I21")
def test_what_admit_refuses_is_found_if_it_was_written_all_the_same(counts: Counts) -> None:
    missed: dict[str, int] = {}
    refused = 0
    for seed in range(counts.of(4, most=80)):
        for history, task, units in walk(seed, 60):
            before = len(history.events)
            clean = len(found(history))
            for unit in units:
                history._place(task, unit)
                refused += 1
                if len(found(history)) == clean:
                    missed[reason(history, task, before, unit)] = seed
                undo(history, task, before)
    assert refused > 1000
    assert not missed


def undo(history: History, task: str, length: int) -> None:
    del history.events[length:]
    stream = Stream(task)
    for event in history.events:
        if event.task == task:
            stream = stream.after(event)
    history.streams[task] = stream


def reason(history: History, task: str, length: int, unit: tuple[Draft, ...]) -> str:
    undo(history, task, length)
    try:
        admit(history.streams[task].state, unit)
    except InadmissibleError as error:
        return f"{' '.join(d.kind for d in unit)}: {error}"
    return "admitted"


@pytest.mark.proves("I2", "I26")
def test_places_and_beginnings_are_checked_without_a_task() -> None:
    *_, (history, _, _) = walk(1, 40)
    events = history.events
    assert {v.invariant for v in check([*events[:5], *events[6:]])} >= {"I1", "I2"}
    assert next(check(events[1:])).invariant == "I1"
    checker = Checker()
    assert [v.invariant for v in checker.take(events[1]._replace(position=1))] == ["I26"]


@pytest.mark.proves("I15", "I16")
def test_what_is_kept_of_an_ended_task_accuses_the_same_events_as_all_of_its_books(
    counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = 0
    for seed in range(counts.of(12, most=200)):
        for history, task, units in walk(seed, 150):
            if task not in history.streams or not history.streams[task].state.ended:
                continue
            before = len(history.events)
            for unit in units[seed % 7 :: 7]:
                history._place(task, unit)
                shortly = {(v.position, v.task) for v in check(history.events)}
                with monkeypatch.context() as whole:
                    whole.setattr(Ledger, "over", False)
                    assert shortly == {(v.position, v.task) for v in check(history.events)}
                compared += 1
                undo(history, task, before)
    assert compared > 100


@pytest.mark.proves("I20", "R43", "R126")
def test_an_attempt_whose_term_died_counts_in_neither_book_and_every_other_does_in_both() -> None:
    """Found by kills in the middle of merges: `verify` accused what the engine may do."""
    history, edge = History(), plan("merge_pr")

    def rejected(attempt: int) -> Draft:
        return Draft(Rejected(()), 2, 1, "worker", "merge_pr", attempt)

    def accused() -> int:
        return sum(v.invariant == "I20" for v in check(history.events))

    history._place("T-1", (opened(), acquired(edge), intended("merge_pr")))
    history._place("T-1", (acquired(edge, 2, "run-2"), intended("merge_pr", 2, 2), rejected(2)))
    history._place("T-1", (intended("merge_pr", 3, 2),))
    assert (history.streams["T-1"].state.tries, accused()) == (2, 0)
    history._place("T-1", (rejected(3), intended("merge_pr", 4, 2)))
    assert (history.streams["T-1"].state.tries, accused()) == (3, 1)
