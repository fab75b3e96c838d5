"""
Stays: from which position to which an open task was in which stage, so that the queue can be shown as of any position.

Ended stays are kept as a relational interval tree: each hangs at the one node of a virtual binary tree over positions
that lies in it and divides by the highest power of two. A position is covered by stays at its own ancestors only, so
looking back costs the same at any length of history. Running stays are few and have an index of their own.
"""

from __future__ import annotations

from projections.base import Question

SCRIPT = """
CREATE TABLE journal_view_stays (
    opened INTEGER NOT NULL, from_position INTEGER NOT NULL, to_position INTEGER NOT NULL, node INTEGER NOT NULL,
    stage TEXT NOT NULL, PRIMARY KEY (opened, from_position)
) STRICT, WITHOUT ROWID;
CREATE INDEX journal_view_stays_running ON journal_view_stays (from_position) WHERE to_position = 0;
CREATE INDEX journal_view_stays_from ON journal_view_stays (node, from_position) WHERE to_position > 0;
CREATE INDEX journal_view_stays_to ON journal_view_stays (node, to_position) WHERE to_position > 0;
"""
"""`to_position` is the first position that the stay does not cover; 0 = it runs."""

BEGIN = "INSERT INTO journal_view_stays VALUES (?, ?, ?, ?, ?)"
"""opened, from, to, node, stage; to and node are 0 while it runs."""

END = "UPDATE journal_view_stays SET to_position = ?, node = ? WHERE opened = ? AND from_position = ?"
"""to, node, opened, from."""

Stay = tuple[str, str, str, int]
"""task, repo, stage, position at which it entered."""


def fork(first: int, last: int) -> int:
    """The number from `first` to `last` (at least 1) that divides by the highest power of two."""
    level = ((first - 1) ^ last).bit_length() - 1
    return last >> level << level


def ancestors(position: int, height: int) -> list[int]:
    """The nodes of the tree of this height, in binary digits, at which a stay that covers the position can hang."""
    if not position:
        return []
    own = (position & -position).bit_length() - 1
    above = [position >> (level + 1) << (level + 1) | 1 << level for level in range(own + 1, height)]
    return [position, *above]


_STAYS = "SELECT t.task, t.repo, s.stage, s.from_position FROM"
_TASK = "JOIN journal_view_tasks AS t ON t.opened = s.opened"


def stays_at(position: int) -> Question[tuple[Stay, ...]]:
    """Tasks that were open at a position, by stage entry, oldest first."""
    nodes = ancestors(position, 63)
    left = str([node for node in nodes if node <= position])
    right = str([node for node in nodes if node > position])
    sql = (
        f"{_STAYS} json_each(?) AS n CROSS JOIN journal_view_stays AS s "
        f"ON s.node = n.value AND s.to_position > 0 AND s.to_position > ? {_TASK} "
        f"UNION ALL {_STAYS} json_each(?) AS n CROSS JOIN journal_view_stays AS s "
        f"ON s.node = n.value AND s.to_position > 0 AND s.from_position <= ? {_TASK} "
        f"UNION ALL {_STAYS} journal_view_stays AS s {_TASK} WHERE s.to_position = 0 AND s.from_position <= ? "
        "ORDER BY 4"
    )
    given = (left, position, right, position, position)
    return Question(sql, given, lambda rows: tuple((row[0], row[1], row[2], row[3]) for row in rows))
