"""What a stream keeps beside its state, held against a search through the events instead of a fold."""

from __future__ import annotations

import pytest
from hypothesis import given

from journal.events import Acquired, Applied, Event, HeadChanged, Intended, Reopened, Settled
from journal.stream import fold_stream
from tests.property.histories import TASKS, History, histories


@pytest.mark.proves("F6", "A4")
@given(histories())
def test_a_stream_tells_what_a_search_through_its_events_finds(history: History) -> None:
    """Its owner, the intents that may be cited, the outcomes of this generation and what a stage move rests on."""
    for task in TASKS:
        own = [event for event in history.events if event.task == task]
        stream = fold_stream(task, own)
        assert stream == history.streams.get(task, stream)
        assert stream.version == len(own)
        assert (stream.owner.run if stream.owner else "") == stream.state.owner
        intents = _of(own, Intended)
        assert stream.intents == {f"{e.position}:{e.hash.hex()}" for e in intents}
        assert (stream.intent.position if stream.intent else 0) == _last(intents)
        assert stream.outcomes == {e.draft.step: e.draft.body.seen for e in own[_begun(own) :] if _is(e, Applied)}  # type: ignore[union-attr]
        assert stream.basis == _last(_of(own, Acquired, Applied, Settled))


def _is(event: Event, *kinds: type) -> bool:
    return isinstance(event.draft.body, kinds)


def _of(events: list[Event], *kinds: type) -> list[Event]:
    return [event for event in events if _is(event, *kinds)]


def _last(events: list[Event]) -> int:
    return events[-1].position if events else 0


def _begun(events: list[Event]) -> int:
    """Where the running generation began."""
    return max((n for n, event in enumerate(events) if _is(event, HeadChanged, Reopened)), default=0)
