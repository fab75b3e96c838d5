"""
The door for an orchestrator that adopts the journal: `host_bridge` makes its bridge from `journal.toml` (DESIGN 9).

Everything a host needs by name is here; docs/how-to/adopt-in-your-orchestrator.md shows how it is used.
"""

from __future__ import annotations

from pathlib import Path

from integrations.host.bridge import HostBridge
from integrations.host.earlier import AsBefore, Earlier
from integrations.settings import Environment, load
from integrations.wiring import build, open_journal, running_version
from journal.errors import InvalidInputError

__all__ = ["AsBefore", "Earlier", "HostBridge", "host_bridge"]


def host_bridge(
    earlier: Earlier, *, file: Path | None = None, db: Path | None = None, environment: Environment | None = None
) -> HostBridge:
    """
    Make the bridge for a host; opens nothing and runs no statement.

    Args:
        earlier: The host's own ways, for when the switch is off.
        file: `journal.toml` with a `[host]` section; None = the one in the working folder.
        db: The host's database, if it is not the one that the section names.
        environment: The `ORCH_*` variables; read from the process by default.

    Raises:
        InvalidInputError: The configuration cannot work; with file, key and remedy.
    """
    settings = load(file, db=db, environment=environment)
    if settings.overlay is None:
        what = f"{settings.file or 'built-in defaults'}: host"
        raise InvalidInputError(what=what, why='a [host] section with at least `db = "orchestrator.db"` is needed')
    parts = build(settings, running=running_version(settings))

    return HostBridge(settings.overlay, settings.scope, earlier, lambda: open_journal(settings, parts))
