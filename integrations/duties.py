"""Duties of the service: each lives by itself; one that fails rests and begins anew, and harms no other (TR-9)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from journal.ports import Clock

logger = structlog.get_logger(__name__)

REST_S = (0.5, 60.0)
"""First and longest rest of a duty that failed; doubles."""

STEADY_S = 300.0
"""A duty that held this long begins with the first rest again."""


Duty = Callable[[], Awaitable[None]]

LOOK_S = 1.0
"""Between two looks whether a single duty is ours."""


def single(serve: Duty, leads: Callable[[], bool], clock: Clock) -> Duty:
    """A duty that one of all hosts does: it begins when this process leads, and is cancelled when it leads no more."""

    async def served() -> None:
        while True:
            while not leads():
                await clock.sleep(LOOK_S)
            duty = asyncio.ensure_future(serve())
            try:
                while leads() and not duty.done():
                    await asyncio.wait({duty}, timeout=LOOK_S)
                if duty.done():
                    return duty.result()
            finally:
                duty.cancel()
                await asyncio.gather(duty, return_exceptions=True)

    return served


async def keep(name: str, serve: Callable[[], Awaitable[None]], clock: Clock) -> None:
    """Run a duty until it ends by itself or is cancelled, whatever it raises."""
    times = 0
    while True:
        began_s = clock.monotonic_s()
        try:
            # A task of its own: on Python 3.11 a task group that failed leaves its task counted as being cancelled, and
            # that count is what tells below whether it is we who are.
            await asyncio.ensure_future(serve())
        except Exception as error:
            if (me := asyncio.current_task()) is not None and me.cancelling():
                raise asyncio.CancelledError from error  # a task group that fails swallows the cancellation
            times = 0 if clock.monotonic_s() - began_s > STEADY_S else times
            rest_s = min(REST_S[1], REST_S[0] * 2**times)
            # A failure that lasts is told in full once; the same story every minute buries all others (R45).
            logger.warning("duty_failed", duty=name, error=repr(error), rest_s=rest_s, exc_info=times == 0)
            times = min(times + 1, 20)
            await clock.sleep(rest_s)
        else:
            return
