"""
This version and the next share a server: each effect once, whichever stays (M2, L4; decisions 0017 and 0020).

The next version is a copy of the four packages that differs as releases may: a migration that leaves the old one alone,
and a field which `acquired` got. It is set for the tasks `N-...`, and no version before can read those terms.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from journal.journal import Journal
from journal.log.postgres.schema import SCHEMA_NUMBER
from journal.words import Hold
from tests.crash import fleet_host
from tests.crash.fleet import THIS, Host, fleet, mend
from tests.crash.test_hosts import assert_once, count_effects, open_tasks, until, until_joined
from tests.doubles.postgres import Postgres

PACKAGES = ("journal", "projections", "recovery", "integrations")
CHANGES = {
    "journal/log/postgres/schema.py": (
        (
            "SCHEMA_NUMBER = MIG",
            "MIGRATIONS += (Migration({next}, 'tomorrow', {script!r}, {known}),)\nSCHEMA_NUMBER = MIG",
        ),
    ),
    "journal/events.py": (('    trace: str = ""  # schema 2\n', '{found}    origin: str = ""  # schema 3\n'),),
    "journal/codec.py": (
        ("{Kind.ACQUIRED: 2}", "{Kind.ACQUIRED: 3}"),
        ('{(Kind.ACQUIRED, 2): "trace"}', '{(Kind.ACQUIRED, 2): "trace", (Kind.ACQUIRED, 3): "origin"}'),
    ),
    "journal/engine.py": (
        (
            "run.cause if s.owner else Cause.NONE)",
            "run.cause if s.owner else Cause.NONE, origin='N' if run.task.startswith('N-') else '')",
        ),
    ),
}
SCRIPT = "CREATE TABLE journal_tomorrow (n bigint); CREATE INDEX ON journal_events (actor)"


def next_version(folder: Path) -> Path:
    """The program as of the release after this one."""
    for package in PACKAGES:
        shutil.copytree(THIS / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    names = {"known": str(SCHEMA_NUMBER), "next": str(SCHEMA_NUMBER + 1), "script!r": repr(SCRIPT)}
    for path, changes in CHANGES.items():
        text = (folder / path).read_text()
        for found, becomes in changes:
            assert text.count(found) == 1, f"{path} no longer says {found}"
            for name, value in {**names, "found": found}.items():
                becomes = becomes.replace(f"{{{name}}}", value)
            text = text.replace(found, becomes)
        (folder / path).write_text(text)
    return folder


class Seen:
    """The server as its own client sees it, which knows of no version, and the old version's view of it."""

    def __init__(self, journal: Journal, postgres: Postgres, dsn: str) -> None:
        self.journal, self._postgres, self._database = journal, postgres, dsn.rpartition("/")[2]
        self._running: list[Host] = []

    def running(self, *hosts: Host) -> None:
        """From now on these run, and are started again if a slow machine costs one its beat, as systemd would."""
        self._running = list(hosts)
        mend(self._running)

    def ask(self, statement: str) -> list[str]:
        return self._postgres.sql(statement, self._database).splitlines()

    def schema(self) -> int:
        return int(self.ask("SELECT max(number) FROM journal_migrations")[0])

    def owners(self, tasks: set[str]) -> set[str]:
        """The processes that ever owned any of them."""
        rows = self.ask("SELECT task, body::json -> 'owner' ->> 'instance' FROM journal_events WHERE kind = 'acquired'")
        return {instance for task, instance in (row.split("|") for row in rows) if task in tasks}

    def of_tomorrow(self) -> set[str]:
        """Tasks with an event that only the next version knows."""
        return set(self.ask("SELECT task FROM journal_events WHERE kind = 'acquired' AND schema = 3"))

    def hashes(self, task: str) -> list[str]:
        rows = self.ask("SELECT task, encode(hash, 'hex') FROM journal_events ORDER BY position")
        return [digest for of, digest in (row.split("|") for row in rows) if of == task]

    async def done(self, *tasks: str) -> None:
        """Open them and wait until each has advanced, by the server's word."""
        await open_tasks(self.journal, list(tasks))
        await self.advanced(*tasks)

    async def advanced(self, *tasks: str) -> None:
        async def over() -> bool:
            mend(self._running)
            there = await asyncio.to_thread(self.ask, "SELECT task FROM journal_events WHERE kind = 'stage_moved'")
            return set(tasks) <= set(there)

        await until(over, f"not all of {tasks} advanced")

    async def understood(self, tasks: set[str]) -> None:
        """The old version reads as done what it can know, and as parked whatever the next one alone knows."""
        theirs = self.of_tomorrow()
        assert all(task.startswith("N-") for task in theirs), theirs
        for task in tasks:
            state = (await self.journal.stream(task)).state
            assert (state.hold, state.unread) == ((Hold.PARKED, True) if task in theirs else (Hold.DONE, False)), task


@asynccontextmanager
async def watching(folder: Path, postgres: Postgres, dsn: str) -> AsyncIterator[Seen]:
    """A host of the old version that drives nothing, as whoever opens tasks and asks."""
    (folder / "watch").mkdir()
    async with fleet_host.opened(folder / "watch", folder / "far", dsn) as journal:
        yield Seen(journal, postgres, dsn)


async def work_beside_each_other(at: Seen) -> set[str]:
    """Open tasks until both hosts have driven some, and the next version one that only it can read."""
    tasks = set[str]()
    while len(at.owners(tasks)) < 2 or not at.of_tomorrow() & tasks:
        assert len(tasks) < 60, "one of them drives nothing"
        more = {f"{letter}-b{len(tasks) + n}" for letter in "TN" for n in range(2)}
        await at.done(*more)
        tasks |= more
    return tasks


@pytest.mark.proves("M2", "L4", "NFR-3", "O1")
async def test_old_and_new_version_work_side_by_side_until_the_old_one_is_stopped(
    tmp_path: Path, postgres: Postgres, database: str
) -> None:
    with fleet(2, tmp_path, database, postgres.port) as (old, new):
        new.version = next_version(tmp_path / "tomorrow")
        async with watching(tmp_path, postgres, database) as at:
            at.running(old)
            await at.done("T-0", "N-0")
            assert (at.schema(), at.of_tomorrow()) == (SCHEMA_NUMBER, set())
            at.running(old, new)
            await until_joined(at.journal, 2)
            assert at.schema() == SCHEMA_NUMBER + 1, "it migrated, and the old one went on"
            tasks = {"T-0", "N-0"} | await work_beside_each_other(at)
            at.running(new)
            old.ask_to_stop()
            await at.done("T-1", "N-1")
            assert {"N-1"} < at.of_tomorrow()
            tasks |= {"T-1", "N-1"}
            await at.understood(tasks)
            theirs = at.of_tomorrow()
    assert_once(count_effects(tmp_path / "far", sorted(tasks)), len(tasks), f"of tomorrow: {theirs}")


@pytest.mark.proves("M2", "L4", "NFR-3", "O1", "E5")
async def test_a_new_version_that_is_rolled_back_leaves_the_old_one_all_but_what_only_it_can_read(
    tmp_path: Path, postgres: Postgres, database: str
) -> None:
    """The new version alone is left and dies in a step; it is called back, and comes again later to end its work."""
    with fleet(2, tmp_path, database, postgres.port) as (old, new):
        new.version = next_version(tmp_path / "tomorrow")
        async with watching(tmp_path, postgres, database) as at:
            at.running(new)
            await at.done("T-0")
            (tmp_path / "far" / "note.stop").touch()
            await open_tasks(at.journal, ["N-0"])

            async def stands_still() -> bool:
                return new.stopped

            await until(stands_still, "it did not begin the step")
            new.kill()
            assert at.of_tomorrow() == {"N-0"}
            left = at.hashes("N-0")
            at.running(old)
            await at.done("T-1", "T-2")
            await at.understood({"T-0", "T-1", "T-2", "N-0"})
            assert at.hashes("N-0") == left, "nothing is appended behind what it cannot read"
            assert at.schema() == SCHEMA_NUMBER + 1
            at.running(old, new)
            await until_joined(at.journal, 2)
            tasks = await work_beside_each_other(at) | {"T-0", "T-1", "T-2", "N-0"}
            at.running(new)
            old.ask_to_stop()
            await at.advanced("N-0")
            theirs = at.of_tomorrow()
    assert_once(count_effects(tmp_path / "far", sorted(tasks)), len(tasks), f"of tomorrow: {theirs}")
