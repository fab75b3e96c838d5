"""What a host did before, and does again with the switch off; and what it is told when a stage was written that way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Earlier(Protocol):
    """The host's own ways, called as they were: no statement of ours stands around them (NFR-2, TR-8)."""

    def set_stage(self, task: str, stage: str) -> None:
        """Write a stage by the host's plain UPDATE."""
        ...

    def is_alive(self, task: str) -> bool:
        """Ask the host's registry in memory whether somebody works on the task."""
        ...

    def moved(self, task: str, stage: str) -> None:
        """
        Take in that a run which nobody waited for (recovery, a look that was due) moved a task: enqueue its next job.

        Not called for what `HostBridge.advance` answers to its caller.
        """
        ...


@dataclass(frozen=True, slots=True)
class AsBefore:
    """The task takes no part; its stage was written by the host's plain UPDATE."""

    task: str
    stage: str
