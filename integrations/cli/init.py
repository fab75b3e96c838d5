"""`journal init`: a commented configuration and an empty journal, where there is neither."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from integrations.cli.given import given

TEMPLATE = Path(__file__).with_name("journal.toml.template")


def init(ctx: typer.Context, folder: Annotated[Path, typer.Argument(help="Where; here by default.")] = Path()) -> None:
    """
    Write a commented journal.toml and create the database it names. Refuses to overwrite anything.

    journal init
    journal init /srv/orchestrator
    """
    import asyncio
    import os

    from integrations.cli.output import Output
    from integrations.settings import DEFAULT_FILE, load
    from integrations.telemetry.logs import configure_logs
    from integrations.wiring import build, open_journal
    from journal.errors import InvalidInputError, StoreUnavailableError

    options = given(ctx)
    out = Output(options)
    file = options.config or folder / DEFAULT_FILE
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
    configure_logs("warning", secrets=settings.secrets)

    async def create() -> tuple[str, str]:
        async with open_journal(settings, build(settings)) as journal:
            return journal.log.journal_id, (await journal.log.head())[1]

    if settings.db.exists():
        file.unlink()  # ours, of a moment ago: half an init would refuse the next one
        raise InvalidInputError(what=str(settings.db), why="is there already and stays as it is; name another place")
    journal_id, head = asyncio.run(create())
    if out.json:
        out.document({"config": str(file), "db": str(settings.db), "journal": journal_id, "head": f"1:{head}"})
        return
    out.say(f"wrote {file}")
    out.say(f"created {settings.db}, journal {journal_id}")
    out.say("next: edit the configuration, then `journal doctor` and `journal serve`")
