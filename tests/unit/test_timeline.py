"""The picture of a history: everything in its frame, in order, and doubt drawn as doubt."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from integrations.page.attempts import attempts_of
from integrations.page.timeline import NEWEST, draw
from journal.events import Acquired, Intended, Observed
from tests.property.histories import TASKS, History, histories


@given(histories(60), st.sampled_from(TASKS), st.booleans())
def test_whatever_happened_is_drawn_within_the_frame_and_in_order(history: History, task: str, owned: bool) -> None:
    events = [e for e in history.events if e.task == task]
    now_us = events[-1].at + 1_000_000 if events else 0
    drawn = draw(events, now_us=now_us, owned=owned)
    if not events:
        assert drawn is None
        return
    assert drawn is not None
    for span in (*drawn.stages, *drawn.terms, *drawn.bars):
        assert 0 < span.x <= drawn.width and span.x + span.width <= drawn.width + 1, span
        assert span.tip
    for bar in drawn.bars:
        assert drawn.lane_y(bar.row) + 20 <= drawn.height
    begun = [bar.x for bar in drawn.bars]
    assert begun == sorted(begun)
    assert [t.x for t in drawn.ticks] == sorted(t.x for t in drawn.ticks)
    assert len(drawn.terms) == sum(isinstance(e.draft.body, Acquired) for e in events)
    assert len(drawn.bars) == sum(isinstance(e.draft.body, Intended) for e in events)
    assert sum(m.look == "decision" for m in drawn.marks) == sum(isinstance(e.draft.body, Observed) for e in events)


@given(histories(60), st.sampled_from(TASKS))
def test_an_attempt_that_nobody_closed_is_hatched_unless_somebody_is_at_it(history: History, task: str) -> None:
    events = [e for e in history.events if e.task == task]
    attempts = attempts_of(events)
    for owned, look in ((False, "doubt"), (True, "running")):
        if drawn := draw(events, now_us=2**50, owned=owned):
            for attempt, bar in zip(attempts, drawn.bars, strict=True):
                if attempt.over is None:
                    assert (bar.look, attempt.outcome(owned=owned)) == (look, "running" if owned else "in doubt")
                elif attempt.decided:
                    assert bar.look in ("doubt settled", "doubt", "rejected")


@given(histories(60))
def test_a_long_history_is_cut_at_its_old_end_and_says_so(history: History) -> None:
    task = next((e.task for e in history.events if e.task), "")
    events = [e for e in history.events if e.task == task]
    long = [e._replace(version=n + 1) for n, e in enumerate(events * (NEWEST // max(1, len(events)) + 2))]
    if drawn := draw(long, now_us=2**50, owned=False):
        assert drawn.cut == len(long) - NEWEST
