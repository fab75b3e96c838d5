"""The cells of the decision table as a person reads them: which one fired, and why the others did not (NFR-7)."""

from __future__ import annotations

from dataclasses import dataclass

from journal.doubt import TABLE, Row, Table
from journal.words import Fact, Guard


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the decision table, and why it did or did not fire."""

    row: str
    fact: str  # "any" = the row as a whole
    verdict: str
    why: str


def not_fired(row: str, fact: str, guard: str, table: Table = TABLE) -> tuple[Cell, ...]:
    """
    What else the guard's column holds: the other facts of the row that fired, then the other rows as a whole.

    Args:
        row: That fired; whatever is none of the table's is met by no cell.
        fact: That was found.
        guard: Of the step.
        table: The decision table.
    """
    column = Guard(guard)
    cells = []
    for other in Fact:
        verdict = table.get((Row(row), other, column)) if row in _MEANING else None
        if other.value != fact and verdict is not None:
            cells.append(Cell(row, other.value, verdict.value, f"the probe said {fact}, not {other.value}"))
    for name, meaning in _MEANING.items():
        if name != row and any(key[0] == name and key[2] is column for key in table):
            cells.append(Cell(name, "any", "", f"{meaning}, and that was not so"))
    return tuple(cells)


_MEANING = {
    Row.FRESH.value: "no attempt of the step stands in the journal",
    Row.OPEN.value: "an attempt has no outcome",
    Row.RETRY.value: "every attempt is closed as not applied",
}
