"""
The log on SQLite: the writer's thread for appending, an aiosqlite connection for reading (decision 0005).

With an upstream the file is this host's copy of a log on a server, and appends are durable there first (decision 0017).
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import aiosqlite

from journal.errors import JournalError, NotWriterError, StoreUnavailableError
from journal.events import Event
from journal.log.companion import Companion
from journal.log.connection import open_reader, unavailable
from journal.log.follower import Follower
from journal.log.rows import Redact, as_far_as_known
from journal.log.schema import COLUMNS
from journal.log.unit import Answer, Changed, Side, Unit, Written
from journal.log.upstream import Upstream
from journal.log.writer import Writer
from journal.ports import Clock
from journal.projection import Projection
from journal.state import TaskState
from journal.stream import Stream, fold_stream

CACHED_STREAMS = 2048
"""Folded streams kept; coherent because this process is the only writer, and only a beginning where others write."""

PAGE = 1000
"""Events read at once."""

STREAMS_AT_ONCE = 100
"""Streams read by one question; most have a few dozen events, so that they fit into a page."""

# Only names of columns are put into the texts, never a value.
_JOURNAL_ID = "SELECT json_extract(body, '$.journal') FROM journal_events WHERE position = 1"
_FLOOR = (
    "SELECT coalesce(max(json_extract(body, '$.floor')), 0) FROM journal_events "
    "WHERE task = '' AND kind = 'incarnation_started'"
)
_OF_TASK = f"SELECT {COLUMNS} FROM journal_events WHERE task = ? AND version > ? ORDER BY version LIMIT ?"  # noqa: S608
_OF_TASKS = (
    f"SELECT {COLUMNS} FROM journal_events WHERE task IN (SELECT value FROM json_each(?)) "  # noqa: S608
    "AND version > 0 ORDER BY task, version LIMIT ?"
)
_OF_LOG = f"SELECT {COLUMNS} FROM journal_events WHERE position > ? ORDER BY position LIMIT ?"  # noqa: S608


class SqliteLog:
    """`EventLog` over one SQLite file. Without a writer it only reads: a standby, or somebody who looks."""

    def __init__(
        self, path: Path, reader: aiosqlite.Connection, writer: Writer | None, journal_id: str, floor: int = 0
    ) -> None:
        self.path, self._reader, self._writer, self._journal_id = path, reader, writer, journal_id
        self._streams: OrderedDict[str, Stream] = OrderedDict()
        self._blank = TaskState(floor=floor)
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        write: bool,
        clock: Clock,
        new_id: Callable[[], str],
        projections: Iterable[Projection] = (),
        redact: Redact | None = None,
        companion: Companion | None = None,
        upstream: Upstream | None = None,
    ) -> SqliteLog:
        """
        Open the file.

        Args:
            path: The database file; made if it is missing and `write` is set.
            write: The caller holds the writer lock and drives.
            clock: For the times of events.
            new_id: Makes the journal's id when it is created.
            projections: Views that are kept in the writer's transaction.
            redact: Takes known secrets out of stored bodies.
            companion: What shares the file and follows the stages; then the file is its, and we are guests.
            upstream: The log on a server that the file is this host's copy of; closed with this.

        Raises:
            StoreError: With what was found and how to mend it.
        """
        views = tuple(projections)
        writer: Writer | None = None
        if write and upstream is not None:
            # In a thread: it asks the server, and takes over what the copy lacks.
            try:
                writer = await asyncio.to_thread(
                    Follower, path, upstream, clock=clock, new_id=new_id, projections=views, redact=redact,
                    companion=companion,
                )  # fmt: skip
            except BaseException:
                await asyncio.to_thread(upstream.close)
                raise
        elif write:
            writer = Writer(path, clock=clock, new_id=new_id, projections=views, redact=redact, companion=companion)
        reader = aiosqlite.Connection(lambda: open_reader(path), iter_chunk_size=256)
        try:
            await reader
            async with reader.execute(_JOURNAL_ID) as rows:
                first = await rows.fetchone()
            async with reader.execute(_FLOOR) as rows:
                floor = await rows.fetchone()
        except BaseException as error:
            # Both threads must end, else the process never exits (R81).
            await reader.close()
            if writer:
                await writer.close()
            if isinstance(error, sqlite3.Error):
                raise unavailable(path, error) from error
            raise
        return cls(path, reader, writer, first[0] if first else "", floor[0] if floor else 0)

    @property
    def journal_id(self) -> str:
        return self._journal_id

    @property
    def writes(self) -> bool:
        return self._writer is not None

    @property
    def broken(self) -> JournalError | None:
        return self._writer.broken if self._writer else None

    @property
    def writer(self) -> Writer | None:
        return self._writer

    async def head(self) -> tuple[int, str]:
        rows = await self.query("SELECT position, hash FROM journal_events ORDER BY position DESC LIMIT 1")
        return (rows[0][0], rows[0][1].hex()) if rows else (0, "")

    async def read(self, task: str) -> Stream:
        kept = self._streams.get(task) if self._writer else None
        if kept and not (self._writer and self._writer.follows):
            self._streams.move_to_end(task)
            return kept
        stream = kept or Stream(task, state=self._blank)
        more = True
        while more:
            events = await self.events(task=task, after=stream.version, limit=PAGE)
            stream = fold_stream(task, events, stream)
            more = len(events) == PAGE  # one that is not full was the last: to ask once more would be a thread's hop
        if stream.version:
            self._keep(stream)
        return stream

    async def read_all(self, tasks: Sequence[str]) -> Sequence[Stream]:
        """A thread's hop for each stream costs more than its events do, so a hundred are one question."""
        trusted = self._writer and not self._writer.follows
        asked = [task for task in tasks if not (trusted and task in self._streams)]
        streams: dict[str, Stream] = {}
        for at in range(0, len(asked), STREAMS_AT_ONCE):
            streams |= await self._read_whole(asked[at : at + STREAMS_AT_ONCE])
        return [streams.get(task) or await self.read(task) for task in tasks]

    async def _read_whole(self, tasks: Sequence[str]) -> dict[str, Stream]:
        """Those that a page holds to their end."""
        events = self._met(await self.query(_OF_TASKS, (json.dumps(tasks), PAGE)))
        streams = {
            task: fold_stream(task, of_task, Stream(task, state=self._blank))
            for task, of_task in groupby(events, key=attrgetter("task"))
        }
        if len(events) == PAGE:
            streams.popitem()  # the last may go on
        for stream in streams.values():
            self._keep(stream)
        return streams

    async def append(self, unit: Unit) -> Answer:
        if self._writer is None:
            raise NotWriterError(path=str(self.path), holder="this process only reads")
        task = unit.stream.task
        if (
            task and unit.stream.state.floor != self._blank.floor
        ):  # decided from no reading of ours: a task being opened
            state = unit.stream.state._replace(floor=self._blank.floor)
            unit = replace(unit, stream=unit.stream._replace(state=state))
        try:
            answer = await self._writer.append(unit)
        except BaseException:  # cancelled, refused or unknown: what the log holds by now must be read anew
            self._streams.pop(task, None)
            raise
        if isinstance(answer, Written) and task:
            self._keep(answer.stream)
        else:
            self._streams.pop(task, None)
        return answer

    def _keep(self, stream: Stream) -> None:
        kept = self._streams.get(stream.task)
        if kept and kept.version > stream.version:
            return
        self._streams[stream.task] = stream
        self._streams.move_to_end(stream.task)
        if len(self._streams) > CACHED_STREAMS:
            self._streams.popitem(last=False)

    async def events(self, *, task: str | None = None, after: int = 0, limit: int = PAGE) -> Sequence[Event]:
        if task is None:
            rows = await self.query(_OF_LOG, (after, limit))
        else:
            rows = await self.query(_OF_TASK, (task, after, limit))
        return self._met(rows)

    def _met(self, rows: Sequence[Any]) -> Sequence[Event]:
        found = [as_far_as_known(row) for row in rows]
        for event in found:
            # Committed, and its writer not told yet: whoever has seen an event never reads a stream without it.
            if (kept := self._streams.get(event.task)) and kept.version < event.version:
                del self._streams[event.task]
        return found

    async def query(self, sql: str, parameters: Sequence[Any] = ()) -> Sequence[Any]:
        try:
            return list(await self._reader.execute_fetchall(sql, parameters))
        except sqlite3.Error as error:
            raise unavailable(self.path, error) from error
        except ValueError as error:  # what aiosqlite says when it is closed
            raise StoreUnavailableError(path=str(self.path), why=f"cannot be read: {error}") from error

    async def side(self, side: Side) -> Changed:
        if self._writer is None:
            raise StoreUnavailableError(path=str(self.path), why="is open for reading only")
        return await self._writer.side(side)

    def count(self, name: str, actor: str, task: str = "") -> None:
        if self._writer:
            self._writer.count(name, actor, task)

    async def close(self) -> None:
        # Once, however many ask: a connection of aiosqlite that is closed twice at a time never answers the second.
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        try:
            await self._reader.close()
        finally:
            if self._writer:
                await self._writer.close()
