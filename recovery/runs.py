"""Runs that an actor asks for on its own account: a few at once, one per task, ended with the actor."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from journal.results import Result

logger = structlog.get_logger(__name__)

Submit = Callable[[str, str, str], Awaitable[Result]]
"""(task, actor, expected stage or ""): one run of `advance_stage`; never raises."""


class Runs:
    """What one actor has asked for and not yet seen the end of."""

    def __init__(self, actor: str, submit: Submit, *, at_once: int) -> None:
        self._actor, self._submit, self._at_once = actor, submit, at_once
        self._running: dict[str, asyncio.Task[None]] = {}

    def start(self, task: str, why: str, *, expect: str = "") -> bool:
        """Ask for a run; False if the task has one of ours already, or if enough run: the next look asks again."""
        if task in self._running or len(self._running) >= self._at_once:
            return False
        run = asyncio.create_task(self._run(task, why, expect), name=f"{self._actor} {task}")
        self._running[task] = run
        run.add_done_callback(lambda _: self._running.pop(task, None))
        return True

    async def _run(self, task: str, why: str, expect: str) -> None:
        result = await self._submit(task, self._actor, expect)
        logger.info("run_asked_for", task=task, actor=self._actor, why=why, result=type(result).__name__)

    async def idle(self) -> None:
        """Wait until every run so far has ended."""
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def end(self) -> None:
        """Cancel what runs; it leaves what a crash would leave."""
        for run in list(self._running.values()):
            run.cancel()
        await self.idle()
