"""
What every test may ask for: how much to do (`counts`), tools that pip cannot bring (`need_tool`), a PostgreSQL.

`LONG` says how much: unset for the default suite, `ci` for a slice of half an hour, `full` for as long as it takes.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.doubles.postgres import Postgres


# CI has room for more than once over; it is raised when a larger slice has been seen to end well on two cores.
MULTIPLIERS = {"": 1, "ci": 1, "full": 200}
LONG = os.environ.get("LONG", "")


def pytest_configure() -> None:
    """Refuse a LONG nobody defined, let processes keep what they compile, tell Hypothesis how much to try."""
    if LONG not in MULTIPLIERS:
        raise pytest.UsageError(f"LONG is '{LONG}'; use LONG=ci or LONG=full, or leave it unset")
    # Hundreds of processes are started here; each would compile the four packages anew, a second of a service's start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    settings.register_profile(
        "long" if LONG else "default",
        max_examples=50 * MULTIPLIERS[LONG],
        deadline=None,  # a slow machine is no bug of ours
        print_blob=True,
        derandomize=LONG != "full",  # CI gives the same answer twice; the full run looks for new ones
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    settings.load_profile("long" if LONG else "default")


@dataclass(frozen=True, slots=True)
class Counts:
    """How often to repeat: by number, never by time, so that a failure can be repeated."""

    factor: int
    long: str = ""

    def of(self, default: int, *, ci: int = 0, most: int = 1_000_000) -> int:
        """Scale a count chosen for the default suite; `most` bounds it, `ci` says how often CI's slice has room for."""
        if ci and self.long == "ci":
            return ci
        return min(default * self.factor, most)


@pytest.fixture(scope="session")
def counts() -> Counts:
    """How much this run is asked to do: `counts.of(20)` is 20 by default and with LONG=ci, 4000 with LONG=full."""
    return Counts(MULTIPLIERS[LONG], LONG)


def missing(what: str) -> NoReturn:
    """End a test that lacks something pip cannot bring: failed where CI is set, else skipped with one line."""
    message = f"{what} is missing; the test did not run"
    if os.environ.get("CI"):
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def need_tool(*names: str) -> Path:
    """Find the first of these programs on PATH, or end the test as `missing` says."""
    for tool in names:
        if found := shutil.which(tool):
            return Path(found)
    missing(" or ".join(names))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what grows with LONG, so that `make test-long` needs no list of its own."""
    for item in items:
        by_example = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
        if by_example or "counts" in getattr(item, "fixturenames", ()):
            item.add_marker("scales")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server for the whole session: take `database` unless a test looks at the server itself."""
    from tests.doubles.postgres import new_server

    with new_server() as server:
        yield server


@pytest.fixture
def database(postgres: Postgres) -> Iterator[str]:
    """The DSN of a fresh database on the session's server, dropped afterwards whoever is still connected."""
    name = f"t{uuid.uuid4().hex}"
    postgres.sql(f"CREATE DATABASE {name}")
    yield postgres.dsn(name)
    postgres.sql(f"DROP DATABASE {name} WITH (FORCE)")
