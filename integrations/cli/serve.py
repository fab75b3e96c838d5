"""`journal serve`: a thin door to the service."""

from __future__ import annotations

from typing import Annotated

import typer

from integrations.cli.given import given


def serve(
    ctx: typer.Context,
    host: Annotated[str | None, typer.Option("--host", help="Where to listen; 127.0.0.1 by default.")] = None,
    port: Annotated[int | None, typer.Option("--port", help="0 = any free one.", min=0, max=65535)] = None,
) -> None:
    """
    Run the service: recovery first, then API, page and worker. SIGTERM stops it; a second one is a standby.

    journal serve
    journal serve --port 8080
    """
    import asyncio

    from integrations.serve import serve as run
    from integrations.telemetry.logs import configure_logs

    settings = given(ctx).settings()
    environment = settings.environment
    configure_logs(environment.log_level, environment.log_format, settings.secrets)
    asyncio.run(run(settings, host=host, port=port))
