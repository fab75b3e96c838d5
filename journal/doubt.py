"""
The decision table as data. A live timeout, a takeover and a restart all look up the same cell (V1, PROTOCOL 5).

Row = the fold of the step's prefix; fact = what the probe said after the epoch began and absence was made stable;
column = the guard. Exactly one function decides recovery: `decide`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from journal.plan import StepPlan
from journal.state import TaskState
from journal.words import Fact, Guard, Outcome, Standing

# Python 3.11 takes twenty times longer to look a member up in its class than a name in its module.
_ABSENT, _GONE, _PROBED = Fact.ABSENT, Standing.GONE, Guard.PROBED
_CLAIMED, _REFUSED = Outcome.APPLIED, Outcome.REJECTED


class Row(StrEnum):
    """These three are all the prefixes from which a step can be driven."""

    FRESH = "fresh"  # no intent for this key in the journal
    OPEN = "open"  # an intent without outcome: our own timeout, or inherited
    RETRY = "retry"  # intents, all closed as not applied, by a listed refusal or by an operator


class Verdict(StrEnum):
    """What follows from a cell."""

    DRIVE = "drive"  # write the next intent and apply
    CONVERGE = "converge"  # record what the world shows, run nothing
    REJECT = "reject"  # the refusal is confirmed: record that the attempt did nothing
    WAIT = "wait"
    PARK = "park"
    HALT = "halt"  # the world knows our key and the journal does not: an older copy (X2); the task parks
    ADOPT = "adopt"  # in the table only: converge if the step takes another's effect, else park


_FRESH, _OPEN, _RETRY = Row.FRESH, Row.OPEN, Row.RETRY
_DRIVE, _ADOPT, _HALT, _PARK, _WAIT = Verdict.DRIVE, Verdict.ADOPT, Verdict.HALT, Verdict.PARK, Verdict.WAIT

Cell = tuple[Row, Fact, Guard]
Table = dict[Cell, Verdict]

_TEXT = """
                  repeatable exclusive fenced    probed    blind     awaited
fresh  ours       halt       halt      halt      halt      halt      converge
fresh  others     adopt      adopt     adopt     adopt     park      adopt
fresh  absent     drive      drive     drive     drive     drive     wait
fresh  unknown    wait       wait      wait      wait      drive     wait
fresh  conflict   park       park      park      park      park      park
open   ours       converge   converge  converge  converge  converge  -
open   others     adopt      adopt     adopt     adopt     park      -
open   absent     drive      drive     drive     drive     park      -
open   unknown    wait       wait      wait      wait      park      -
open   conflict   park       park      park      park      park      -
retry  ours       converge   converge  converge  converge  converge  -
retry  others     adopt      adopt     adopt     adopt     park      -
retry  absent     drive      drive     drive     drive     drive     -
retry  unknown    wait       wait      wait      wait      drive     -
retry  conflict   park       park      park      park      park      -
"""


def parse(text: str) -> Table:
    """Read the table; "-" marks cells that cannot be met."""
    head, *lines = text.strip().splitlines()
    guards = [Guard(g) for g in head.split()]
    return {
        (Row(row), Fact(fact), guard): Verdict(word)
        for row, fact, *words in map(str.split, lines)
        for guard, word in zip(guards, words, strict=True)
        if word != "-"
    }


TABLE: Table = parse(_TEXT)

NEEDS_QUIET = frozenset({Guard.FENCED, Guard.PROBED})
"""Before any attempt but the first, nothing sent earlier may land after the probe."""

NOT_PROVEN = "absent, but nothing proves that whoever began the attempt is dead: it may still land"
"""Said of a probed step that a silent host left in doubt; only that host, or a person, can end the waiting."""


class Decision(NamedTuple):
    """The verdict, the cell it comes from, and why it differs from the cell where it does."""

    verdict: Verdict
    cell: Cell
    why: str = ""


_ROW_WORDS = {
    Row.FRESH: ", before the first attempt",
    Row.OPEN: "",  # that an attempt is in doubt is said wherever a task is explained
    Row.RETRY: ", before another attempt",
}
_FACT_WORDS = {
    Fact.OURS: "the effect is there under our key",
    Fact.OTHERS: "somebody else's effect is there",
    Fact.ABSENT: "the effect is not there",
    Fact.UNKNOWN: "there is no answer that counts",
    Fact.CONFLICT: "the sources contradict each other",
}


def cell_in_words(cell: Cell) -> str:
    """What was found, for the person to whom it is left."""
    row, fact, _ = cell
    return _FACT_WORDS[fact] + _ROW_WORDS[row]


def row_of(state: TaskState) -> Row:
    """The row of the cursor's step."""
    return _OPEN if state.open else _RETRY if state.attempts else _FRESH


def decide(
    state: TaskState,
    step: StepPlan,
    fact: Fact,
    *,
    claim: Outcome | None = None,
    superseded: bool = False,
    carrier: Standing = _GONE,
    table: Table = TABLE,
) -> Decision:
    """
    Decide what follows from a fact about the cursor's step; pure and total.

    Args:
        state: The task as it will be once what is known is written.
        step: The cursor's step.
        fact: The probe's answer, asked in this epoch after absence was made stable.
        claim: What this run's own attempt claimed, if it ran one; a claim without proof never converges (E6).
        superseded: The fact is another's because a later version was deployed: taken even if others' are not.
        carrier: How sure it is that nothing is left of who began the open attempt. A key or a fence outlives every
            doubt about that; a step that can only be probed is not driven again before it is certain (M1).
        table: The cells; only mutants pass another.
    """
    row = row_of(state)
    cell = (row, fact, step.guard)
    verdict = table.get(cell, _PARK)
    if verdict is _ADOPT:
        return Decision(Verdict.CONVERGE if step.adopts or superseded else _PARK, cell, "another's effect")
    if verdict is _HALT:
        return Decision(verdict, cell, "the world holds our key and the journal has no intent for it")
    if row is _OPEN and fact is _ABSENT and verdict is _DRIVE:
        if claim is _CLAIMED:
            return Decision(_WAIT, cell, "claimed applied, and the probe does not show it yet")
        if claim is _REFUSED:
            return Decision(Verdict.REJECT, cell, "refused, and the probe confirms that nothing happened")
        if step.guard is _PROBED and carrier is not _GONE:
            return Decision(_WAIT, cell, NOT_PROVEN)
    if verdict is _DRIVE and state.cancel:
        return Decision(_PARK, cell, "cancel was requested while an attempt may still land")
    if verdict is _DRIVE and state.tries >= step.attempts:
        return Decision(_PARK, cell, f"{step.attempts} attempts are used up")
    return Decision(verdict, cell)
