"""
The live feed: server-sent events, each with its position as id, so that a listener goes on where it was cut off.

Listeners pull from the log at their own pace; nothing is queued for a slow one. One watcher looks for a new head while
anybody listens, and a standby can do that too: it only reads.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import suppress

import structlog

from journal.errors import JournalError
from journal.ports import Clock
from projections.base import Reader, ask
from projections.events import events_after, head

LISTENERS = 64
"""More are refused: each holds a connection."""

LOOK_S = 0.2
"""Seconds between looks at the head while somebody listens."""

BEAT_S = 15.0
"""Seconds after which a silent feed says that it lives, so that proxies keep the connection."""

BATCH = 100
"""Events read at once."""

UNREADABLE = (sqlite3.Error, JournalError, ValueError)
"""The log cannot be read at this moment; the last one is what a closed connection raises."""

logger = structlog.get_logger(__name__)


class Feed:
    """The listeners of one application."""

    def __init__(self, reader: Reader, clock: Clock) -> None:
        self._reader, self._clock = reader, clock
        self._head = 0
        self._moved = asyncio.Event()  # replaced at every move of the head
        self._watcher: asyncio.Task[None] | None = None
        self._listeners = 0
        self._closed = False

    @property
    def full(self) -> bool:
        """No more listeners are taken."""
        return self._closed or self._listeners >= LISTENERS

    def nudge(self) -> None:
        """Something was written: look at once. Call it from the event loop."""
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def close(self) -> None:
        """End every listener's stream, so that a server can shut down."""
        self._closed = True
        self.nudge()
        if self._watcher is not None:
            self._watcher.cancel()

    async def listen(self, after: int | None, task: str = "") -> AsyncIterator[bytes]:
        """
        Events as they come, in the format of server-sent events.

        Args:
            after: Begin behind this position; None = only what is new.
            task: Only this task's; empty = all.
        """
        self._listeners += 1
        try:
            if self._watcher is None or self._watcher.done():
                self._watcher = asyncio.create_task(self._watch())
            last = await ask(self._reader, head())
            position = last if after is None else after
            yield b"retry: 1000\n: position %d\n\n" % position
            if position > last:
                # The listener saw events that this log does not hold: an older copy was restored.
                yield b'event: reset\ndata: {"position":%d}\n\n' % last
                position = last
            async for part in self._from(position, task):
                yield part
        except UNREADABLE as error:
            logger.info("feed_ended", error=str(error))  # the listener comes back by itself, behind what it has seen
        finally:
            self._listeners -= 1
            if not self._listeners and self._watcher is not None:
                self._watcher.cancel()

    async def _from(self, position: int, task: str) -> AsyncIterator[bytes]:
        while not self._closed:
            moved = self._moved
            seen = self._head
            told = await ask(self._reader, events_after(position, BATCH, task))
            for event in told:
                position = event.position
                yield b"id: %d\nevent: %s\ndata: %s\n\n" % (position, event.kind.encode(), event.json)
            if len(told) == BATCH:
                continue
            position = max(position, seen)  # other tasks' events need not be read again
            try:
                async with asyncio.timeout(BEAT_S):
                    await moved.wait()
            except TimeoutError:
                yield b": alive\n\n"

    async def _watch(self) -> None:
        while True:
            with suppress(*UNREADABLE):  # a standby that takes over closes its log and opens another
                now = await ask(self._reader, head())
                if now != self._head:
                    self._head = now
                    self.nudge()
            await self._clock.sleep(LOOK_S)
