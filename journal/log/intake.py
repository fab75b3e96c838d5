"""
The way to the writer's thread and back: what event loops hand in is drained as batches, and answered loop by loop.

A caller that is cancelled tears nothing: its unit is already one entry of the queue, is written whole or not at all,
and the caller learns of its cancellation only when that is decided (R80).
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from journal.errors import JournalError, StoreUnavailableError
from journal.log.unit import Answer, Changed, Side, Unit

MAX_BATCH = 1000
"""Units in one transaction."""

_CLOSED = "the journal is closed"

Outcome = Answer | Changed | JournalError
"""What becomes of one member of a batch."""


class _Pending(asyncio.Future[Answer | Changed]):
    """
    An answer that cannot be called off: it is one entry of the queue by now.

    A task that is cancelled while it awaits this stays until the answer is there and learns of its cancellation then.
    `shield` and a second wait would say the same in three futures more for every append.
    """

    def cancel(self, msg: object = None) -> bool:
        del msg
        return False


@dataclass(slots=True)
class Entry:
    """A unit or a side statement, and who waits for its answer in which loop."""

    unit: Unit | Side
    answer: _Pending
    loop: asyncio.AbstractEventLoop


@dataclass(frozen=True, slots=True)
class Tally:
    """One more of something that is no event."""

    name: str
    actor: str
    task: str
    at: int


class Wake(Enum):
    """No entry: a reason to look around."""

    LOOK = "look"


class Intake:
    """What waits for the thread. Belongs to one process; loops of several threads may hand in."""

    def __init__(self, path: Path) -> None:
        self._path, self._pid = path, os.getpid()
        self._queue: queue.SimpleQueue[Entry | Tally | Wake | None] = queue.SimpleQueue()
        self._collected: dict[asyncio.AbstractEventLoop, list[Entry]] = {}
        self._gate, self._closed = threading.Lock(), False

    # -- called from event loops --------------------------------------------------------------------------------------

    async def ask(self, unit: Unit | Side) -> Answer | Changed:
        """
        Hand a unit in and wait until it is decided.

        Raises:
            JournalError: It is not written, or nobody knows, and why.
        """
        loop = asyncio.get_running_loop()
        answer = _Pending(loop=loop)
        if why := self._collect(Entry(unit, answer, loop)):
            raise StoreUnavailableError(path=str(self._path), why=why)
        try:
            return await answer
        except asyncio.CancelledError:
            answer.exception()  # nobody is left to be told
            raise

    def put(self, item: Tally | Wake) -> None:
        """Hand in something that nobody waits for; after the end it is lost."""
        if self._forked():
            return
        with self._gate:
            if not self._closed:
                self._queue.put(item)

    def close(self) -> None:
        """What waits is still drained; whoever comes later is refused, nobody hangs."""
        with self._gate:
            if not self._closed:
                self._closed = True
                for collected in self._collected.values():
                    self._pass_on(collected)
                self._queue.put(None)

    def _collect(self, entry: Entry) -> str:
        """
        Keep an entry until its loop has run whatever else was ready; says why it cannot be written at all.

        Who was answered by one commit asks for the next one in the same turn of the loop: handed over together they are
        one transaction and one flush, handed over one by one the thread would run away with the first of them.
        """
        if why := self._forked():
            return why
        with self._gate:  # after the closing mark nothing is put, so nothing can be left without an answer
            if self._closed:
                return _CLOSED
            collected = self._collected.setdefault(entry.loop, [])
            collected.append(entry)
            if len(collected) == 1:
                entry.loop.call_soon(self._hand_over, entry.loop)
        return ""

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._gate:
            self._pass_on(self._collected.pop(loop, []))

    def _pass_on(self, collected: list[Entry]) -> None:
        for entry in collected:
            self._queue.put(entry)
        collected.clear()

    def _forked(self) -> str:
        """Asked before the gate is touched: a fork may have carried it over locked."""
        if os.getpid() == self._pid:
            return ""
        return "it was opened by another process and carried over a fork; open it after the fork (R82)"

    # -- called from the writer's thread ------------------------------------------------------------------------------

    def drain(self) -> tuple[list[Entry | Tally | Wake], bool]:
        """Wait for one, then take whatever waits behind it; True = the mark of closing was among it."""
        waiting: list[Entry | Tally | Wake] = []
        item = self._queue.get()
        with suppress(queue.Empty):
            while item is not None:
                waiting.append(item)
                if len(waiting) == MAX_BATCH:
                    return waiting, False
                item = self._queue.get_nowait()
            return waiting, True
        return waiting, False


def deliver(batch: Sequence[Entry], outcomes: Sequence[Outcome]) -> None:
    """Hand the outcomes over to each caller's loop, in one call per loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Answer | Changed], Outcome]]] = {}
    for entry, outcome in zip(batch, outcomes, strict=True):
        by_loop.setdefault(entry.loop, []).append((entry.answer, outcome))
    for loop, pairs in by_loop.items():
        with suppress(RuntimeError):  # the loop was closed; nobody waits any more
            loop.call_soon_threadsafe(_settle, pairs)


def _settle(pairs: list[tuple[asyncio.Future[Answer | Changed], Outcome]]) -> None:
    for future, outcome in pairs:
        if future.done():
            continue  # the caller was cancelled; what is written is written
        if isinstance(outcome, JournalError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
