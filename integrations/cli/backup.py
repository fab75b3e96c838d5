"""`journal backup` and `journal restore`: one complete file out, and back in as a new incarnation (F1, R87, R92)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from integrations.cli.given import given

if TYPE_CHECKING:
    from integrations.settings import Settings
    from recovery.restore import Restored


def backup(
    ctx: typer.Context,
    dest: Annotated[Path, typer.Argument(help="A file that does not exist yet.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Restore it into a scratch folder beside it and verify that.")
    ] = False,
) -> None:
    """
    Copy the journal into one complete file, also while a service runs.

    journal backup /backups/journal-2027-01-15.db --verify
    """
    import asyncio

    from integrations.cli.output import Output
    from integrations.telemetry.logs import configure_logs
    from journal.log.backup import back_up

    options = given(ctx)
    out = Output(options)
    configure_logs("error")
    head = back_up(options.database(), dest)
    if verify:
        asyncio.run(_rehearse(dest.absolute(), options.settings()))
    text = f"{head.position}:{head.hash}"
    if out.json:
        out.document({"file": str(dest), "head": text, "verified": verify, "bytes": dest.stat().st_size})
        return
    out.say(f"wrote {dest}, {dest.stat().st_size} bytes" + (", restored and verified" if verify else ""), "ok")
    out.say(f"head {text}")


async def _rehearse(dest: Path, settings: Settings) -> None:
    """A backup counts when it was restored once; the scratch folder lies where there is room for it."""
    import tempfile

    from integrations.restoring import opener
    from journal.errors import DamagedError
    from journal.log.offline import open_evidence
    from projections import all_views
    from recovery.restore import prepare, read_copy
    from recovery.verify import verify

    with tempfile.TemporaryDirectory(prefix=".journal-rehearsal-", dir=dest.parent) as folder:
        place = dest
        if settings.server is None:  # a copy of a log on a server is no journal that could begin anew
            place = Path(folder) / "journal.db"
            await prepare(dest, place, opener(settings), read_copy(dest).greatest)
        with open_evidence(place) as db:
            found = verify(db, projections=all_views(), deep=True)
    if not found.intact:
        raise DamagedError(path=str(dest), why=f"does not verify once restored: {found.violations[0].detail}")


def restore(
    ctx: typer.Context, source: Annotated[Path, typer.Argument(help="A file that `journal backup` wrote.")]
) -> None:
    """
    Put a backup in the journal's place. Refuses while a service runs; what was there is kept under another name.

    Epochs begin above every one the old file, the backup, repositories and deploy markers know. Facts are asked
    before the first decision, and what happened since the backup stops its task with an explanation.

    Where the log lies on a server, that is restored with the server's own tools first; FILE is then a host's copy that
    knows what the server lost, the one in `db` as a rule, and the new incarnation begins above what it knows.

    journal restore /backups/journal-2027-01-15.db
    """
    import asyncio

    from integrations.cli.output import Output
    from integrations.restoring import follower, opener, traces_of
    from integrations.telemetry.logs import configure_logs
    from journal.clock import SystemClock, SystemIds, this_process
    from recovery.restore import begin_again
    from recovery.restore import restore as put_back

    options = given(ctx)
    out, settings = Output(options), options.settings()
    configure_logs("error", secrets=settings.secrets)
    me = this_process(SystemIds().instance())
    do, open_log = (put_back, opener(settings)) if settings.server is None else (begin_again, follower(settings.server))
    done = asyncio.run(
        do(settings.db, source, me=me, clock=SystemClock(), open_log=open_log, traces=traces_of(settings))
    )
    if out.json:
        out.document(_data(done))
        return
    out.say(f"restored journal {done.journal_id} as of position {done.head.position}", "ok")
    out.say(f"a new incarnation has begun: the next epoch of every task is above {done.floor}")
    if done.unread:
        out.say(f"not readable, so the floor was raised to be safe: {', '.join(done.unread)}", "note")
    if done.lost and settings.server is not None:
        out.say(f"the server lost {done.lost} events; the kept file holds them", "note")
    elif done.lost:
        out.say(f"{done.lost} events were written after the backup and are not in it", "note")
    if done.kept:
        out.say(f"what was there is kept as {done.kept}")
    out.say("next: `journal recover --plan`, then `journal serve`")


def _data(done: Restored) -> dict[str, Any]:
    return {
        "journal": done.journal_id,
        "head": f"{done.head.position}:{done.head.hash}",
        "floor": done.floor,
        "lost": done.lost,
        "unread": list(done.unread),
        "kept": str(done.kept) if done.kept else None,
    }
