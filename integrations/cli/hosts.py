"""`journal hosts`: which processes share the log on a server, who of them lives, and a person's word on one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from integrations.cli.given import given


def hosts(
    ctx: typer.Context,
    dead: Annotated[
        str, typer.Option("--dead", help="Nothing of this process is left and it cannot wake up: you made sure.")
    ] = "",
    reason: Annotated[str, typer.Option("--reason", help="How you know; kept.")] = "",
) -> None:
    """
    List the processes that share the log on a PostgreSQL server, or declare one of them dead.

    A silent process is only a suspect: it may wake up. What it had begun and only a probe can find waits for it, or for
    your word that its machine is off, wiped or gone.

    journal hosts
    journal hosts --dead 3fa85f64 --reason "the machine was scrapped"
    """
    import asyncio

    from integrations.cli.output import Output
    from journal import names
    from journal.errors import InvalidInputError
    from journal.hosts.roster import PERIODS, standing
    from journal.hosts.rows import declare_dead, members

    options = given(ctx)
    out, server = Output(options), options.server()
    if server is None:
        why = "the log lies in a file, which one process drives; kernel locks say who lives"
        raise InvalidInputError(what="journal hosts", why=why)
    if dead:
        member = asyncio.run(declare_dead(server, names.shown(dead, 64), names.prose(reason, "reason")))
        if out.json:
            out.document({"instance": member.instance, "host": member.host, "declared_dead": True})
            return
        out.say(
            f"{member.instance[:12]} on {member.host} is taken for dead; what it left in doubt is settled by others"
        )
        return
    found = asyncio.run(members(server))
    told = [asdict(m) | {"standing": str(standing(m, "", PERIODS, settled=True))} for m in found]
    if out.json:
        out.document({"hosts": told})
        return
    columns = ("instance", "host", "pid", "serves at", "heard of", "is", "said")
    rows = [
        (m.instance[:12], m.host, m.pid, m.address, f"{m.silent_s:.0f} s ago", t["standing"], m.ended)
        for m, t in zip(found, told, strict=True)
    ]
    out.table(columns, rows)
