"""What the HTTP side needs of the service that runs behind it; `integrations.wiring` provides it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from journal.journal import Journal
from journal.log.port import EventLog
from journal.ownership import Locks
from journal.pipeline import Pipeline
from journal.ports import Clock
from journal.results import Result


class Service(Protocol):
    """The running service as its API sees it."""

    @property
    def journal(self) -> Journal | None:
        """What drives; None while another process holds the writer lock."""
        ...

    @property
    def reader(self) -> EventLog:
        """Always there, a standby's too."""
        ...

    @property
    def standby(self) -> bool: ...

    @property
    def pipeline(self) -> Pipeline: ...

    @property
    def locks(self) -> Locks: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def version(self) -> str:
        """The commit that runs, or the version of the package; for `/version` and the deploy's own check."""
        ...

    @property
    def instance(self) -> str:
        """Random id of this process."""
        ...

    @property
    def started_us(self) -> int:
        """When the process began, microseconds since 1970."""
        ...

    def ready(self) -> tuple[bool, str]:
        """Whether every open task is decided and the log can be written; else why not, in one sentence."""
        ...

    def jobs(self) -> Mapping[str, int]:
        """What the dispatcher is busy with: runs by state, such as `running` and `queued`."""
        ...

    def submit(self, task: str, actor: str, expect: str) -> asyncio.Task[Result]:
        """Hand a task to the dispatcher; the answer outlives whoever asked."""
        ...
