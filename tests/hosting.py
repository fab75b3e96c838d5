"""The example host in a folder of its own, with its effects beside it."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from integrations.settings import Environment
from journal.journal import Journal
from tests.example_host.adopted import CONFIGURATION, Orchestrator, adopted
from tests.example_host.scenario import ticking

ON = Environment(transition_journal_enabled=True, transition_journal_repos=("*",))
OFF = Environment(transition_journal_enabled=False)


def host_in(folder: Path, environment: Environment, **changes: str) -> Orchestrator:
    """
    The adopted host; started by whoever wants it.

    Args:
        folder: Its database and its effects lie there.
        environment: The switch and the repositories.
        changes: Texts of its `journal.toml` to be replaced, by what they are replaced with.
    """
    file = folder / "journal.toml"
    if not file.exists():
        shutil.copy(CONFIGURATION, file)
    text = file.read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    file.write_text(text)
    return adopted(folder / "orchestrator.db", ticking(), file=file, environment=environment)


@asynccontextmanager
async def running(folder: Path, environment: Environment = ON, **changes: str) -> AsyncIterator[Orchestrator]:
    """The adopted host between its start and its stop."""
    host = host_in(folder, environment, **changes)
    try:
        await host.start()
        yield host
    finally:
        await host.stop()


def journal_of(host: Orchestrator) -> Journal:
    """What its bridge has open."""
    journal = host.bridge.journal
    assert journal is not None
    return journal


def rows(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    """What the host's file says, to a connection that is nobody's."""
    with closing(sqlite3.connect(folder / "orchestrator.db")) as db:
        return db.execute(sql).fetchall()


def written(folder: Path) -> list[tuple[Any, ...]]:
    """Every event: task and kind, in order."""
    return rows(folder, "SELECT task, kind FROM journal_events ORDER BY position")


async def _one_move(folder: Path, task: str, expect: str, to: str) -> None:
    """A process of its own, for tests that kill it."""
    async with running(folder) as host:
        print(await host.bridge.advance(task, repo="acme/widgets", expect=expect, to=to, actor="worker"))


if __name__ == "__main__":
    asyncio.run(_one_move(Path(sys.argv[1]), *sys.argv[2:]))
