"""Composition: from settings to a pipeline with its adapters, and to an open journal. Nobody below imports it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from integrations.alerts.lessons import Lessons
from integrations.alerts.outbox import Sink
from integrations.alerts.telegram import Telegram
from integrations.deploy.config import SelfDeployConfig
from integrations.deploy.markers import prepare_folder
from integrations.git.heads import GitHeads
from integrations.git.mirror import Mirrors
from integrations.git.repository import Repositories
from integrations.gitea.poll import GiteaPulls
from integrations.gitea.publish import GiteaPublisher
from integrations.gitea.reports import GiteaReports
from integrations.hooks import Forges, GiteaHooks
from integrations.host.table import HostTable
from integrations.jobs.config import JobConfig
from integrations.plane.client import PlaneClient
from integrations.plane.hooks import PlaneHooks
from integrations.plane.poll import PlaneItems
from integrations.plane.publish import PlanePublisher
from integrations.sections import EdgeSection, describe
from integrations.settings import Settings, pipeline_fault
from integrations.uses import LIMITS, Context, deploy_config, gate_of, step_of
from journal import Journal
from journal.advance import Wrap
from journal.clock import SystemClock, SystemIds
from journal.errors import InvalidInputError, JournalError, PipelineError, StoreUnavailableError
from journal.events import Owner
from journal.hosts.clock import SharedClock
from journal.hosts.port import Join
from journal.hosts.pulse import Pulse
from journal.journal import Pending
from journal.locks import LockFile
from journal.log.postgres.connect import Server, connect
from journal.log.postgres.upstream import PostgresUpstream
from journal.pipeline import Edge, Pipeline
from journal.ports import Gate, StepAdapter
from projections import all_views
from recovery.outside import ForgeFacts, Hooks, Outside, Tracker


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything a journal needs besides its file."""

    pipeline: Pipeline
    steps: Mapping[str, StepAdapter]
    gates: Mapping[str, Gate]
    deploys: tuple[SelfDeployConfig, ...]  # hand-overs that the service resumes when it starts
    jobs: Mapping[str, JobConfig] = field(default_factory=dict)  # by stage
    forge: ForgeFacts | None = None
    tracker: Tracker | None = None
    outsides: Mapping[str, Outside] = field(default_factory=dict)  # by name
    hooks: Mapping[str, Hooks] = field(default_factory=dict)  # by sender


def build(settings: Settings, *, running: str | None = None) -> Parts:
    """
    Make the pipeline and its adapters.

    Args:
        settings: Checked settings.
        running: The commit this process runs; None if it is not the service and cannot tell.

    Raises:
        InvalidInputError: With file, key and remedy.
    """
    context = _context(settings, running)
    steps = {name: step_of(context, name, dict(table)) for name, table in settings.values.steps.items()}
    gates = {name: gate_of(context, name, dict(table)) for name, table in settings.values.gates.items()}
    section = settings.values.pipeline
    try:
        pipeline = Pipeline(
            section.stages,
            tuple(_edge(edge) for edge in section.edges),
            {name: definition for name, (definition, _) in steps.items()},
            frozenset(gates),
            section.on_new_head if section.on_new_head in section.stages else "",
            section.reaper_max_running_s,
            section.reaper_finalize_grace_s,
        )
    except PipelineError as error:
        raise pipeline_fault(settings, error) from error
    adapters = {name: adapter for name, (_, adapter) in steps.items()}
    jobs = {stage: _job(settings, pipeline, stage, table) for stage, table in settings.values.jobs.items()}
    forge, shown, heard = _forge_sides(context)
    outsides, hooks = _tracker_sides(context)
    deploys = _deploys(settings)
    return Parts(pipeline, adapters, gates, deploys, jobs, forge, context.items, outsides | shown, hooks | heard)


def open_journal(
    settings: Settings,
    parts: Parts,
    *,
    write: bool = True,
    address: str = "",
    wrap: Wrap | None = None,
    writer_lock: LockFile | None = None,
) -> Pending[Journal]:
    """Open the journal of the settings with every view kept, in a host's database if there is one."""
    # A command line with the built-in defaults makes no folder of markers wherever it happens to stand.
    settled = write and (settings.file is not None or bool(address))
    for config in parts.deploys if settled else ():
        try:
            prepare_folder(config.folder)
        except OSError as error:
            why = f"cannot be made: {error.strerror or error}"
            raise StoreUnavailableError(
                path=str(config.folder), why=why, remedy="let the steps' `folder` lie where this user may write"
            ) from error
    clock = SharedClock(SystemClock())
    return Journal.open(
        settings.db,
        pipeline=parts.pipeline,
        steps=parts.steps,
        gates=parts.gates,
        projections=all_views(),
        write=write,
        secrets=settings.secrets,
        address=address,
        wrap=wrap,
        writer_lock=writer_lock,
        companion=HostTable(settings.overlay) if settings.overlay else None,
        upstream=PostgresUpstream(settings.server) if settings.server and write else None,
        join=_hosts(settings.server, address, clock) if settings.server and write else None,
        clock=clock,
        takes=settings.scope.takes,
    )


def _hosts(server: Server, address: str, clock: SharedClock) -> Join:
    """How this process takes its place among those that share the log on a server."""
    plain = replace(server, standbys=0)  # a beat waits for no standby, and must not fail for want of one

    def join(me: Owner, ground: str, lost: Callable[[], None]) -> Pulse:
        return Pulse(
            lambda: connect(plain, "hosts"), me, ground, address=address,
            new_key=lambda: int(SystemIds().instance(), 16) >> 66, on_loss=lost, on_time=clock.heard,
        )  # fmt: skip

    return join


def sinks(settings: Settings) -> dict[str, Sink]:
    """
    Make what tells people of the log, by the name of its duty and cursor.

    Raises:
        InvalidInputError: A chat without a bot's token.
    """
    config, token = settings.values.integrations.alerts, settings.telegram_token
    made: dict[str, Sink] = {}
    if config.telegram_chat:
        if not token:
            where = f"{settings.file}: integrations.alerts.telegram_chat"
            why = "needs a bot's token: set ORCH_TELEGRAM_TOKEN or ORCH_TELEGRAM_TOKEN_FILE"
            raise InvalidInputError(what=where, why=why)
        made["alerts"] = Telegram(config, token)
    if config.lessons_db:
        made["lessons"] = Lessons(config, settings.path(config.lessons_db))
    return made


def running_version(settings: Settings) -> str:
    """The commit this process was started from; read once, at its start: a newer file is not what runs."""
    if settings.environment.running_version:
        return settings.environment.running_version
    file = settings.values.integrations.deploy.version_file
    if file is None:
        return ""
    try:
        return settings.path(file).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _context(settings: Settings, running: str | None) -> Context:
    paths = {name: settings.path(path) for name, path in settings.values.integrations.git.repositories.items()}
    repositories = Repositories(paths)

    async def runs() -> str | None:
        return running or None

    async def is_ancestor(old: str, new: str) -> bool | None:
        """Any repository that knows both commits may answer, a clone of the forge's too."""
        for repository in (*map(repositories, paths), *clones.made()):
            try:
                if await repository.has_commit(old) and await repository.has_commit(new):
                    return await repository.is_ancestor(old, new)
            except JournalError:
                continue
        return None

    forge, token = settings.values.integrations.gitea, settings.gitea_token
    clones = Mirrors(settings.path(forge.clones), forge.url, f"Authorization: token {token}" if token else "")
    clock, tracker = SystemClock(), settings.values.integrations.plane
    plane = PlaneClient(tracker, settings.plane_token, clock) if tracker.url else None
    items = PlaneItems(tracker, plane, clock) if plane else None
    return Context(settings, clock, repositories, runs, is_ancestor, clones, plane, items)


def _forge_sides(context: Context) -> tuple[ForgeFacts, dict[str, Outside], dict[str, Hooks]]:
    """What reads changes, what shows tasks on them, and what takes the forge's webhooks in once there is a secret."""
    local = frozenset(context.settings.values.integrations.git.repositories)
    heads, secret = GitHeads(context.repositories, local), context.settings.gitea_webhook_secret
    if not context.clones.url:
        return heads, {}, {}
    client = context.forge()
    hooks: dict[str, Hooks] = {"gitea": GiteaHooks(secret)} if secret else {}
    shown: dict[str, Outside] = {"gitea": GiteaPublisher(GiteaReports(client), local)}
    return Forges(heads, local, GiteaPulls(client, context.clones.head_of)), shown, hooks


def _tracker_sides(context: Context) -> tuple[dict[str, Outside], dict[str, Hooks]]:
    """What shows tasks in the tracker, and what takes its webhooks in once their secret is known (R72)."""
    config, secret = context.settings.values.integrations.plane, context.settings.plane_webhook_secret
    if context.plane is None or context.items is None:
        return {}, {}
    items = context.items
    hooks: dict[str, Hooks] = {"plane": PlaneHooks(config, secret, items.task_of, items.woken)} if secret else {}
    return {"plane": PlanePublisher(config, context.plane, items)}, hooks


def _edge(edge: EdgeSection) -> Edge:
    return Edge(edge.source, edge.target, edge.steps, edge.gates, edge.advance, edge.on_failure)


def _job(settings: Settings, pipeline: Pipeline, stage: str, table: dict[str, Any]) -> JobConfig:
    where = f"{settings.file or 'built-in defaults'}: jobs.{stage}"
    edge = pipeline.edge(stage)
    if edge is None or edge.advance != "job":
        why = f"no edge with `advance = \"job\"` leaves stage '{stage}'; set it, or take the table out"
        raise InvalidInputError(what=where, why=why)
    try:
        config = JobConfig.model_validate(table)
    except ValidationError as error:
        raise InvalidInputError(what=where, why=describe(error)) from error
    return config.model_copy(update={"cwd": settings.path(config.cwd) if config.cwd else settings.base})


def _deploys(settings: Settings) -> tuple[SelfDeployConfig, ...]:
    found = []
    for table in settings.values.steps.values():
        if table.get("use") == "self-deploy":
            rest = {k: v for k, v in table.items() if k not in LIMITS and k != "use"}
            found.append(deploy_config(settings, rest))
    return tuple(found)
