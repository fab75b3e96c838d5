"""`journal init`: a commented configuration and an empty journal, where there is neither."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from integrations.cli.given import given

if TYPE_CHECKING:
    from integrations.cli.output import Output
    from integrations.settings import Settings

TEMPLATE = Path(__file__).with_name("journal.toml.template")


def init(ctx: typer.Context, folder: Annotated[Path, typer.Argument(help="Where; here by default.")] = Path()) -> None:
    """
    Write a commented journal.toml and create the database it names. Refuses to overwrite anything.

    Where journal.toml is there already and names a PostgreSQL server, tables are made on it that it lacks, after an
    upgrade too, and the first event; the role in the DSN must own them.

    journal init
    journal init /srv/orchestrator
    """
    import os

    from integrations.cli.output import Output
    from integrations.settings import DEFAULT_FILE, load
    from journal.errors import InvalidInputError, StoreUnavailableError

    options = given(ctx)
    out = Output(options)
    file = options.config or folder / DEFAULT_FILE
    if file.is_file() and load(file, db=options.db).server is not None:
        _create(out, file, load(file, db=options.db))
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if (taken := next((p for p in (file, options.db) if p is not None and p.exists()), None)) is not None:
            raise InvalidInputError(what=str(taken), why="is there already and stays as it is; name another place")
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        with os.fdopen(fd, "w") as written:
            written.write(TEMPLATE.read_text("utf-8"))
    except OSError as error:
        raise StoreUnavailableError(path=str(file), why=f"cannot be written: {error.strerror}") from error
    settings = load(file, db=options.db)
    if settings.db.exists():
        file.unlink()  # ours, of a moment ago: half an init would refuse the next one
        raise InvalidInputError(what=str(settings.db), why="is there already and stays as it is; name another place")
    _create(out, file, settings)


def _create(out: Output, file: Path, settings: Settings) -> None:
    """The journal that the settings name: in a file, or on a server and in this host's copy of it."""
    import asyncio

    from integrations.telemetry.logs import configure_logs
    from integrations.wiring import build, open_journal

    configure_logs("warning", secrets=settings.secrets)

    async def create() -> tuple[str, tuple[int, str]]:
        async with open_journal(settings, build(settings)) as journal:
            return journal.log.journal_id, await journal.log.head()

    journal_id, (position, head) = asyncio.run(create())
    where = settings.server.shown if settings.server else str(settings.db)
    if out.json:
        out.document({"config": str(file), "db": str(settings.db), "journal": journal_id, "head": f"{position}:{head}"})
        return
    if settings.server is None:
        out.say(f"wrote {file}")
        out.say(f"created {where}, journal {journal_id}")
    else:
        out.say(f"{where} holds journal {journal_id}, {position} events, tables of this program")
    out.say("next: edit the configuration, then `journal doctor` and `journal serve`")
