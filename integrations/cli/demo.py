"""`journal demo`: a thin door to the demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from integrations.cli.given import given


def demo(
    ctx: typer.Context,
    folder: Annotated[Path | None, typer.Option("--dir", help="Where to build it; a new folder by default.")] = None,
    tasks: Annotated[int | None, typer.Option("--tasks", help="How many tasks; 3 by default.", min=1, max=50)] = None,
    crash_at: Annotated[
        str | None,
        typer.Option(
            "--crash-at", help="STEP:POINT, POINT one of before-intent, after-intent, after-effect, after-outcome."
        ),
    ] = None,
    crash_all: Annotated[bool, typer.Option("--crash-all", help="Walk every crash point.")] = False,
) -> None:
    """
    Drive real tasks through real git with a real service, kill it in the middle of a merge, and count the effects.

    journal demo
    journal demo --crash-at deploy_init:after-effect
    journal demo --crash-all
    """
    from integrations.cli.output import Output
    from integrations.demo.show import demo as run

    out = Output(given(ctx))
    raise typer.Exit(
        run(out.console, folder=folder, tasks=tasks, crash_at=crash_at, crash_all=crash_all, as_json=out.json)
    )
