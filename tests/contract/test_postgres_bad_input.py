"""A server that cannot be relied upon is refused before anything rests on it, and each refusal says what to change."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from journal.errors import StoreUnavailableError
from journal.log.postgres.connect import Server, connect
from journal.log.postgres.upstream import PostgresUpstream
from tests.doubles.postgres import Postgres, free_port, new_server
from tests.doubles.wire import wire


async def refusal(dsn: str, *, standbys: int = 0) -> str:
    """What is said about a server; it must be refused."""
    with pytest.raises(StoreUnavailableError) as caught:
        await connect(Server(dsn, standbys, timeout_s=5), "test")
    return str(caught.value)


@pytest.fixture
def role(postgres: Postgres) -> Iterator[str]:
    postgres.sql("CREATE ROLE service LOGIN PASSWORD 'pass-word-1'")
    yield "service"
    postgres.sql("DROP ROLE service")


@pytest.mark.proves("M4")
async def test_a_dsn_that_is_wrong_says_what_is_wrong_and_never_its_password(postgres: Postgres, database: str) -> None:
    secret = database.replace("owner@", "owner:geheim-1@")
    assert "no DSN" in await refusal("host=here")
    assert "has no such database" in await refusal(secret.rpartition("/")[0] + "/nowhere")
    assert "cannot be reached" in await refusal(secret.replace(str(postgres.port), str(free_port())))
    stranger = await refusal(secret.replace("owner", "nobody-knows-me"))
    assert "lets this role not in" in stranger and "pg_hba.conf" in stranger
    for dsn in (secret.replace("owner", "nobody-knows-me"), "postgresql://u:geheim-1@[::1/x", secret + "?x"):
        assert "geheim-1" not in await refusal(dsn)
        assert "geheim-1" not in repr(Server(dsn))


@pytest.mark.proves("M4", "S4")
@pytest.mark.parametrize("value", ["off", "local", "remote_write"])
async def test_commits_that_can_be_lost_are_refused_however_they_were_configured(
    postgres: Postgres, role: str, database: str, value: str
) -> None:
    name = database.rpartition("/")[2]
    postgres.sql(f"ALTER ROLE {role} IN DATABASE {name} SET synchronous_commit = {value}")
    said = await refusal(postgres.dsn(name, role))
    assert f"synchronous_commit={value}" in said and "ALTER ROLE" in said


@pytest.mark.proves("M4", "S4")
async def test_a_server_that_does_not_flush_is_refused() -> None:
    with new_server(fsync="off") as server:
        assert "fsync=on" in await refusal(server.dsn())


@pytest.mark.proves("M4", "V8")
async def test_an_asynchronous_standby_is_no_guarantee_and_a_standby_takes_no_writes(postgres: Postgres) -> None:
    assert "synchronous_standby_names" in await refusal(postgres.dsn(), standbys=1)
    with new_server(lambda copy: copy.copy_from(postgres)) as standby:
        assert "0 synchronous standbys" in await refusal(postgres.dsn(), standbys=1)
        assert "is a standby" in await refusal(standby.dsn())


@pytest.mark.proves("M4")
async def test_a_pooler_is_refused_since_sessions_are_handed_around_behind_it(
    postgres: Postgres, database: str
) -> None:
    name = database.rpartition("/")[2]
    async with wire(postgres.port, pooled=True) as pooler:
        assert "pooler" in await refusal(f"postgresql://owner@127.0.0.1:{pooler.port}/{name}")
    async with wire(postgres.port) as line:
        db = await connect(Server(f"postgresql://owner@127.0.0.1:{line.port}/{name}"), "test")
        await db.close()


@pytest.mark.proves("M4")
async def test_a_role_that_may_make_no_tables_is_told_who_must(postgres: Postgres, role: str, database: str) -> None:
    upstream = PostgresUpstream(Server(postgres.dsn(database.rpartition("/")[2], role)))
    try:
        with pytest.raises(StoreUnavailableError, match="journal init"):
            upstream.open()
    finally:
        upstream.close()


@pytest.mark.proves("M4")
async def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "asyncpg":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    assert "transition-journal[postgres]" in await refusal("postgresql://here/there")


@pytest.mark.proves("M4")
async def test_who_hangs_in_a_transaction_is_ended_by_the_server_and_holds_nobody_up(database: str) -> None:
    db = await connect(Server(database), "test")
    assert await db.fetchval("SHOW idle_in_transaction_session_timeout") == "10s"
    assert await db.fetchval("SHOW lock_timeout") == "10s"
    assert isinstance(db, asyncpg.Connection)
    await db.close()
