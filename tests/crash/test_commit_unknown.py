"""
A COMMIT that fails, a disk that lies or is full, a file that is swapped: nobody acts on it (S5, S6, S10, finding 7).

Three ways to make it fail, from near to real: a connection whose COMMIT raises before or after it really commits, a
small preload library that fails the sync of the WAL, and a file system of 40 MB that is really full.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from journal import Journal, advance_stage
from journal.errors import CommitUnknownError, PoisonedError, StoreUnavailableError
from journal.journal import NewTask
from journal.log import poison
from journal.log.sqlite import SqliteLog
from journal.log.unit import Unit, Written
from journal.results import Advanced, Unavailable
from journal.stream import Stream
from journal.words import Kind
from tests.builders import FileStep, StandingClock, opened, pipeline, step
from tests.conftest import missing, need_tool

ROOT = Path(__file__).parents[2]


class Failing(sqlite3.Connection):
    """A real connection; `plan` says how the next COMMITs end: (really commit?, error code), or None for good ones."""

    plan: list[tuple[bool, int] | None] = []  # noqa: RUF012  (one plan for all connections of a test)

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        fate = self.plan.pop(0) if sql == "COMMIT" and self.plan else None
        if fate is None:
            return super().execute(sql, parameters)
        if fate[0]:
            super().execute(sql, parameters)
        error = sqlite3.OperationalError("provoked")
        error.sqlite_errorcode = fate[1]
        raise error


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, int] | None]:
    """Make every connection that is opened from now on a `Failing` one."""
    connect = sqlite3.connect

    def failing(*args: Any, **kwargs: Any) -> sqlite3.Connection:
        made: sqlite3.Connection = connect(*args, **kwargs, factory=Failing)
        return made

    monkeypatch.setattr("journal.log.connection.sqlite3.connect", failing)
    Failing.plan = []
    return Failing.plan


OPEN: list[SqliteLog] = []


@pytest.fixture(autouse=True)
async def nothing_left_open() -> AsyncIterator[None]:
    """A test that fails half-way must not leave a thread behind that keeps the whole run from ending."""
    yield
    while OPEN:
        await OPEN.pop().close()


async def open_log(folder: Path) -> SqliteLog:
    log = await SqliteLog.open(folder / "journal.db", write=True, clock=StandingClock(), new_id=lambda: "ab" * 16)
    OPEN.append(log)
    return log


async def append_all(log: SqliteLog, *tasks: str) -> list[object]:
    return list(
        await asyncio.gather(*(log.append(Unit(Stream(t), (opened(),))) for t in tasks), return_exceptions=True)
    )


@pytest.mark.proves("S5", "T5")
async def test_a_commit_that_failed_and_did_happen_is_found_and_answered_as_written(
    tmp_path: Path, plan: list[tuple[bool, int] | None]
) -> None:
    log = await open_log(tmp_path)
    plan.append((True, sqlite3.SQLITE_BUSY))
    assert [type(a) for a in await append_all(log, "T-1", "T-2")] == [Written, Written]
    assert [type(a) for a in await append_all(log, "T-3")] == [Written]  # and the writer goes on
    assert [e.position for e in await log.events()] == [1, 2, 3, 4]
    await log.close()


@pytest.mark.proves("S5", "T5")
async def test_a_commit_that_failed_and_did_not_happen_is_unknown_to_all_its_members(
    tmp_path: Path, plan: list[tuple[bool, int] | None]
) -> None:
    log = await open_log(tmp_path)
    await append_all(log, "T-0")
    plan.append((False, sqlite3.SQLITE_FULL))
    assert [type(a) for a in await append_all(log, "T-1", "T-2", "t-0")][:2] == [CommitUnknownError] * 2
    assert [type(a) for a in await append_all(log, "T-1")] == [Written]
    assert [e.task for e in await log.events()] == ["", "T-0", "T-1"]
    await log.close()


@pytest.mark.proves("S5", "E1", "FR-7")
@pytest.mark.parametrize("happened", [True, False])
@pytest.mark.parametrize("nth", range(7))
async def test_no_effect_rests_on_a_commit_that_failed(
    tmp_path: Path, plan: list[tuple[bool, int] | None], nth: int, happened: bool
) -> None:
    """The n-th commit fails, for all n of a two-step edge; then the work is finished, each effect once."""
    files = FileStep(tmp_path)
    async with Journal.open(
        tmp_path / "journal.db",
        pipeline=pipeline(step("merge_pr"), step("ratchet")),
        steps={"merge_pr": files, "ratchet": files},
    ) as journal:
        await journal.open_task(NewTask("T-1", "acme/widgets", "f"), actor="operator")
        plan.extend([None] * nth + [(happened, sqlite3.SQLITE_FULL)])
        first = await advance_stage(journal, "T-1")
        assert isinstance(first, (Advanced, Unavailable))
        assert isinstance(first, Advanced) == (happened or bool(plan))
        for key in ("T-1/1/merge_pr", "T-1/1/ratchet"):
            intended = [e for e in await journal.events("T-1") if e.kind is Kind.INTENDED and e.key == key]
            assert len(files.calls(key)) <= len(intended)
        plan.clear()
        if not isinstance(first, Advanced):
            assert isinstance(await advance_stage(journal, "T-1"), Advanced)
    assert [len(files.calls(f"T-1/1/{name}")) for name in ("merge_pr", "ratchet")] == [1, 1]


@pytest.mark.proves("S6", "X1", "R91")
@pytest.mark.parametrize("code", [sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB])
@pytest.mark.parametrize("happened", [True, False])
async def test_a_disk_error_stops_the_writer_until_a_person_has_looked(
    tmp_path: Path, plan: list[tuple[bool, int] | None], code: int, happened: bool
) -> None:
    """What is absent after an I/O error may still come back, so not even "it is not there" is an answer."""
    log = await open_log(tmp_path)
    plan.append((happened, code))
    assert [type(a) for a in await append_all(log, "T-1")] == [CommitUnknownError]
    assert [type(a) for a in await append_all(log, "T-2", "T-3")] == [PoisonedError] * 2
    assert isinstance(log.broken, PoisonedError)
    await log.events()  # reading goes on
    await log.close()

    assert "provoked" in poison.reason(tmp_path / "journal.db")
    for _ in range(2):
        with pytest.raises(PoisonedError, match="doctor --unpoison"):
            await open_log(tmp_path)
    assert poison.lift(tmp_path / "journal.db")
    assert not poison.lift(tmp_path / "journal.db")
    log = await open_log(tmp_path)
    assert [type(a) for a in await append_all(log, "T-2")] == [Written]
    await log.close()


@pytest.mark.proves("R88", "T9", "S5")
@pytest.mark.parametrize("how", ["removed", "replaced", "replaced by another journal"])
async def test_a_file_that_was_swapped_under_us_stops_the_writer(tmp_path: Path, how: str) -> None:
    db = tmp_path / "journal.db"
    log = await open_log(tmp_path)
    await append_all(log, "T-1")
    if how == "removed":
        db.unlink()
    elif how == "replaced":
        (tmp_path / "copy").write_bytes(db.read_bytes())
        (tmp_path / "copy").replace(db)
    else:
        other = tmp_path / "other"
        other.mkdir()
        await (await open_log(other)).close()
        (other / "journal.db").replace(db)
    before = db.read_bytes() if db.exists() else None
    for _ in range(2):
        (answer,) = await append_all(log, "T-2")
        assert isinstance(answer, StoreUnavailableError)
        assert "removed or replaced" in str(answer)
    await log.close()
    assert (db.read_bytes() if db.exists() else None) == before


@pytest.mark.proves("R88", "S5")
async def test_after_a_failed_commit_only_the_same_file_is_opened_again(
    tmp_path: Path, plan: list[tuple[bool, int] | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file goes away between the COMMIT that fails and the look: no empty journal may be made in its place."""
    db = tmp_path / "journal.db"
    log = await open_log(tmp_path)
    close = Failing.close

    def close_and_lose(self: sqlite3.Connection) -> None:
        close(self)
        monkeypatch.setattr(Failing, "close", close)
        db.rename(tmp_path / "elsewhere")

    monkeypatch.setattr(Failing, "close", close_and_lose)
    plan.append((False, sqlite3.SQLITE_FULL))
    assert [type(a) for a in await append_all(log, "T-1")] == [CommitUnknownError]
    assert [type(a) for a in await append_all(log, "T-2")] == [StoreUnavailableError]
    assert not db.exists()
    await log.close()


# -- a disk that really fails ---------------------------------------------------------------------------------------

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* Fails the sync of a write-ahead log while the file named by FAIL_WHILE exists. */
static int fails(int fd) {
    char link[64], path[4096];
    const char *flag = getenv("FAIL_WHILE");
    if (!flag || access(flag, F_OK)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 4) return 0;
    path[n] = 0;
    return !strcmp(path + n - 4, "-wal");
}
int fsync(int fd) {
    if (fails(fd)) { errno = EIO; return -1; }
    return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(fd);
}
int fdatasync(int fd) {
    if (fails(fd)) { errno = EIO; return -1; }
    return ((int (*)(int))dlsym(RTLD_NEXT, "fdatasync"))(fd);
}
"""

VICTIM = """
import asyncio, json, os, signal, sys
from pathlib import Path
from journal import Journal, advance_stage
from journal.journal import NewTask
from tests.builders import FileStep, pipeline, step
folder, flag = Path(sys.argv[1]), Path(os.environ["FAIL_WHILE"])
async def main():
    definition = pipeline(step("merge_pr"))
    journal = await Journal.open(folder / "journal.db", pipeline=definition, steps={"merge_pr": FileStep(folder)})
    await journal.open_task(NewTask("T-1", "acme/widgets", "f"), actor="operator")
    flag.touch()
    answers = [type(await advance_stage(journal, "T-1")).__name__ for _ in range(2)]
    print(json.dumps({"answers": answers, "broken": type(journal.log.broken).__name__}), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


@pytest.mark.proves("S5", "S6", "E1", "T5")
async def test_a_sync_that_really_fails_lets_no_effect_run_and_poisons(tmp_path: Path) -> None:
    """Finding 7: the row whose COMMIT raised is there after kill -9. It is no license: the effect had not run."""
    compiler = need_tool("cc", "gcc", "clang")
    source, shim, flag = tmp_path / "shim.c", tmp_path / "shim.so", tmp_path / "fail"
    source.write_text(SHIM)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", shim, source, "-ldl"], check=True)
    folder = tmp_path / "disk"
    folder.mkdir()
    ran = subprocess.run(
        [sys.executable, "-c", VICTIM, folder],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "LD_PRELOAD": str(shim), "FAIL_WHILE": str(flag)},
    )
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    said = json.loads(ran.stdout.splitlines()[-1])
    assert said == {"answers": ["Unavailable", "Unavailable"], "broken": "PoisonedError"}
    files = FileStep(folder)
    assert files.calls("T-1/1/merge_pr") == []

    with closing(sqlite3.connect(folder / "journal.db")) as db:
        came_back = db.execute("SELECT count(*) FROM journal_events WHERE kind = 'acquired'").fetchone()
    assert came_back == (1,)  # SQLite said it failed, no connection of that process saw it, and there it is

    definition, steps = pipeline(step("merge_pr")), {"merge_pr": files}
    with pytest.raises(PoisonedError):
        await Journal.open(folder / "journal.db", pipeline=definition, steps=steps)
    poison.lift(folder / "journal.db")
    async with Journal.open(folder / "journal.db", pipeline=definition, steps=steps) as journal:
        assert isinstance(await advance_stage(journal, "T-1"), Advanced)
    assert len(files.calls("T-1/1/merge_pr")) == 1


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A file system in memory of this size; needs the right to mount."""
    place = folder / "small"
    place.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", str(place).encode(), b"tmpfs", 0, f"size={megabytes}m".encode()):
        missing("the right to mount a small file system")
    try:
        yield place
    finally:
        libc.umount2(str(place).encode(), 2)


def fill(place: Path, leave: int) -> None:
    """Take all space but `leave` bytes."""
    space = os.statvfs(place)
    with (place / "ballast").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, space.f_bavail * space.f_frsize - leave)


@pytest.mark.proves("S10", "T9", "O2")
async def test_low_space_stops_terms_and_effects_before_they_begin_and_parks_nothing(tmp_path: Path) -> None:
    with small_disk(tmp_path, 40) as place:
        files = FileStep(tmp_path)
        async with Journal.open(
            place / "journal.db", pipeline=pipeline(step("merge_pr")), steps={"merge_pr": files}
        ) as journal:
            await journal.open_task(NewTask("T-1", "acme/widgets", "f"), actor="operator")
            fill(place, 8 << 20)
            for _ in range(5):
                answer = await advance_stage(journal, "T-1")
                assert isinstance(answer, Unavailable)
                assert "32 MiB" in answer.reason
            await journal.open_task(NewTask("T-2", "acme/widgets", "f"), actor="operator")  # notes still fit
            assert (await journal.stream("T-1")).version == 1
            (place / "ballast").unlink()
            assert isinstance(await advance_stage(journal, "T-1"), Advanced)
        assert len(files.calls("T-1/1/merge_pr")) == 1


@pytest.mark.proves("S10", "T9", "S5")
async def test_a_disk_that_is_full_at_an_outcome_loses_nothing(tmp_path: Path) -> None:
    """The effect is there and cannot be recorded: once there is room again it is found, not repeated."""
    with small_disk(tmp_path, 40) as place:

        class Fills(FileStep):
            async def apply(self, call: Any) -> Any:
                reply = await super().apply(call)
                if not (place / "ballast").exists():
                    fill(place, 0)
                return reply

        files = Fills(tmp_path)
        definition = pipeline(step("merge_pr"))
        async with Journal.open(place / "journal.db", pipeline=definition, steps={"merge_pr": files}) as journal:
            for n in range(200):  # whatever room the WAL already has is used up
                await journal.open_task(NewTask(f"N-{n}", "acme/widgets", "f"), actor="operator")
            await journal.open_task(NewTask("T-1", "acme/widgets", "f"), actor="operator")
            first = await advance_stage(journal, "T-1")
            assert isinstance(first, Unavailable), first
            (place / "ballast").unlink()
        poison.lift(place / "journal.db")  # SQLite calls some forms of a full disk an I/O error
        async with Journal.open(place / "journal.db", pipeline=definition, steps={"merge_pr": files}) as journal:
            assert isinstance(await advance_stage(journal, "T-1"), Advanced)
            kinds = [e.kind for e in await journal.events("T-1")]
            assert kinds.count(Kind.APPLIED) == 1
        assert len(files.calls("T-1/1/merge_pr")) == 1
