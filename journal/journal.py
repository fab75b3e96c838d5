"""
The facade: open a journal, open tasks, advance them, look at them (CONTRACT "Library").

One process drives: whoever holds the writer lock. Another one that opens the same file reads, or waits as hot standby.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Generic, Self, TypeVar

from journal import names, verbs
from journal.advance import Wrap, drive
from journal.boundary import never_raises
from journal.clock import SystemClock, SystemIds, this_process
from journal.errors import (
    InvalidInputError,
    NotWriterError,
    StoreUnavailableError,
    TaskExistsError,
    UnknownTaskError,
)
from journal.events import Draft, Event, Opened, Owner
from journal.hosts.ground import ground_of
from journal.hosts.port import Join, Membership
from journal.locks import LockFile, read_holder
from journal.log.companion import Companion
from journal.log.rows import Redact
from journal.log.sqlite import SqliteLog
from journal.log.unit import Astray, Unit, Written
from journal.log.upstream import Upstream
from journal.logs import leave_values_out
from journal.ownership import Locks
from journal.pipeline import Pipeline
from journal.ports import Clock, Gate, Ids, StepAdapter
from journal.projection import Projection
from journal.release import take_away
from journal.results import Deferred, Done, Freed, LostRace, Parked, Refused, Result
from journal.stream import Stream
from journal.tools import Running, Tools
from journal.words import Cause, Standing

LAST_WORD = "its runs and their children were seen to end"

LEFT_OUT = "takes no part; name it in ORCH_TRANSITION_JOURNAL_REPOS"


@dataclass(frozen=True, slots=True)
class NewTask:
    """What `open_task` is asked for."""

    task: str
    repo: str
    branch: str
    base: str = "main"
    head: str = ""
    pr: int = 0
    stage: str = ""  # "" = the pipeline's first


J = TypeVar("J", bound="Journal")


class Pending(Generic[J]):
    """A journal about to be opened: await it, or enter it with `async with`."""

    def __init__(self, opening: Coroutine[Any, Any, J]) -> None:
        self._opening = opening
        self._journal: J | None = None

    def __await__(self) -> Generator[Any, Any, J]:
        return self._opening.__await__()

    async def __aenter__(self) -> J:
        self._journal = await self._opening
        return self._journal

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._journal is not None:
            await self._journal.close()


class Journal:
    """A journal that this process has open. Make it with `Journal.open`."""

    def __init__(
        self,
        log: SqliteLog,
        locks: Locks,
        tools: Tools,
        pipeline: Pipeline,
        writer_lock: LockFile | None,
        wrap: Wrap | None,
        takes: Callable[[str], bool],
    ) -> None:
        self.log, self.locks, self.pipeline = log, locks, pipeline
        self.tools, self.me, self.clock = tools, locks.me, tools.clock
        self._writer_lock, self._wrap, self._takes = writer_lock, wrap, takes
        self._closing = False
        self._membership: Membership | None = None

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        pipeline: Pipeline,
        steps: Mapping[str, StepAdapter],
        gates: Mapping[str, Gate] = MappingProxyType({}),
        projections: Iterable[Projection] = (),
        write: bool = True,
        clock: Clock | None = None,
        ids: Ids | None = None,
        secrets: Sequence[str] = (),
        address: str = "",
        wrap: Wrap | None = None,
        writer_lock: LockFile | None = None,
        companion: Companion | None = None,
        upstream: Upstream | None = None,
        join: Join | None = None,
        takes: Callable[[str], bool] = lambda repo: True,
    ) -> Pending[Self]:
        """
        Open the journal in a database file, beside whatever else lies in it (NFR-3): `async with`, or `await`.

        Args:
            path: The database file; made if it is missing and `write` is set.
            pipeline: The checked definition.
            steps: An adapter for every step of the pipeline.
            gates: An adapter for every gate.
            projections: Views to keep in the writer's transaction.
            write: Drive; needs the writer lock. Without it the journal only reads.
            clock: Time; the machine's by default.
            ids: Randomness; the kernel's by default.
            secrets: Texts that must never be stored.
            address: Where this process listens, for command lines that find the lock taken.
            wrap: Stands before the ports of every run (crash points in demo and tests).
            writer_lock: The lock, if the caller has it already (a standby that took over).
            companion: A host's table in the same file that shows the stages; then the file is the host's.
            upstream: The log on a server that several hosts share; the file is then this host's copy of it.
            join: Takes our place among the hosts that share the log, if several do.
            takes: Whether a repository takes part (FR-7); tasks of others are neither opened nor driven.

        Raises:
            NotWriterError: `write`, and another process holds the writer lock.
            PipelineError: A step or gate of the pipeline has no adapter.
            StoreError: The file cannot be used; says why and what to do.
        """
        file, its_clock, its_ids = Path(path), clock or SystemClock(), ids or SystemIds()

        async def opening() -> Self:
            leave_values_out()
            pipeline.check_adapters(steps, gates)
            locks = Locks(file, this_process(its_ids.instance()))
            lock = writer_lock
            if write and lock is None and file.parent.is_dir():
                lock = locks.take_writer("journal", address)
                if lock is None:
                    raise NotWriterError(path=str(file), holder=str(read_holder(locks.writer_path())))
            try:
                log = await SqliteLog.open(
                    file, write=write, clock=its_clock, new_id=its_ids.instance, projections=tuple(projections),
                    redact=Redact(secrets) if secrets else None, companion=companion, upstream=upstream,
                )  # fmt: skip
            except BaseException:
                if lock is not None:
                    lock.release()
                raise
            tools = Tools(log, locks, dict(steps), dict(gates), its_clock, {}, pipeline.reaper_max_running_s)
            journal = cls(log, locks, tools, pipeline, lock, wrap, takes)
            if write and join is not None:
                try:
                    await journal._join(join)
                except BaseException:
                    await journal.close()
                    raise
            return journal

        return Pending(opening())

    async def _join(self, join: Join) -> None:
        """Take our place among the hosts: from here on each effect asks whether we may still act (M2)."""
        loop = asyncio.get_running_loop()

        def lost() -> None:
            with suppress(RuntimeError):  # the loop is closed: nothing runs
                loop.call_soon_threadsafe(self._end_runs, "this process may be taken for dead: it lost its lease")

        hosts = join(self.me, ground_of(self.locks.folder, self.me.boot), lost)
        await hosts.start()
        self.tools, self._membership = replace(self.tools, hosts=hosts), hosts

    def _end_runs(self, why: str) -> list[Running]:
        running = [run for run in self.tools.running.values() if run.work is not asyncio.current_task()]
        for run in running:
            run.end(why)
        return running

    async def standing(self, owner: Owner | None) -> Standing:
        """How sure it is that nothing of an owner is left; who holds no lock of its own may only forecast with it."""
        return Standing.GONE if owner is None else await self.tools.hosts.standing(owner)

    async def driven(self, stream: Stream) -> bool:
        """Somebody drives the task at this moment, here or on another host; for showing and deferring."""
        if self.locks.is_held(stream.task):
            return True
        return stream.owner is not None and await self.standing(stream.owner) is Standing.ALIVE

    async def mine(self, stream: Stream) -> bool:
        """Whether a task is this process's to look after by itself; always, where no other host shares the log."""
        doubted = stream.carrier if stream.state.open else None
        return await self.tools.hosts.wanted(stream.task, stream.owner or doubted)

    async def close(self) -> None:
        """Cancel what runs, write what waits, give the writer lock back."""
        self._closing = True  # a worker that is told of its run's end may call again at once
        running = self._end_runs("the journal was closed")
        try:
            for run in running:
                await run.over.wait()
        finally:
            try:
                await self._leave()
                await self.log.close()
            finally:
                if self._writer_lock is not None:
                    self._writer_lock.release()

    async def _leave(self) -> None:
        """Our last word to the hosts: nothing of us is left, if no child of a run lives on."""
        hosts, self._membership = self._membership, None
        if hosts is not None:
            left = any(self.locks.is_held(task) for task in self.tools.outlived)
            await hosts.close("" if left else LAST_WORD)

    # -- tasks --------------------------------------------------------------------------------------------------------

    async def open_task(self, wanted: NewTask, *, actor: str) -> Stream:
        """
        Open a task in its first stage.

        Raises:
            InvalidInputError: A name that is refused, or a stage the pipeline lacks.
            TaskExistsError: The id is taken, ignoring letter case.
            StoreError: Nothing was written.
        """
        stage = wanted.stage or self.pipeline.first
        if stage not in self.pipeline.stages:
            raise InvalidInputError(
                what=f"stage '{names.shown(stage)}'", why=f"unknown; known: {', '.join(self.pipeline.stages)}"
            )
        if not 0 <= wanted.pr <= names.MAX_INTEGER:
            raise InvalidInputError(what=f"pull request {wanted.pr}", why="not a number of a pull request")
        if not self._takes(wanted.repo):
            raise InvalidInputError(what=f"repository '{names.shown(wanted.repo)}'", why=LEFT_OUT)
        body = Opened(
            names.repository(wanted.repo),
            names.branch(wanted.branch),
            names.branch(wanted.base),
            names.commit_id(wanted.head) if wanted.head else "",
            wanted.pr,
            stage,
        )
        task = names.task_id(wanted.task)
        draft = Draft(body, generation=1, actor=names.word(actor, "actor"))
        answer = await self.log.append(Unit(Stream(task), (draft,)))
        if isinstance(answer, Astray):
            raise InvalidInputError(what=f"task {task}", why=answer.why)
        if not isinstance(answer, Written):
            raise TaskExistsError(task=task, existing=task)
        return answer.stream

    async def stream(self, task: str) -> Stream:
        """
        A task as it is now.

        Raises:
            UnknownTaskError: No event names it.
        """
        stream = await self.log.read(task)
        if not stream.version:
            raise UnknownTaskError(task=names.shown(task))
        return stream

    async def events(self, task: str, after: int = 0, limit: int = 1000) -> Sequence[Event]:
        """A task's events after a version."""
        return await self.log.events(task=task, after=after, limit=limit)

    @never_raises
    async def advance(self, task: str, *, expect: str = "", actor: str = "worker", cause: Cause = Cause.GONE) -> Result:
        """Move a task over its next edge, or say why not. Never raises (FR-7)."""
        self._must_write()
        names.task_id(task)
        names.word(actor, "actor")
        stream = await self.log.read(task)
        if stream.version and not self._takes(stream.subject.repo):
            return Refused(task, f"repository {stream.subject.repo} {LEFT_OUT}", stream.state.stage)
        return await drive(
            self.tools, self.pipeline, self.me, task, expect=expect, actor=actor, cause=cause, wrap=self._wrap
        )

    @never_raises
    async def release(self, task: str, *, reason: str, actor: str = "operator") -> Freed | Parked | LostRace | Refused:
        """
        Take a stuck ownership away by hand: end the holder, take the epoch, leave the task free (FR-6, R103).

        The old owner is fenced from then on; whatever it had begun is settled from facts by the next run.
        """
        self._must_write()
        names.task_id(task)
        names.word(actor, "actor")
        reason = names.prose(reason, "reason")
        if not (await self.log.read(task)).version:
            return Refused(task, "no such task")
        return await take_away(self.tools, self.pipeline, self.me, task, actor=actor, reason=reason)

    @never_raises
    async def pause(self, task: str, *, reason: str, actor: str = "operator") -> Done | Refused:
        """Stop the task from being driven until it is resumed."""
        self._must_write()
        return await verbs.pause(self.tools, task, actor, reason)

    @never_raises
    async def resume(self, task: str, *, reason: str, actor: str = "operator") -> Done | Refused:
        """Let a paused or parked task be driven again; `retry` is this verb too."""
        self._must_write()
        return await verbs.resume(self.tools, task, actor, reason)

    @never_raises
    async def cancel(self, task: str, *, reason: str, actor: str = "operator") -> Done | Refused:
        """End the task before its next irreversible call."""
        self._must_write()
        return await verbs.cancel(self.tools, task, actor, reason)

    @never_raises
    async def settle(
        self, task: str, *, applied: bool, evidence: str, reason: str, actor: str = "operator"
    ) -> Done | Refused:
        """Say how an attempt in doubt ended."""
        self._must_write()
        return await verbs.settle(self.tools, task, actor, reason, applied=applied, evidence=evidence)

    @never_raises
    async def reopen(
        self, task: str, *, stage: str, reason: str, head: str = "", expect: str = "", actor: str = "operator"
    ) -> Done | Refused:
        """Begin a new generation at a stage; a program names the stage it believes in, a person need not."""
        self._must_write()
        return await verbs.reopen(self.tools, self.pipeline, task, actor, reason, stage=stage, head=head, expect=expect)

    @never_raises
    async def change_head(self, task: str, *, head: str, actor: str) -> Done | Deferred | LostRace | Refused:
        """The change got a new head: a new generation, back to `on_new_head`."""
        self._must_write()
        return await verbs.change_head(self.tools, self.pipeline, self.me, task, actor, head)

    def _must_write(self) -> None:
        if self._closing:
            raise StoreUnavailableError(path=str(self.log.path), why="the journal is closed")
        if not self.log.writes:
            raise NotWriterError(path=str(self.log.path), holder=str(read_holder(self.locks.writer_path())))


async def advance_stage(journal: Journal, task: str, *, expect: str = "", actor: str = "worker") -> Result:
    """
    Move a task over its next edge, or say why not (DC-4, FR-2). Never raises.

    Args:
        journal: An open journal that drives.
        task: The task's id.
        expect: The stage the caller believes in; "" = whatever it is. Another stage answers `LostRace`.
        actor: Who asks: worker, reaper, reconciler, startup, operator, or a webhook's name.

    Returns:
        `Advanced | Deferred | Waiting | LostRace | Parked | RolledBack | Refused | Unavailable`.
    """
    return await journal.advance(task, expect=expect, actor=actor)
