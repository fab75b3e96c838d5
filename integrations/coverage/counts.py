"""
Coverage as integer counts, per file (R97; deploy-facts 3).

Never a percentage: coverage.py's mixes lines and branches, displayed ones are rounded, and formats disagree. Two
shares are compared by cross-multiplication.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from journal.errors import InvalidInputError
from journal.names import shown

MAX_COUNT = 1_000_000_000
"""More lines than any file has; a greater number is nonsense or an attack."""


@dataclass(frozen=True, slots=True)
class Share:
    """`covered` of `total`; a total of zero means "nothing to measure" and is neither higher nor lower than any."""

    covered: int = 0
    total: int = 0

    def above(self, other: Share) -> bool:
        """Whether this is strictly better; anything measured is better than nothing measured."""
        if not other.total:
            return self.total > 0
        return self.covered * other.total > other.covered * self.total

    def below(self, other: Share, tolerance: int = 0) -> bool:
        """Whether this is worse even with `tolerance` more of its own lines covered."""
        if not self.total or not other.total:
            return False
        return (self.covered + tolerance) * other.total < other.covered * self.total


@dataclass(frozen=True, slots=True)
class Counts:
    """What one file's report says."""

    lines: Share = Share()
    branches: Share = Share()


Report = Mapping[str, Counts]
"""Counts by file name."""


def share(covered: object, total: object, where: str) -> Share:
    """
    Check two numbers of a report.

    Raises:
        InvalidInputError: Not whole numbers, negative, absurdly large, or more covered than there are.
    """
    for number in (covered, total):
        if type(number) is not int or not 0 <= number <= MAX_COUNT:
            raise InvalidInputError(
                what=f"coverage of {shown(where)}",
                why=f"counts are whole numbers from 0 to {MAX_COUNT}, not {shown(repr(number))}",
            )
    assert isinstance(covered, int) and isinstance(total, int)
    if covered > total:
        raise InvalidInputError(what=f"coverage of {shown(where)}", why=f"{covered} covered of only {total}")
    return Share(covered, total)


def raised(baseline: Report, measured: Report) -> dict[str, Counts]:
    """The baseline moved up to the maximum, each number by itself; files that were not measured stay (R97)."""
    result = dict(baseline)
    for name, ours in measured.items():
        old = baseline.get(name, Counts())
        lines = ours.lines if ours.lines.above(old.lines) else old.lines
        branches = ours.branches if ours.branches.above(old.branches) else old.branches
        result[name] = Counts(lines, branches)
    return result


def holds(baseline: Report, measured: Report) -> bool:
    """Whether nothing measured is above the baseline: there is nothing to raise."""
    return not any(
        ours.lines.above(old.lines) or ours.branches.above(old.branches)
        for ours, old in ((counts, baseline.get(name, Counts())) for name, counts in measured.items())
    )


def total(report: Report) -> Counts:
    """The sums over all files: for people, never compared."""
    return Counts(
        Share(sum(c.lines.covered for c in report.values()), sum(c.lines.total for c in report.values())),
        Share(sum(c.branches.covered for c in report.values()), sum(c.branches.total for c in report.values())),
    )
