"""What was given on the command line before or after the command's name, and the settings that follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import typer

    from integrations.settings import Settings
    from journal.log.postgres.connect import Server


@dataclass(slots=True)
class Given:
    """The global options."""

    config: Path | None = None
    db: Path | None = None
    json: bool = False
    color: bool = True

    def settings(self) -> Settings:
        """
        The checked settings.

        Raises:
            InvalidInputError: With file, key and remedy.
        """
        from integrations.settings import load

        return load(self.config, db=self.db)

    def database(self) -> Path:
        """
        Where the log lies, for reading; with `--db` alone nothing else needs to be right, and nothing is changed.

        A copy of a log on a server is brought up to it first.
        """
        if (server := self.server()) is not None:
            from integrations.cli.output import complain
            from integrations.following import bring_up

            bring_up(self.settings(), server, complain)
        return self.place()

    def place(self) -> Path:
        """Where the log lies in a file, whatever is there."""
        return self.db.absolute() if self.db is not None and self.config is None else self.settings().db

    def server(self) -> Server | None:
        """The server that holds the log; None = it lies in the file."""
        return None if self.db is not None and self.config is None else self.settings().server


def given(ctx: typer.Context) -> Given:
    """The global options of this call."""
    return cast("Given", ctx.find_root().obj)
