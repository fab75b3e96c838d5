from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.events import Acquired, Intended, Observed
from projections.history import Story, event_data, tell
from tests.property.histories import TASKS, History, histories

ONE = st.sampled_from(TASKS)


@pytest.mark.proves("DC-4")
@given(histories(), ONE, st.integers(0, 60))
def test_a_story_told_in_two_parts_is_the_story(history: History, task: str, cut: int) -> None:
    events = [e for e in history.events if e.task == task]
    whole = tell(events)
    assert tell(events[cut:], tell(events[:cut])) == whole
    if events:
        assert whole.stages[-1].stage == history.streams[task].state.stage  # the oracle: the core's own fold
        assert whole.stages[-1].until_at == 0


@pytest.mark.proves("DC-4", "FR-6")
@given(histories(), ONE)
def test_every_term_step_and_decision_of_the_log_is_told_once(history: History, task: str) -> None:
    events = [e for e in history.events if e.task == task]
    story = tell(events)
    terms = [e for e in events if isinstance(e.draft.body, Acquired)]
    assert [term.epoch for term in story.epochs] == [e.draft.epoch for e in terms]
    assert sum(story.reclaims.values()) == sum(
        bool(e.draft.body.before) for e in terms if isinstance(e.draft.body, Acquired)
    )
    assert len(story.decisions) == sum(isinstance(e.draft.body, Observed) for e in events)
    keys = [(step.generation, step.step) for step in story.steps]
    assert len(keys) == len(set(keys))
    for step in story.steps:
        attempts = [e.draft.attempt for e in events if isinstance(e.draft.body, Intended) and e.key == step.key]
        assert step.attempts == max(attempts, default=0)


@given(histories(), ONE)
def test_a_step_in_doubt_is_told_as_such(history: History, task: str) -> None:
    story = tell([e for e in history.events if e.task == task])
    state = history.streams[task].state if task in history.streams else None
    now = [s for s in story.steps if state is not None and s.generation == state.generation]
    doubtful = {s.step for s in now if s.outcome == "in_doubt"}
    if state is not None and state.open and state.current is not None:
        assert state.current.name in doubtful
    for step in now:
        assert (step.outcome == "applied") == (state is not None and step.step in state.closed)


def test_nothing_is_told_of_nothing() -> None:
    assert tell([]) == Story()


@given(histories(30))
def test_an_event_as_data_is_its_row_in_the_words_of_the_table(history: History) -> None:
    for event in history.events:
        data = event_data(event)
        assert json.loads(json.dumps(data)) == data
        assert data["body"] == json.loads(event.body_text)
        assert bytes.fromhex(data["hash"]) == event.hash
