"""
What shares the file with the log and must change with it or not at all: a host's column of stages (DESIGN 9, FR-2).

The log hands over its connection inside its transaction; whose table that is and how it is named, it never knows.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from journal.events import Acquired, Draft, Intended, Opened, Parked, Reopened
from journal.log.unit import Unit


@dataclass(frozen=True, slots=True)
class Move:
    """What a unit means for the stage that the companion keeps."""

    task: str
    before: str  # the stage the unit was decided from; "" = the task is opened by it
    after: str  # equal to `before` if the unit only rests on it
    follows: bool  # the companion may be at `after` already: the journal catches up with it


class Companion(Protocol):
    """A table of somebody else's, in the same file."""

    def check(self, db: sqlite3.Connection, path: Path) -> None:
        """
        Look before anything of ours is created or changed.

        Raises:
            StoreUnavailableError: The table is not what was configured.
        """
        ...

    def move(self, db: sqlite3.Connection, move: Move) -> str:
        """
        Compare and write the stage inside the log's transaction; nothing is written if the unit only rests on it.

        Returns:
            Why the unit must not be written, in words for a person; "" if it may.
        """
        ...


def move_of(unit: Unit, after: str) -> Move | None:
    """
    What a unit means for the companion; None if nothing.

    A term or an effect begins only while the companion agrees, so that whoever lost the stage runs no effect (FR-2).
    Outcomes are always written: what happened, happened. So is a parking, which is how a person hears of it.
    """
    task, before = unit.stream.task, unit.stream.state.stage
    if not task:
        return None
    bodies = [draft.body for draft in unit.drafts]
    if after != before:
        return Move(task, before, after, any(isinstance(body, (Opened, Reopened)) for body in bodies))
    return Move(task, before, after, follows=False) if _begins(unit.drafts) else None


def _begins(drafts: tuple[Draft, ...]) -> bool:
    bodies = [draft.body for draft in drafts]
    parks = any(isinstance(body, Parked) for body in bodies)
    return not parks and any(isinstance(body, (Acquired, Intended)) for body in bodies)
