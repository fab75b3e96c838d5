"""
`verify` names the first bad position of every forgery, and finds none in what the engine wrote (T10; A1-A3).

Whoever forges has the file: on a copy the triggers are dropped, rows are changed, and the triggers put back.
"""

# Every statement is made of this module's own words.
# ruff: noqa: S608

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from journal.chain import GENESIS, hash_body, header, link
from journal.errors import InvalidInputError
from journal.log.offline import open_evidence
from journal.log.schema import MIGRATIONS, statements
from projections import all_views
from recovery.chain import Findings
from recovery.verify import Head, verify, verify_task
from tests.lived import TASKS, lived

Tamper = Callable[[sqlite3.Connection], object]
TRIGGERS = ("journal_events_next", "journal_events_once", "journal_events_no_update", "journal_events_no_delete")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lived(tmp_path_factory.mktemp("lived") / "journal.db")


@pytest.fixture(scope="module")
def head(original: Path) -> Head:
    with open_evidence(original) as db:
        row = db.execute("SELECT position, hash FROM journal_events ORDER BY position DESC LIMIT 1").fetchone()
    return Head(row[0], row[1].hex())


def forged(original: Path, tmp_path: Path, tamper: Tamper) -> Path:
    """A copy in which the rows were changed and the guards look untouched."""
    path = tmp_path / "forged.db"
    shutil.copyfile(original, path)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("PRAGMA synchronous = OFF")
        for name in TRIGGERS:
            db.execute(f"DROP TRIGGER {name}")
        tamper(db)
        for statement in statements(MIGRATIONS[0][2]):
            db.execute(statement)
    return path


def check(path: Path, *, head: Head | None = None, deep: bool = False) -> Findings:
    with open_evidence(path) as db:
        return verify(db, head=head, projections=all_views(), deep=deep)


def first(found: Findings) -> tuple[int, str]:
    assert found.violations, "nothing was found"
    return found.violations[0].position, found.violations[0].invariant


def position_of(path: Path, where: str) -> int:
    with open_evidence(path) as db:
        return int(db.execute(f"SELECT min(position) FROM journal_events WHERE {where}").fetchone()[0])


def rechain(db: sqlite3.Connection) -> None:
    """Compute every hash anew, as a careful forger would."""
    before = GENESIS
    names = "position, task, version, generation, epoch, kind, schema, step, attempt, key, actor, at"
    for body, *columns in db.execute(f"SELECT body, {names} FROM journal_events ORDER BY position").fetchall():
        body_hash = hash_body(body)
        own = link(before, body_hash, header(*columns))
        db.execute(
            "UPDATE journal_events SET body_hash = ?, prev_hash = ?, hash = ? WHERE position = ?",
            (body_hash, before, own, columns[0]),
        )
        before = own
    db.execute("UPDATE journal_projections SET hash = (SELECT hash FROM journal_events e WHERE e.position = "
               "journal_projections.position)")  # fmt: skip


@pytest.mark.proves("A3", "I1", "I24")
def test_what_the_engine_wrote_verifies_whole_and_task_by_task(original: Path, head: Head) -> None:
    found = check(original, head=head)
    assert (found.violations, found.total) == ([], 0)
    assert (found.position, found.hash, found.events) == (head.position, head.hash, head.position)
    with open_evidence(original) as db:
        parts = {task: verify_task(db, task) for task in TASKS}
    assert [part.violations for part in parts.values()] == [[]] * len(TASKS)
    assert sum(part.events for part in parts.values()) == head.position - 1


@pytest.mark.proves("A3", "A1")
@pytest.mark.parametrize(
    "change",
    [
        "body = replace(body, 'acme/widgets', 'acme/widgetz')",
        "actor = 'operatos'",
        "at = at + 1",
        "epoch = epoch + 1",
        "attempt = 7",
        "task = 'T-0'",
        "kind = 'parked'",
        "key = 'T-3/1/none'",
        "schema = 2",
        "body = body || ' '",
        "body = 'x'",
        "body = cast(x'7bff7d' AS TEXT)",
        "hash = zeroblob(32)",
        "prev_hash = zeroblob(32)",
        "body_hash = zeroblob(32)",
    ],
)
def test_an_edited_column_is_found_at_its_position(original: Path, tmp_path: Path, change: str) -> None:
    path = forged(original, tmp_path, lambda db: db.execute(f"UPDATE journal_events SET {change} WHERE position = 4"))
    found = check(path)
    assert first(found)[0] == 4
    with open_evidence(path) as db:
        assert verify_task(db, "T-0" if change.startswith("task") else "T-3").violations[0].position == 4


@pytest.mark.proves("A3")
def test_every_byte_of_a_body_counts(original: Path, tmp_path: Path) -> None:
    def flip(db: sqlite3.Connection) -> None:
        (body,) = db.execute("SELECT body FROM journal_events WHERE position = 20").fetchone()
        middle = len(body) // 2
        flipped = body[:middle] + chr(ord(body[middle]) ^ 1) + body[middle + 1 :]
        db.execute("UPDATE journal_events SET body = ? WHERE position = 20", (flipped,))

    assert first(check(forged(original, tmp_path, flip))) == (20, "I1")


@pytest.mark.proves("A3", "I1")
@pytest.mark.parametrize("gone", ["= 30", "BETWEEN 30 AND 33", "= 1"])
def test_dropped_rows_are_found_where_they_are_missing(original: Path, tmp_path: Path, gone: str) -> None:
    path = forged(original, tmp_path, lambda db: db.execute(f"DELETE FROM journal_events WHERE position {gone}"))
    found = check(path)
    assert first(found) == (int(gone.split()[1]), "I1")
    assert "missing" in found.violations[0].detail


@pytest.mark.proves("A3")
def test_swapped_rows_are_found_at_the_first_of_them(original: Path, tmp_path: Path) -> None:
    def swap(db: sqlite3.Connection) -> None:
        db.execute("UPDATE journal_events SET position = -1 WHERE position = 40")
        db.execute("UPDATE journal_events SET position = 40 WHERE position = 41")
        db.execute("UPDATE journal_events SET position = 41 WHERE position = -1")

    assert first(check(forged(original, tmp_path, swap))) == (40, "I1")


@pytest.mark.proves("A2", "A3")
def test_a_tail_that_was_cut_off_is_proved_by_an_anchor_and_by_nothing_else(
    original: Path, tmp_path: Path, head: Head
) -> None:
    def cut(db: sqlite3.Connection) -> None:
        db.execute("DELETE FROM journal_events WHERE position > ?", (head.position - 5,))
        db.execute("UPDATE journal_projections SET position = ?", (head.position - 5,))
        rechain(db)

    path = forged(original, tmp_path, cut)
    last = head.position - 5
    assert not [v for v in check(path).violations if v.position > last], "a cut end cannot be seen from inside"
    found = check(path, head=head)
    behind = [v for v in found.violations if v.position == last + 1]
    assert [v.invariant for v in behind] == ["I1"]
    assert "cut off" in behind[0].detail


@pytest.mark.proves("A2", "A3")
def test_a_log_written_anew_with_a_consistent_chain_is_proved_by_an_anchor(
    original: Path, tmp_path: Path, head: Head
) -> None:
    def rewrite(db: sqlite3.Connection) -> None:
        db.execute("UPDATE journal_events SET actor = 'innocent' WHERE actor = 'operator'")
        rechain(db)

    path = forged(original, tmp_path, rewrite)
    assert check(path).intact
    found = check(path, head=head)
    assert first(found) == (head.position, "I1")
    assert "written anew" in found.violations[0].detail


@pytest.mark.proves("I8", "I9", "I10", "I13")
@pytest.mark.parametrize(
    ("where", "change", "invariant"),
    [
        ("kind = 'intended' AND step = 'ratchet'", "step = 'other', key = replace(key, 'ratchet', 'other')", "I8"),
        ("kind = 'applied' AND step = 'ratchet'", "attempt = 9", "I9"),
        ("kind = 'acquired' AND task = 'T-4' AND epoch = 2", "epoch = 7", "I4"),
        ("kind = 'intended' AND task = 'T-2'", "epoch = 1", "I6"),
        ("kind = 'stage_moved' AND task = 'T-1'", "body = replace(body, 'deploy-staging', 'deploy')", "I12"),
        ("kind = 'observed' AND task = 'T-2'", "body = replace(body, '\"open\"', '\"retry\"')", "I18"),
        ("kind = 'parked' AND task = 'T-3'", "kind = 'hazard_found', body = '{\"reason\":\"x\"}'", "I18"),
        ("kind = 'opened' AND task = 'T-6'", "generation = 2", "I16"),
        ("kind = 'opened' AND task = 'T-6'", "version = 99", "I2"),
    ],
)
def test_history_that_breaks_the_protocol_is_found_though_every_hash_fits(
    original: Path, tmp_path: Path, where: str, change: str, invariant: str
) -> None:
    place = position_of(original, where)

    def rewrite(db: sqlite3.Connection) -> None:
        db.execute(f"UPDATE journal_events SET {change} WHERE position = ?", (place,))
        rechain(db)

    found = check(forged(original, tmp_path, rewrite))
    assert invariant in {v.invariant for v in found.violations if v.position == place}, found.violations
    assert found.violations[0].position == place


@pytest.mark.proves("A1", "A3")
def test_one_event_with_hashes_of_its_own_is_found_at_the_one_behind_it(original: Path, tmp_path: Path) -> None:
    """Whoever computes an event's own hash anew breaks the next link; whoever moves the link breaks the one before."""
    columns = "position, task, version, generation, epoch, kind, schema, step, attempt, key, actor, at"

    def rewrite(db: sqlite3.Connection) -> None:
        db.execute("UPDATE journal_events SET actor = 'innocent' WHERE position = 4")
        row = db.execute(f"SELECT prev_hash, body_hash, {columns} FROM journal_events WHERE position = 4").fetchone()
        db.execute("UPDATE journal_events SET hash = ? WHERE position = 4", (link(row[0], row[1], header(*row[2:])),))

    path = forged(original, tmp_path, rewrite)
    assert first(check(path)) == (5, "I1")
    with open_evidence(path) as db:
        assert "after" in verify_task(db, "T-3").violations[0].detail


@pytest.mark.proves("A3", "L2", "S3")
def test_replace_is_refused_with_the_guards_and_found_without_them(original: Path, tmp_path: Path) -> None:
    replace = "INSERT OR REPLACE INTO journal_events SELECT * FROM journal_events WHERE position = 10"
    copy = tmp_path / "copy.db"
    shutil.copyfile(original, copy)
    with closing(sqlite3.connect(copy)) as db, pytest.raises(sqlite3.IntegrityError, match="journal: position"):
        db.execute(replace)

    def forge(db: sqlite3.Connection) -> None:
        row = list(db.execute("SELECT * FROM journal_events WHERE position = 10").fetchone())
        row[10] = "somebody"
        db.execute(f"INSERT OR REPLACE INTO journal_events VALUES ({','.join('?' * len(row))})", row)

    assert first(check(forged(original, tmp_path, forge))) == (10, "I1")


@pytest.mark.proves("A3", "S3")
def test_guards_that_are_gone_or_only_have_the_name_are_found(original: Path, tmp_path: Path) -> None:
    for number, statement in enumerate(
        (
            "SELECT 1",
            "CREATE TRIGGER journal_events_no_delete BEFORE DELETE ON journal_events BEGIN SELECT 1; END",
        )
    ):
        path = tmp_path / f"{number}.db"
        shutil.copyfile(original, path)
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("PRAGMA journal_mode = DELETE")
            db.execute("DROP TRIGGER journal_events_no_delete")
            db.execute(statement)
        found = check(path)
        assert first(found) == (0, "I1")
        assert "journal_events_no_delete" in found.violations[0].detail


@pytest.mark.proves("I24", "R95")
@pytest.mark.parametrize("change", ["position = position + 3", "hash = zeroblob(32)"])
def test_a_view_that_reaches_past_the_head_or_is_of_another_log_is_found(
    original: Path, tmp_path: Path, change: str
) -> None:
    path = forged(original, tmp_path, lambda db: db.execute(f"UPDATE journal_projections SET {change}"))
    assert first(check(path))[1] == "I24"


@pytest.mark.proves("I24")
def test_a_view_that_tells_something_else_than_the_log_is_found_by_a_deep_look(original: Path, tmp_path: Path) -> None:
    assert check(original, deep=True).intact
    path = forged(
        original, tmp_path, lambda db: db.execute("UPDATE journal_view_tasks SET stage = 'deploy' WHERE task = 'T-5'")
    )
    assert check(path).intact
    assert first(check(path, deep=True))[1] == "I24"


@pytest.mark.proves("A3", "R91")
def test_pages_that_sqlite_cannot_read_are_a_finding_and_no_crash(original: Path, tmp_path: Path) -> None:
    path = tmp_path / "torn.db"
    shutil.copyfile(original, path)
    with path.open("r+b") as file:
        file.seek(-5 * 4096, os.SEEK_END)
        file.write(b"\xa5" * 5 * 4096)
    found = check(path, deep=True)
    assert not found.intact
    assert any("SQLite" in v.detail for v in found.violations)


@pytest.mark.parametrize(
    "text", ["", "7", "7:abc", "0:" + "a" * 64, "-1:" + "a" * 64, "7:" + "g" * 64, "9" * 20 + ":" + "a" * 64]
)
def test_an_anchor_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        Head.parse(text)
