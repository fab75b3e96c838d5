"""A budget ends what hangs and nothing else, whatever timer an earlier budget left behind."""

from __future__ import annotations

import asyncio

import pytest

from journal.deadline import Deadline


async def hang() -> None:
    await asyncio.Event().wait()


async def lasted_s(deadline: Deadline, budget_s: float) -> float:
    """How long something that hangs lived, by the loop's clock."""
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    with pytest.raises(TimeoutError), deadline.within(budget_s):
        await hang()
    return loop.time() - begun_s


def marks() -> int:
    """Cancellations of this task that nobody has answered."""
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


async def test_what_hangs_is_cut_off_at_its_own_budget_not_at_that_of_what_ended_before_it() -> None:
    deadline = Deadline()
    with deadline.within(0.01):
        pass
    assert await lasted_s(deadline, 0.1) >= 0.1
    with deadline.within(60):
        pass
    assert await lasted_s(deadline, 0.01) < 30
    assert marks() == 0
    deadline.close()


async def test_a_timer_that_rings_in_a_pause_cuts_nothing_off_and_the_next_thing_arms_it_again() -> None:
    deadline = Deadline()
    with deadline.within(0.01):
        pass
    assert await lasted_s(Deadline(), 0.02) >= 0.02  # the first one's rings meanwhile
    assert await lasted_s(deadline, 0.01) >= 0.01


async def test_a_cancellation_by_somebody_else_is_no_timeout() -> None:
    deadline = Deadline()

    async def run() -> None:
        with deadline.within(60):
            await hang()

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    deadline.close()


async def test_who_is_cut_off_and_cancelled_at_once_is_cancelled() -> None:
    deadline = Deadline()

    async def run() -> None:
        with deadline.within(0.01):
            try:
                await hang()
            except asyncio.CancelledError:
                task.cancel()
                raise

    task = asyncio.create_task(run())
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_who_swallows_the_cut_keeps_its_answer_and_no_mark() -> None:
    deadline, answer = Deadline(), ""
    with deadline.within(0.01):
        try:
            await hang()
        except asyncio.CancelledError:
            answer = "late"
    assert (answer, marks()) == ("late", 0)


async def test_a_failure_within_the_budget_is_passed_on_and_ends_the_watch() -> None:
    deadline = Deadline()
    with pytest.raises(OSError, match="no route"), deadline.within(0.01):
        raise OSError("no route")
    await asyncio.sleep(0.03)  # past the budget: nobody is cancelled for it
    assert marks() == 0
    deadline.close()


async def test_what_another_task_awaits_beside_is_cut_off_by_itself_and_cuts_off_nobody() -> None:
    """A crash point of the demo looks while it applies; each has a budget of its own."""
    deadline = Deadline()

    async def beside() -> float:
        return await lasted_s(deadline, 0.01)

    with deadline.within(60):
        other = asyncio.create_task(beside())
        await asyncio.wait([other])
        assert other.result() < 30
        assert await lasted_s(deadline, 0.01) < 30
        await asyncio.sleep(0)
    assert marks() == 0
    deadline.close()
