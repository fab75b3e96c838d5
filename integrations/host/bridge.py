"""
`HostBridge`: what an orchestrator calls where it used to write a stage. It never raises (FR-7, NFR-1).

With the switch off, or for a repository that takes no part, it calls the host's own earlier ways and nothing else: no
statement of ours runs, no file of ours is made. With it on, every stage goes through the journal; when the journal
fails, claiming the next job goes on (fails open) and a transition answers `Unavailable` (fails closed, TR-9).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from integrations.duties import keep
from integrations.host.config import HostConfig, Scope
from integrations.host.earlier import AsBefore, Earlier
from integrations.host.looks import Looks
from integrations.host.observe import leave_astray, leave_mark, row_of, settle_in
from integrations.host.shown import figures, queue_block
from integrations.host.table import HostTable
from journal.boundary import never_raises
from journal.clock import SystemClock
from journal.errors import InvalidInputError, JournalError, StoreUnavailableError
from journal.journal import Journal, NewTask, Pending
from journal.names import shown
from journal.ports import Clock
from journal.results import Advanced, Done, LostRace, Refused, Result, Unavailable
from journal.state import TaskState
from journal.stream import Stream

logger = structlog.get_logger(__name__)

Opening = Callable[[], Pending[Journal]]
"""Opens the journal in the host's file for driving, with the host's table as its companion."""

TRY_AGAIN_S = 5.0
"""Between two tries to open a journal that could not be opened."""


class HostBridge:
    """One for the life of the host's process: `start`, then anything, then `stop`."""

    def __init__(
        self, config: HostConfig, scope: Scope, earlier: Earlier, opening: Opening, clock: Clock | None = None
    ) -> None:
        """
        Prepare; nothing is opened yet.

        Args:
            config: The `[host]` section.
            scope: The switch and the repositories that take part.
            earlier: The host's own ways.
            opening: Opens the journal.
            clock: Time; the machine's by default.
        """
        self._config, self._scope, self._earlier, self._opening = config, scope, earlier, opening
        self._clock = clock or SystemClock()
        self._table = HostTable(config)
        self._journal: Journal | None = None
        self._why, self._tried_s = "it was not started", -TRY_AGAIN_S
        self._turn = asyncio.Lock()
        self._looking: asyncio.Task[None] | None = None

    @property
    def journal(self) -> Journal | None:
        """The open journal, for whoever wants more of it; None while there is none."""
        return self._journal

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the journal, observe what is open, take up what was left in the middle. Never raises."""
        if self._scope.empty:
            leave_mark(self._config.db)
            return
        await self._shown("start", _nothing)  # a failure is in the log, and in every transition that is asked for

    async def stop(self) -> None:
        """Close; what runs is left as a crash would leave it."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        if self._journal is not None:
            journal, self._journal = self._journal, None
            await journal.close()
        self._why = "it was stopped"

    # -- transitions --------------------------------------------------------------------------------------------------

    async def advance(self, task: str, *, repo: str, expect: str, to: str, actor: str) -> Result | AsBefore:
        """
        Move a task from the stage the caller believes in to another one.

        Call it outside any transaction of the host's: the log writes in its own, and would wait for the host's end.

        Args:
            task: The host's id.
            repo: Decides whether the task takes part.
            expect: The stage the caller believes in.
            to: The next stage of the pipeline, or an earlier one to go back to while nothing irreversible happened.
            actor: worker, reaper, reconciler, startup, operator, or a webhook's name.

        Returns:
            `Advanced` or `AsBefore`: it is there, go on. Anything else: leave it alone.
        """
        if not self._scope.takes(repo):
            self._earlier.set_stage(task, to)
            return AsBefore(task, to)
        return await self._advance(task, repo, expect, to, actor)

    @never_raises
    async def _advance(self, task: str, repo: str, expect: str, to: str, actor: str) -> Result:
        journal = await self._open()
        stream = await journal.log.read(task)
        if not stream.version:
            stream = await self._adopt(journal, task, repo, expect, actor)
        if stream.state.stage != expect:
            await self._check_row(journal, task)
            return LostRace(task, stream.state.stage, stream.state.epoch, f"the task is not in {expect} any more")
        edge = journal.pipeline.edge(expect)
        if edge is None or edge.target != to:
            return await _back(journal, stream, to, actor)
        result = await journal.advance(task, expect=expect, actor=actor)
        if isinstance(result, LostRace):
            await self._check_row(journal, task)
        return result

    async def _adopt(self, journal: Journal, task: str, repo: str, expect: str, actor: str) -> Stream:
        """Open a task of the host's when it first moves, in the stage its row is in; the log compares that again."""
        row = await row_of(journal, self._table, task)
        if row is None or row.repo != repo:
            raise InvalidInputError(what=f"task {shown(task)}", why=f"the host has no such task of {shown(repo)}")
        if row.stage != expect:
            return Stream(task, state=TaskState(row.stage))
        wanted = NewTask(task, row.repo, row.branch, row.base, row.head, row.pr, row.stage)
        return await journal.open_task(wanted, actor=actor)

    async def _check_row(self, journal: Journal, task: str) -> None:
        """Somebody may have written the stage past the journal: then a person must hear of it."""
        stream, row = await journal.log.read(task), await row_of(journal, self._table, task)
        ours = bool(stream.version) and not stream.state.ended and not journal.locks.is_held(task)
        if ours and (row is None or row.stage != stream.state.stage):
            await leave_astray(journal, task, row, catch_up=False)

    # -- liveness -----------------------------------------------------------------------------------------------------

    def is_alive(self, task: str) -> bool:
        """Somebody is busy with the task: the host's registry says so, or a transition holds its lock."""
        if self._earlier.is_alive(task):
            return True
        return self._journal is not None and self._journal.locks.is_held(task)

    def claimable(self, task: str) -> bool:
        """
        Whether a job of the task may be claimed: a look at the registry and at one lock, no statement, no network.

        Fails open: whatever cannot be told does not stop the queue (TR-9), since the transition itself fails closed.
        """
        return not self.is_alive(task)

    # -- what people see ----------------------------------------------------------------------------------------------

    async def queue_block(self) -> dict[str, Any]:
        """What to add to the host's queue: `transition_ownership`, or nothing with the switch off."""
        if self._scope.empty:
            return {}
        seen = await self._shown("queue", queue_block)
        # People who look are told of our trouble, but not by an exception.
        block = seen if isinstance(seen, dict) else {"enabled": True, "unavailable": seen.reason}
        return {"transition_ownership": block}

    async def figures(self) -> dict[str, Any]:
        """What to add to the host's metrics; nothing with the switch off."""
        if self._scope.empty:
            return {}
        seen = await self._shown("metrics", figures)
        return {"journal_up": 1, **seen} if isinstance(seen, dict) else {"journal_up": 0}

    @never_raises
    async def _shown(self, what: str, shows: Callable[[Journal], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        del what  # it stands in the log when this fails
        return await shows(await self._open())

    # -- opening ------------------------------------------------------------------------------------------------------

    async def _open(self) -> Journal:
        """
        The journal, opened by whoever needs it first.

        Raises:
            JournalError: It cannot be opened; tried again a little later.
        """
        async with self._turn:
            if self._journal is not None:
                return self._journal
            now_s = self._clock.monotonic_s()
            if now_s - self._tried_s < TRY_AGAIN_S:
                raise StoreUnavailableError(path=str(self._config.db), why=self._why)
            self._tried_s = now_s
            try:
                self._journal = await self._opened()
            except (JournalError, OSError) as error:
                self._why = str(error)
                logger.warning("journal_not_opened", db=str(self._config.db), error=str(error))
                raise
            return self._journal

    async def _opened(self) -> Journal:
        journal = await self._opening()
        try:
            await settle_in(journal, self._table, self._scope, self._config.db)
        except BaseException:
            await journal.close()
            raise
        looks = Looks(journal, self._scope, self._earlier.moved)
        # Kept: what the host does in `moved` may fail too, and must not end our looking.
        self._looking = asyncio.create_task(keep("looks", looks.serve, self._clock), name="looks")
        return journal


async def _nothing(journal: Journal) -> dict[str, Any]:
    del journal
    return {}


async def _back(journal: Journal, stream: Stream, to: str, actor: str) -> Result:
    """Any stage but the next one: a new generation there, if nothing irreversible happened in this one."""
    task, stage = stream.task, stream.state.stage
    reason = f"moved from {stage} to {to} by {actor}"
    match await journal.reopen(task, stage=to, expect=stage, reason=reason, actor=actor):
        case Done():
            return Advanced(task, stage, to, stream.state.epoch)
        case Refused() | Unavailable() as refused:
            return refused
