"""
Connections to the server: opened, then looked at before anything rests on them (DESIGN 10, M4).

A server that would answer a commit before it is durable, a standby, and a pooler that hands sessions from one client to
the next are each refused here, with what to change. The driver is the extra `postgres`, and imported only here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from journal.errors import JournalError, StoreUnavailableError

SAFE_COMMITS = frozenset({"on", "remote_apply"})
"""Values of `synchronous_commit` with which a COMMIT that was answered is on disk, on the standbys too."""

IDLE_IN_TRANSACTION_MS = 10_000
"""A host that stands still inside an append must not hold the counter for everybody; the server ends its session."""

LOCK_TIMEOUT_MS = 10_000
"""How long an append waits for the counter; then it is refused, and known not to be written."""

_OLDEST = 140000  # server_version_num of 14.0: older ones are out of their support


@dataclass(frozen=True, slots=True)
class Server:
    """Where the log is and what is asked of it."""

    dsn: str = field(repr=False)  # may hold a password
    standbys: int = 0  # synchronous standbys without which nothing is written; 0 = the primary's disk is the guarantee
    timeout_s: float = 10.0  # for connecting and for one statement

    @property
    def shown(self) -> str:
        """The DSN without its password, for messages."""
        try:
            parts = urlsplit(self.dsn)
        except ValueError:
            return "the server in `dsn`"
        user, _, hosts = parts.netloc.rpartition("@")
        user = user.partition(":")[0]
        return urlunsplit((parts.scheme, f"{user}@{hosts}" if user else hosts, parts.path, "", ""))

    @property
    def password(self) -> str:
        """The password in the DSN; "" = none."""
        try:
            return unquote(urlsplit(self.dsn).password or "")
        except ValueError:
            return ""


def driver(server: Server) -> ModuleType:
    """
    The driver's module.

    Raises:
        StoreUnavailableError: It is not installed.
    """
    try:
        import asyncpg
    except ImportError as error:
        raise StoreUnavailableError(
            path=server.shown,
            why="the driver for PostgreSQL is not installed",
            remedy="install the package with its extra: transition-journal[postgres]",
        ) from error
    module: ModuleType = asyncpg
    return module


def failures(server: Server) -> tuple[type[Exception], ...]:
    """What the driver raises when the server refuses or cannot be asked."""
    asyncpg = driver(server)
    # TimeoutError is an OSError. The driver calls it an internal error when a server dies in the middle of an answer.
    return (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, EOFError)


async def connect(server: Server, name: str, **settings: str) -> Any:
    """
    Open a connection of the caller's own and check what it rests on.

    Args:
        server: Where to.
        name: What the connection is for, as the server shows it (`application_name`).
        settings: Further parameters of the session.

    Raises:
        StoreUnavailableError: Why it cannot be used, and what to change.
    """
    asyncpg = driver(server)
    if not server.dsn.startswith(("postgresql://", "postgres://")):
        raise _refused(server, "is no DSN", "write postgresql://ROLE@HOST:PORT/DATABASE")
    session = {
        "application_name": f"journal {name}",
        "idle_in_transaction_session_timeout": str(IDLE_IN_TRANSACTION_MS),
        "lock_timeout": str(LOCK_TIMEOUT_MS),
        **settings,
    }
    try:
        db = await asyncpg.connect(
            server.dsn, timeout=server.timeout_s, command_timeout=server.timeout_s, server_settings=session,
            target_session_attrs="read-write" if "," in server.dsn else "any",  # of several hosts, the primary
        )  # fmt: skip
    except Exception as error:
        raise unavailable(server, error) from error
    try:
        await check(db, server)
    except BaseException as error:
        db.terminate()
        if isinstance(error, JournalError) or not isinstance(error, Exception):
            raise
        raise unavailable(server, error) from error
    return db


async def check(db: Any, server: Server) -> None:
    """
    Look at what a session rests on: a direct connection to a primary whose commits are durable.

    Raises:
        StoreUnavailableError: What is wrong, and what to change.
    """
    row = await db.fetchrow(
        "SELECT pg_backend_pid(), pg_is_in_recovery(), current_setting('synchronous_commit'), "
        "current_setting('fsync'), current_setting('server_version_num')::int"
    )
    pid, standby, commit, fsync, version = row
    if pid != db.get_server_pid():
        raise _refused(
            server,
            "a connection pooler stands before it, and session locks break when sessions are handed around",
            "name the server itself in `dsn`; each service holds a handful of connections",
        )
    if version < _OLDEST:
        raise _refused(server, f"is version {version // 10000}", "use PostgreSQL 14 or newer")
    if standby:
        raise _refused(server, "is a standby and takes no writes", "name the primary, or all hosts, in `dsn`")
    if fsync != "on":
        raise _refused(server, "runs with fsync=off, so a crash can damage it", "set fsync=on and restart it")
    if commit not in SAFE_COMMITS:
        raise _refused(
            server,
            f"answers commits before they are durable (synchronous_commit={commit})",
            "set synchronous_commit=on for this role: ALTER ROLE ... SET synchronous_commit = on",
        )
    if server.standbys:
        await _check_standbys(db, server)


async def _check_standbys(db: Any, server: Server) -> None:
    """An asynchronous standby guarantees nothing: the last commits are not on it when it is promoted."""
    names = await db.fetchval("SELECT current_setting('synchronous_standby_names')")
    synchronous = await db.fetchval("SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')")
    if not names.strip() or synchronous < server.standbys:
        raise _refused(
            server,
            f"has {synchronous} synchronous standbys where [journal] standbys = {server.standbys} asks for more "
            f"(synchronous_standby_names='{names}')",
            f"set synchronous_standby_names = 'ANY {server.standbys} (NAMES)' on the primary and start the standbys",
        )


def _refused(server: Server, why: str, remedy: str) -> StoreUnavailableError:
    return StoreUnavailableError(path=server.shown, why=why, remedy=remedy)


def unavailable(server: Server, error: Exception) -> StoreUnavailableError:
    """An error of the driver as one of ours, in words that say what to do."""
    asyncpg = driver(server)
    match error:
        case ValueError():  # its text quotes the DSN, the password too
            why, remedy = "is no DSN that the driver can read", "write postgresql://ROLE@HOST:PORT/DATABASE"
        case asyncpg.InvalidPasswordError() | asyncpg.InvalidAuthorizationSpecificationError():
            why, remedy = f"lets this role not in ({error})", "check the role and password in `dsn`, and pg_hba.conf"
        case asyncpg.InvalidCatalogNameError():
            why, remedy = "has no such database", "create it, or mend `dsn`"
        case asyncpg.InsufficientPrivilegeError():
            why, remedy = f"refuses ({error})", "grant what docs/how-to/postgresql.md lists to this role"
        case asyncpg.ReadOnlySQLTransactionError():
            why, remedy = "takes no writes: it is a standby", "name the primary, or all hosts, in `dsn`"
        case asyncpg.TooManyConnectionsError():
            why, remedy = "has no connection left", "raise max_connections, or run fewer services"
        case asyncpg.LockNotAvailableError():
            why, remedy = f"waited {LOCK_TIMEOUT_MS // 1000} s for another host's append", "look for who hangs"
        case asyncpg.CannotConnectNowError():
            why, remedy = f"is starting or stopping ({error})", "wait, or look at its log"
        case TimeoutError():
            why, remedy = f"did not answer within {server.timeout_s:g} s", "check that it runs and can be reached"
        case OSError() | asyncpg.InterfaceError() | asyncpg.PostgresConnectionError():
            why, remedy = f"cannot be reached ({error})", "check `dsn`, and that the server runs"
        case asyncpg.PostgresError():
            why, remedy = f"refused: {error}", "look at the server's log"
        case _:
            why, remedy = f"failed: {type(error).__name__}", "check `dsn`"
    return StoreUnavailableError(path=server.shown, why=why, remedy=remedy)
