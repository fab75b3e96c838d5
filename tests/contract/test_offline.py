"""Evidence is read without a trace, wherever it lies and whatever state it was left in (A5, R87)."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from journal import Journal
from journal.errors import DamagedError, StoreUnavailableError
from journal.journal import NewTask
from journal.log.offline import Standing, open_evidence, standing
from projections import all_views
from tests.lived import STEPS, World, lived, pipeline

Folder = dict[str, tuple[str, int, int]]


def photograph(folder: Path) -> Folder:
    """Every file with its content, size and time; SQLite's shared memory and the locks are no evidence."""
    return {
        f.name: (hashlib.sha256(f.read_bytes()).hexdigest(), f.stat().st_size, f.stat().st_mtime_ns)
        for f in folder.iterdir()
        if f.is_file() and not f.name.endswith("-shm")
    }


def names(folder: Path) -> set[str]:
    return {f.name for f in folder.iterdir()}


def head(path: Path) -> int:
    with open_evidence(path) as db:
        return int(db.execute("SELECT max(position) FROM journal_events").fetchone()[0])


@pytest.fixture(scope="module")
def at_rest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lived(tmp_path_factory.mktemp("rest") / "journal.db")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lived(tmp_path_factory.mktemp("killed") / "journal.db", kill=True)


@pytest.mark.proves("A5", "DC-4")
def test_a_journal_at_rest_is_read_and_nothing_appears_beside_it(at_rest: Path) -> None:
    before, around = photograph(at_rest.parent), names(at_rest.parent)
    assert standing(at_rest) is Standing.AT_REST
    assert head(at_rest) > 70
    assert photograph(at_rest.parent) == before
    assert names(at_rest.parent) == around


@pytest.mark.proves("A5", "DC-4")
def test_after_kill_9_the_events_of_the_wal_are_read_and_the_wal_stays(killed: Path) -> None:
    before, around = photograph(killed.parent), names(killed.parent)
    assert before["journal.db-wal"][1] > 0
    assert standing(killed) is Standing.LEFT_OVER
    assert head(killed) > 70
    assert photograph(killed.parent) == before
    assert names(killed.parent) == around


@pytest.mark.proves("A5")
def test_a_private_copy_is_gone_afterwards_also_when_reading_failed(
    killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def fail() -> None:
        with open_evidence(killed) as db:
            assert list(tmp_path.iterdir())
            db.execute("SELECT nonsense")

    with pytest.raises(StoreUnavailableError):
        fail()
    assert not list(tmp_path.iterdir())


@pytest.mark.proves("A5")
def test_a_hard_link_and_a_full_copy_tell_the_same(
    killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked = head(killed)

    def other_file_system(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", other_file_system)
    assert head(killed) == linked


@pytest.mark.proves("A5")
@pytest.mark.parametrize("left_over", [False, True])
def test_a_folder_that_cannot_be_written_is_read(at_rest: Path, killed: Path, left_over: bool) -> None:
    with tempfile.TemporaryDirectory() as outer:  # pytest's own folders let no other user in
        Path(outer).chmod(0o755)
        folder = Path(outer) / "evidence"
        shutil.copytree((killed if left_over else at_rest).parent, folder, ignore=shutil.ignore_patterns("*-shm"))
        before = photograph(folder)
        for file in folder.iterdir():
            file.chmod(0o555 if file.is_dir() else 0o444)
        folder.chmod(0o555)
        with without_rights():
            with pytest.raises(PermissionError):
                (folder / "litter").touch()
            assert head(folder / "journal.db") > 70
        assert photograph(folder) == before
        folder.chmod(0o755)


@contextmanager
def without_rights() -> Iterator[None]:
    """Root may write everywhere, so for this be somebody who may not."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.proves("A5")
async def test_beside_a_running_writer_its_newest_events_are_read_and_nothing_is_checkpointed(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    steps = dict.fromkeys(STEPS, World())
    async with Journal.open(path, pipeline=pipeline(), steps=steps, projections=all_views()) as journal:
        await journal.open_task(NewTask("T-1", "acme/widgets", "f/1"), actor="operator")
        before, around = photograph(tmp_path), names(tmp_path)
        assert standing(path) is Standing.LIVE
        assert await asyncio.to_thread(head, path) == 2
        assert photograph(tmp_path) == before
        assert names(tmp_path) == around
        await journal.open_task(NewTask("T-2", "acme/widgets", "f/2"), actor="operator")
        assert await asyncio.to_thread(head, path) == 3


@pytest.mark.proves("A5")
@pytest.mark.parametrize("left_over", [False, True])
def test_what_was_read_does_not_count_if_somebody_wrote_meanwhile(
    at_rest: Path, killed: Path, tmp_path: Path, left_over: bool
) -> None:
    folder = tmp_path / "evidence"
    shutil.copytree((killed if left_over else at_rest).parent, folder, ignore=shutil.ignore_patterns("*-shm"))
    path = folder / "journal.db"

    def read_while_somebody_writes() -> None:
        with open_evidence(path) as db:
            assert db.execute("SELECT count(*) FROM journal_events").fetchone()[0] > 70
            with closing(sqlite3.connect(path)) as other:
                other.execute("CREATE TABLE of_a_host (x)")

    with pytest.raises(StoreUnavailableError, match="began to write"):
        read_while_somebody_writes()


@pytest.mark.proves("A5")
def test_a_rollback_journal_that_a_crash_left_is_rolled_back_in_the_copy_only(at_rest: Path, tmp_path: Path) -> None:
    """A host's file may be in a rollback mode (DESIGN 9): then the left-over journal holds the truth."""
    path = tmp_path / "journal.db"
    shutil.copyfile(at_rest, path)
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("CREATE TABLE of_a_host (x)")
        db.execute("PRAGMA cache_size = 1")
        db.execute("BEGIN IMMEDIATE")
        db.executemany("INSERT INTO of_a_host VALUES (?)", [("x" * 900,) for _ in range(400)])
        for file in (path, path.with_name("journal.db-journal")):
            shutil.copyfile(file, crashed / file.name)
    before = photograph(crashed)
    assert before["journal.db-journal"][1] > 0
    with open_evidence(crashed / "journal.db") as db:
        assert db.execute("SELECT count(*) FROM of_a_host").fetchone()[0] == 0
        assert db.execute("SELECT max(position) FROM journal_events").fetchone()[0] == head(at_rest)
    assert photograph(crashed) == before


def test_what_is_no_journal_is_refused_by_its_own_name(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="no such file"), open_evidence(tmp_path / "none.db"):
        pass
    text = tmp_path / "text.db"
    text.write_text("no database at all, but long enough to be looked at " * 20)
    with pytest.raises(DamagedError, match=r"text\.db: is not an SQLite database"), open_evidence(text):
        pass
    text.with_name("text.db-wal").write_text("x")
    with pytest.raises(DamagedError, match=rf"{tmp_path}/text\.db: is not an SQLite database"), open_evidence(text):
        pass
