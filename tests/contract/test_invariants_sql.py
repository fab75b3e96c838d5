"""The auditor's views (docs/reference/invariants.sql): silent on a journal that lived, and loud about each forgery."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from journal.log.schema import GUARDS
from tests.lived import ROOT, lived

SCRIPT = (ROOT / "docs/reference/invariants.sql").read_text()


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lived(tmp_path_factory.mktemp("sql") / "journal.db", kill=False)


@pytest.fixture
def db(original: Path) -> Iterator[sqlite3.Connection]:
    """A copy in memory without its guards, so that anything can be forged."""
    with closing(sqlite3.connect(":memory:")) as copy:
        with closing(sqlite3.connect(f"file:{original}?mode=ro", uri=True)) as source:
            source.backup(copy)
        for name in GUARDS:
            copy.execute(
                f"DROP {'TRIGGER' if name.startswith('journal_events_') and 'by' not in name else 'INDEX'} {name}"
            )
        copy.executescript(SCRIPT)
        yield copy


def forge(db: sqlite3.Connection, like: str, **changes: object) -> None:
    """Append a copy of the last event that fits, at the end of log and task, with some columns changed."""
    head = db.execute("SELECT max(position) FROM journal_events").fetchone()[0]
    row = db.execute(f"SELECT * FROM journal_events WHERE {like} ORDER BY position DESC LIMIT 1")  # noqa: S608
    names = [c[0] for c in row.description]
    values = dict(zip(names, row.fetchone(), strict=True))
    task = str(changes.get("task", values["task"]))
    version = db.execute("SELECT max(version) FROM journal_events WHERE task = ?", (task,)).fetchone()[0]
    values |= {"position": head + 1, "version": version + 1} | changes
    db.execute(f"INSERT INTO journal_events VALUES ({', '.join('?' * len(names))})", list(values.values()))  # noqa: S608


def broken(db: sqlite3.Connection) -> set[str]:
    return {rule for rule, _, _ in db.execute("SELECT * FROM broken")}


@pytest.mark.proves("A3", "I4", "I6", "I8", "I9", "I10", "I13", "I15", "I17")
def test_a_journal_that_kept_the_protocol_shows_nothing_but_what_is_unfinished(db: sqlite3.Connection) -> None:
    assert not broken(db)
    assert [task for task, *_ in db.execute("SELECT * FROM merged_but_not_done")] == ["T-3"]
    doubtful = db.execute("SELECT count(*) FROM in_doubt").fetchone()[0]
    forge(db, "kind = 'intended' AND task = 'T-3'", attempt=9)
    assert db.execute("SELECT count(*) FROM in_doubt").fetchone()[0] == doubtful + 1


FORGERIES: dict[str, list[tuple[str, dict[str, object]]]] = {
    "I10 applied twice": [("kind = 'applied' AND task = 'T-1'", {})],
    "I4 two owners": [("kind = 'acquired' AND task = 'T-1'", {})],
    "I6 wrote after losing": [("kind = 'released' AND task = 'T-1'", {"epoch": 1})],
    "I9 outcome without intent": [("kind = 'applied' AND task = 'T-1'", {"step": "unheard", "attempt": 1})],
    "I9 two outcomes": [("kind = 'applied' AND task = 'T-1'", {})],
    "I8 two open intents": [
        ("kind = 'intended' AND task = 'T-1'", {"step": "one", "attempt": 1}),
        ("kind = 'intended' AND task = 'T-1'", {"step": "two", "attempt": 1}),
    ],
    "I17 parked in silence": [("kind = 'parked'", {"body": '{"reason":"","alert":""}'})],
    "I15 begun after the end": [
        ("kind = 'released' AND task = 'T-1'", {"kind": "canceled"}),
        ("kind = 'intended' AND task = 'T-1'", {"step": "more"}),
    ],
    "I1 gaps": [("kind = 'released' AND task = 'T-1'", {"position": 9999})],
}


@pytest.mark.proves("A3")
@pytest.mark.parametrize("rule", FORGERIES)
def test_each_forgery_is_named_by_its_view(rule: str, db: sqlite3.Connection) -> None:
    for like, changes in FORGERIES[rule]:
        forge(db, like, **changes)
    assert rule in broken(db)


@pytest.mark.proves("I13")
def test_a_stage_that_moved_past_a_missing_outcome_is_named(db: sqlite3.Connection) -> None:
    db.execute("DELETE FROM journal_events WHERE kind = 'applied' AND task = 'T-1' AND step = 'merge_pr'")
    found = db.execute("SELECT task, step FROM moved_without_effect").fetchall()
    assert found == [("T-1", "merge_pr")]
