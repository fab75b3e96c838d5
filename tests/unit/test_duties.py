"""A duty that fails rests and begins anew, alone (TR-9)."""

from __future__ import annotations

import asyncio

import pytest

from integrations.duties import REST_S, keep, single
from journal.clock import SystemClock
from tests.builders import StandingClock


@pytest.mark.proves("TR-9", "R45")
async def test_a_failing_duty_rests_longer_each_time_and_ends_when_it_ends_by_itself() -> None:
    clock, begun = StandingClock(), 0

    async def fails() -> None:
        nonlocal begun
        begun += 1
        if begun <= 12:
            raise RuntimeError("again")

    await keep("fails", fails, clock)
    assert begun == 13
    assert clock.slept[:4] == [REST_S[0] * 2**n for n in range(4)]
    assert clock.slept[-1] == REST_S[1]


@pytest.mark.proves("TR-9")
async def test_one_duty_that_keeps_failing_stops_no_other() -> None:
    clock, done = StandingClock(), asyncio.Event()

    async def fails() -> None:
        await asyncio.sleep(0)
        raise OSError("no such device")

    async def works() -> None:
        for _ in range(50):
            await asyncio.sleep(0)
        done.set()

    failing = asyncio.create_task(keep("fails", fails, clock))
    await keep("works", works, clock)
    assert done.is_set()
    assert not failing.done()
    failing.cancel()
    await asyncio.gather(failing, return_exceptions=True)


async def test_a_steady_duty_begins_with_the_first_rest_again() -> None:
    clock, begun = StandingClock(), 0

    async def holds_then_fails() -> None:
        nonlocal begun
        begun += 1
        if begun <= 3:
            clock.us += 301_000_000
            raise RuntimeError("once an hour")

    await keep("steady", holds_then_fails, clock)
    assert clock.slept == [REST_S[0]] * 3


@pytest.mark.proves("TR-9", "R79")
async def test_a_duty_that_is_cancelled_while_its_own_work_fails_ends() -> None:
    """A task group that gathers a child's failure says nothing of a cancellation that arrives meanwhile."""
    clock, failing, rounds = StandingClock(), asyncio.Event(), 0

    async def fails() -> None:
        failing.set()
        raise OSError("no such device")

    async def serve() -> None:
        nonlocal rounds
        rounds += 1
        if rounds > 1:
            return  # it went on: a duty that nobody can end
        async with asyncio.TaskGroup() as runs:
            runs.create_task(fails())

    duty = asyncio.create_task(keep("fails", serve, clock))
    await failing.wait()
    duty.cancel()
    with pytest.raises(asyncio.CancelledError):
        await duty
    assert rounds == 1


@pytest.mark.proves("TR-9")
async def test_a_duty_whose_task_group_failed_goes_on() -> None:
    """On Python 3.11 such a group leaves its task counted as being cancelled, which is not the end of the duty."""
    clock, rounds = StandingClock(), 0

    async def fails() -> None:
        await asyncio.sleep(0)
        raise OSError("no such device")

    async def serve() -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            async with asyncio.TaskGroup() as runs:
                runs.create_task(fails())

    await keep("fails", serve, clock)
    assert rounds == 2 and clock.slept == [REST_S[0]]


@pytest.mark.proves("M2")
async def test_a_single_duty_runs_while_we_lead_and_begins_anew_when_we_lead_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("integrations.duties.LOOK_S", 0.01)
    leads, begun, ended = False, asyncio.Event(), asyncio.Event()

    async def serve() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    duty = asyncio.create_task(keep("single", single(serve, lambda: leads, SystemClock()), SystemClock()))
    for _ in range(2):
        await asyncio.sleep(0)
        assert not begun.is_set()
        leads = True
        await begun.wait()
        leads = False
        await ended.wait()
        begun.clear()
        ended.clear()
    duty.cancel()
    await asyncio.gather(duty, return_exceptions=True)
