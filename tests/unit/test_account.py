"""What was in doubt, told in sentences: nothing left out, nothing made up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.events import Owner
from projections.history import Decision, EpochStory, StepStory, Story, tell
from recovery.account import account
from tests.property.histories import TASKS, History, histories

KEY = "T-1/1/merge_pr"


def term(epoch: int, actor: str, pid: int, *, ending: str = "", reason: str = "") -> EpochStory:
    return EpochStory(
        epoch, 1, Owner("r", host="box", pid=pid), actor, "review", "deploy", 1, ending=ending, reason=reason
    )


def looked(epoch: int, fact: str, verdict: str, *, begun_in: int = 6, **reply: str) -> Decision:
    seen = (("landed", "cf8c"), ("source", "git"))
    said = tuple(reply.items())
    return Decision(
        53, epoch, "merge_pr", 1, "startup", 5, "open", fact, "exclusive", verdict, seen, said, KEY, begun_in
    )


DIED = (term(6, "worker", 100, ending="reclaimed", reason="gone"), term(7, "startup", 200))
ONCE = (StepStory(7, 1, "merge_pr", KEY, 1, outcome="applied", via="probe"),)


@pytest.mark.proves("FR-6", "DC-4")
def test_a_crash_in_the_middle_is_told_with_owner_doubt_fact_and_why_nothing_ran_twice() -> None:
    (told,) = account(Story(epochs=DIED, steps=ONCE, decisions=(looked(7, "ours", "converge"),)))
    assert told == (
        "merge_pr: worker@box:100 began attempt 1 in epoch 6 and its term ended without a word (gone), so whether it "
        "happened was not known. startup@box:200 took over in epoch 7 and asked git: the effect is there and carries "
        "our key T-1/1/merge_pr. It was recorded as done; nothing was run again (position 53). merge_pr was begun once "
        "in all."
    )


def test_looks_at_one_attempt_are_one_paragraph_that_ends_with_the_last() -> None:
    looks = (looked(7, "unknown", "wait"), looked(7, "unknown", "wait"), looked(7, "absent", "drive"))
    (told,) = account(Story(epochs=DIED, decisions=looks))
    assert "asked git (3 looks): the effect is not there" in told
    assert "run once more, under the same key: of two, the far side lets in one (position 53)." in told


def test_an_answer_that_does_not_count_is_quoted() -> None:
    (told,) = account(Story(epochs=DIED, decisions=(looked(6, "conflict", "park", error="reset by peer"),)))
    assert "got no answer that counts (reset by peer)" in told
    assert "It asked git: the sources contradicted each other. So nothing was run, and it was left to a person" in told


@given(histories(40), st.sampled_from(TASKS))
def test_every_attempt_in_doubt_and_every_word_of_a_person_is_told_once(history: History, task: str) -> None:
    story = tell([e for e in history.events if e.task == task])
    told = account(story)
    doubts = {(d.begun_in, d.step, d.attempt) for d in story.decisions if d.row == "open"}
    settled = [s for s in story.steps if s.via == "operator"]
    assert len(told) == len(doubts) + len(settled)
    for epoch, step, attempt in doubts:
        assert epoch, "an attempt that nobody began"
        assert any(t.startswith(f"{step}: ") and f"began attempt {attempt} in epoch {epoch} " in t for t in told)
