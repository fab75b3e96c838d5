"""A look at a step without owning its task: good for a forecast, never for a decision (V9)."""

from __future__ import annotations

import os

from journal.actions import Probed
from journal.plan import StepPlan
from journal.shell import TaskPorts
from journal.stream import Stream
from journal.tools import Tools


class _NoTerm:
    """Stands for a term where nobody owns the task: children inherit a descriptor that locks nothing."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def child_started(self, group: int) -> None:
        """Nobody asks."""

    def child_ended(self, group: int) -> None:
        """Nobody asks."""


async def look(tools: Tools, stream: Stream, step: StepPlan) -> Probed:
    """Probe a step without owning its task: good for a forecast, never for a decision (V9)."""
    fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    ports = TaskPorts(tools, stream.task, "forecast", "", _NoTerm(fd))
    ports.stream = stream
    try:
        return await ports.probe(step, ())
    finally:
        ports.drop_lock()
        os.close(fd)
