"""The hash chain covers every column: no value can be changed, moved or swapped without another hash (A1)."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from journal.chain import GENESIS, hash_body, header, link
from journal.events import Applied, Draft
from journal.log.rows import from_row, place, to_row

COLUMNS: dict[str, Any] = {
    "position": 7, "task": "T-1", "version": 3, "generation": 1, "epoch": 2, "kind": "applied", "schema": 1,
    "step": "merge_pr", "attempt": 1, "key": "T-1/1/merge_pr", "actor": "worker", "at": 5,
}  # fmt: skip


@pytest.mark.proves("A1", "I1")
def test_the_hash_is_what_the_documentation_says_computed_by_hand() -> None:
    """The oracle: written out from the prose, so that an auditor can do the same without our code."""
    body = '{"seen":{},"via":"probe"}'
    head = b"7\nT-1\n3\n1\n2\napplied\n1\nmerge_pr\n1\nT-1/1/merge_pr\nworker\n5"
    expected = sha256(GENESIS + sha256(body.encode()).digest() + head).digest()
    assert link(GENESIS, hash_body(body), header(**COLUMNS)) == expected


@pytest.mark.proves("A1")
@pytest.mark.parametrize("name", COLUMNS)
def test_every_column_is_covered(name: str) -> None:
    value = COLUMNS[name]
    other = COLUMNS | {name: value + 1 if isinstance(value, int) else value + "x"}
    assert header(**other) != header(**COLUMNS)


@pytest.mark.proves("A1")
def test_body_and_predecessor_are_covered() -> None:
    head = header(**COLUMNS)
    hashes = {link(p, hash_body(b), head) for p in (GENESIS, b"\1" * 32) for b in ("{}", "[]")}
    assert len(hashes) == 4


@pytest.mark.proves("A1", "I3")
def test_a_placed_event_is_stored_and_read_back_unchanged() -> None:
    draft = Draft(Applied("probe", (("sha", "a" * 40),)), 2, 1, "worker", "merge_pr", 1)
    event = place("T-1", draft, position=7, version=3, at=5, prev_hash=GENESIS, basis=0)
    assert from_row(to_row(event)) == event
    assert event.key == "T-1/1/merge_pr"
    assert event.hash == link(GENESIS, hash_body(event.body_text), header(**COLUMNS))
