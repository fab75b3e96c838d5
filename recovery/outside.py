"""
What actors ask of forges and trackers, without a name of any: small ports that adapters implement (DESIGN 2, 8).

Nothing that comes in through here is the truth about an effect: it says where to look again. What a webhook tells is a
hint; what `pull` and `asked` answer is fresh, and a lost webhook therefore costs only time (R70, R73, R76).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from journal.ports import Subject


@dataclass(frozen=True, slots=True)
class Hint:
    """An authenticated notice that something may have changed; names what it can, never what is now the case."""

    delivery: str  # the sender's id of this delivery; a repeat carries the same one
    what: str  # the kind of the notice in the sender's words, for people
    task: str = ""  # "" = find the tasks by the rest
    repo: str = ""
    branch: str = ""  # of the change, or the base branch that moved
    pr: int = 0
    head: str = ""  # full commit id of a change's head


class Hooks(Protocol):
    """One sender of webhooks, with its secret."""

    def verify(self, raw: bytes, headers: Mapping[str, str]) -> Hint | None:
        """
        Check the signature over the bytes as they came, in constant time, and read the hint; None = not authentic.

        Args:
            raw: The body, byte for byte (R72).
            headers: By lower-case name.
        """
        ...


class Pull(Protocol):
    """A change as the forge has it at this moment."""

    @property
    def head(self) -> str:
        """Full commit id; "" = none."""
        ...

    @property
    def merged(self) -> bool: ...

    @property
    def closed(self) -> bool:
        """Closed without being merged, or after it."""
        ...


class ForgeFacts(Protocol):
    """Reads changes."""

    async def pull(self, subject: Subject) -> Pull | None:
        """Ask the forge anew; None = it could not be asked, or its answers do not fit together: never a "no"."""
        ...


class Tracker(Protocol):
    """Reads what people ask for in the tracker."""

    async def asked(self, task: str) -> str | None:
        """The stage that a person wants the task to leave now ("" = none); None = the tracker could not be asked."""
        ...


@dataclass(frozen=True, slots=True)
class Status:
    """A task as the outside is to show it, read from the journal."""

    subject: Subject
    stage: str
    hold: str  # "", parked, paused, canceled, done
    reason: str
    epoch: int
    version: int  # of the task's stream: what is published later never has a smaller one


class Outside(Protocol):
    """Shows a task's status elsewhere."""

    async def publish(self, status: Status) -> bool:
        """
        Make the outside show this status; doing it again changes nothing (R75).

        Returns:
            False: it could not be done now; it is tried again.
        """
        ...
