"""Composition of a restore: where this installation's effects show their epochs, and how its log is opened."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from integrations.deploy.traces import MarkerTraces
from integrations.git.mirror import Mirrors
from integrations.git.repository import Repository
from integrations.git.traces import GitTraces
from integrations.host.table import HostTable
from integrations.settings import Settings
from integrations.wiring import build
from journal.clock import SystemClock, SystemIds
from journal.log.companion import Companion
from journal.log.postgres.connect import Server
from journal.log.postgres.upstream import PostgresUpstream
from journal.log.sqlite import SqliteLog
from journal.log.upstream import Upstream
from projections import all_views
from recovery.restore import OpenLog, Traces


def traces_of(settings: Settings) -> Sequence[Traces]:
    """Every repository, every clone of the forge's, every folder of deploy markers."""
    found: list[Traces] = []
    for name, path in settings.values.integrations.git.repositories.items():
        found.append(GitTraces(f"repository {name}", Repository(settings.path(path))))
    forge, token = settings.values.integrations.gitea, settings.gitea_token
    clones = Mirrors(settings.path(forge.clones), forge.url, f"Authorization: token {token}" if token else "")
    for clone in clones.made() if forge.url else ():
        name = f"{clone.path.parent.name}/{clone.path.stem}"
        remote = f"{forge.url.rstrip('/')}/{name}.git"
        found.append(GitTraces(f"repository {name} of the forge", Repository(clone.path, header=clones.header), remote))
    found += [MarkerTraces(config.folder) for config in build(settings).deploys]
    return found


def opener(settings: Settings) -> OpenLog:
    """Opens a log for writing as the service does, so that a restored file is as the service will find it."""
    return lambda path: _open(path, companion=HostTable(settings.overlay) if settings.overlay else None)


def follower(server: Server) -> OpenLog:
    """Opens a new copy of the log on a server for writing."""
    return lambda path: _open(path, upstream=PostgresUpstream(server))


async def _open(path: Path, *, companion: Companion | None = None, upstream: Upstream | None = None) -> SqliteLog:
    return await SqliteLog.open(
        path,
        write=True,
        clock=SystemClock(),
        new_id=SystemIds().instance,
        projections=all_views(),
        companion=companion,
        upstream=upstream,
    )
