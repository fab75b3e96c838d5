"""The rows of the processes on the server, for whoever looks from outside: who there is, and a person's word on one."""

from __future__ import annotations

from collections.abc import Sequence

from journal.errors import InvalidInputError
from journal.hosts.roster import PERIODS, Member, standing
from journal.log.postgres.connect import Server, connect
from journal.words import Standing

MEMBERS = """
SELECT instance, host, pid, ground, address, extract(epoch FROM clock_timestamp() - beat_at)::float8 AS silent_s, ended,
    session IN (
        SELECT (classid::int8 << 32) | objid::int8 FROM pg_locks
        WHERE locktype = 'advisory' AND granted AND objsubid = 1
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    ) AS session
FROM journal_instances
"""

_LISTED = "WHERE ended = '' OR beat_at > clock_timestamp() - interval '1 day' ORDER BY beat_at DESC"
_DECLARE = "UPDATE journal_instances SET ended = $2 WHERE instance = $1 AND ended = ''"


async def members(server: Server) -> Sequence[Member]:
    """
    The processes that share the log, ended ones of the last day too; whoever was heard of last comes first.

    Raises:
        StoreUnavailableError: The server cannot be asked.
    """
    db = await connect(server, "hosts")
    try:
        return [Member(**row) for row in await db.fetch(MEMBERS + _LISTED)]
    finally:
        await db.close()


async def declare_dead(server: Server, instance: str, reason: str) -> Member:
    """
    Take a person's word for it that nothing of a process is left: others settle what it had in doubt from now on.

    It is a fence as well: a process that was declared dead finds its row closed, and never gets a lease again.

    Args:
        server: Where the log is.
        instance: Its id, or enough of its beginning.
        reason: How the person knows.

    Raises:
        InvalidInputError: Nobody is called that, or several are, or it was heard of a moment ago.
        StoreUnavailableError: The server cannot be asked.
    """
    found = [m for m in await members(server) if m.instance.startswith(instance)]
    if len(found) != 1 or not instance:
        why = "begins the id of no process" if not found else f"begins the ids of {len(found)} processes"
        raise InvalidInputError(what=f"instance '{instance}'", why=f"{why}; `journal hosts` lists them")
    member = found[0]
    if not member.ended and standing(member, "", PERIODS, settled=True) is Standing.ALIVE:
        why = f"was heard of {max(0, member.silent_s):.0f} s ago; end it on {member.host} (pid {member.pid}) first"
        raise InvalidInputError(what=f"instance {member.instance[:12]}", why=why)
    db = await connect(server, "hosts")
    try:
        await db.execute(_DECLARE, member.instance, f"declared dead: {reason}")
    finally:
        await db.close()
    return member
