"""What all runs of a process share: the log, the locks, the adapters, and which of them hold a task at this moment."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from journal.hosts.port import Alone, Hosts
from journal.log.port import EventLog
from journal.ownership import Locks
from journal.ports import Clock, Gate, StepAdapter


@dataclass(slots=True)
class Running:
    """A run that holds a task in this process, so that a reaper, an operator or the closing journal can end it."""

    work: asyncio.Task[object]  # it may go on with other things after the run
    over: asyncio.Event = field(default_factory=asyncio.Event)
    ended: str = ""  # why it was told to go

    def end(self, why: str) -> None:
        self.ended = why
        self.work.cancel()


@dataclass(frozen=True, slots=True)
class Tools:
    """What all runs of a process share."""

    log: EventLog
    locks: Locks
    steps: Mapping[str, StepAdapter]
    gates: Mapping[str, Gate]
    clock: Clock
    running: dict[str, Running]  # by task
    max_running_s: int
    hosts: Hosts = field(default_factory=Alone)
    outlived: set[str] = field(default_factory=set)  # tasks whose run left a child behind
