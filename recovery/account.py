"""
What was in doubt, told in sentences: who began it, why it was not known, which fact settled it, why nothing ran twice.

The same words for the command line, the page, an exported audit and the API; pure, over a task's story.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from journal.doubt import Row
from projections.history import Decision, EpochStory, Story

FOUND = {
    "ours": "the effect is there and carries our key {key}",
    "others": "an effect is there, and it is somebody else's",
    "absent": "the effect is not there",
    "unknown": "there was no answer that counts",
    "conflict": "the sources contradicted each other",
}
ASKED = {
    "marker": "the deploy's marker",
    "coverage": "the coverage baseline",
    "running": "the running version",
    "command": "the step's own probe",
}
SO = {
    "converge": "It was recorded as done; nothing was run again",
    "drive": "So it was run once more, under the same key{safe}",
    "reject": "It was recorded that the attempt did nothing",
    "wait": "So nothing was run; it is looked at again",
    "park": "So nothing was run, and it was left to a person",
    "halt": "So nothing was run: this looks like an older copy of the journal, and it was left to a person",
}


SAFE = {
    "repeatable": ": twice is the same as once",
    "exclusive": ": of two, the far side lets in one",
    "fenced": ", with older attempts fenced off",
    "probed": ", after what had been sent could no longer be under way",
}
"""Why a late effect of the attempt before does no harm, by guard."""


def account(story: Story) -> tuple[str, ...]:
    """A paragraph for each attempt that was in doubt, oldest first; empty if none ever was."""
    doubts = [d for d in story.decisions if d.row == Row.OPEN]
    attempts = groupby(doubts, key=lambda d: (d.begun_in, d.step, d.attempt))
    told = [" ".join(_attempt(story, list(looks))) for _, looks in attempts]
    return (*told, *_by_a_person(story))


def _attempt(story: Story, looks: Sequence[Decision]) -> Iterator[str]:
    last, often = looks[-1], f" ({len(looks)} looks)" if len(looks) > 1 else ""
    terms = {term.epoch: term for term in story.epochs}
    begun, asked = terms.get(last.begun_in), terms.get(last.epoch)
    yield f"{last.step}: {_who(begun)} began attempt {last.attempt} in epoch {last.begun_in}"
    if last.begun_in == last.epoch:
        yield f"and got no answer that counts{_said(looks[0])}, so whether it happened was not known."
        yield "It asked"
    else:
        yield f"and its term {_end(begun)}, so whether it happened was not known."
        yield f"{_who(asked)} took over in epoch {last.epoch} and asked"
    yield f"{_source(last)}{often}: {FOUND.get(last.fact, last.fact).format(key=last.key)}."
    so = SO.get(last.verdict, last.verdict).format(safe=SAFE.get(last.guard, ""))
    yield f"{so} (position {last.position}).{_count(story, last)}"


def _count(story: Story, last: Decision) -> str:
    """How often it was begun in all, where that is the end of it."""
    step = next((s for s in story.steps if s.step == last.step and s.key == last.key), None)
    if last.verdict != "converge" or step is None or not step.attempts:
        return ""
    return f" {last.step} was begun {'once' if step.attempts == 1 else f'{step.attempts} times'} in all."


def _by_a_person(story: Story) -> Iterator[str]:
    for step in story.steps:
        if step.via == "operator":
            seen = dict(step.evidence)
            word = "applied" if step.outcome == "applied" else "not applied"
            yield (
                f"{step.step}: a person settled attempt {step.attempts} as {word}, having found: "
                f"{seen.get('evidence', '')}. The reason given: {seen.get('reason', '')}."
            )


def _who(term: EpochStory | None) -> str:
    if term is None:
        return "a run"
    return f"{term.actor}@{term.owner.host}:{term.owner.pid}" if term.owner.host else term.actor


def _end(term: EpochStory | None) -> str:
    if term is None or not term.ending or term.ending == "reclaimed":
        return f"ended without a word{f' ({term.reason})' if term and term.reason else ''}"
    return f"ended ({term.ending.replace('_', ' ')}{f': {term.reason}' if term.reason else ''})"


def _said(first: Decision) -> str:
    said = dict(first.reply)
    word = said.get("error") or said.get("reason")
    return f" ({word})" if word else ""


def _source(decision: Decision) -> str:
    source = str(dict(decision.seen).get("source", "the probe"))
    return ASKED.get(source, source)
