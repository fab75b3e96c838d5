"""The tables of `journal.toml` with their defaults, and how a fault in them is worded (CONTRACT "Configuration")."""

from __future__ import annotations

import difflib
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from integrations.alerts.config import AlertsConfig
from integrations.host.config import HostConfig
from integrations.plane.config import PlaneConfig


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class JournalSection(_Section):
    """`[journal]`: where the log lies."""

    db: Path = Path("journal.db")
    engine: Literal["sqlite", "postgres"] = "sqlite"
    dsn: str = Field(
        default="", repr=False
    )  # of the engine postgres; ORCH_DSN or ORCH_DSN_FILE where it holds a password
    standbys: int = Field(default=0, ge=0, le=16)  # synchronous standbys without which nothing is written


class ServeSection(_Section):
    """`[serve]`: where the service listens, and how much it drives at once."""

    host: str = "127.0.0.1"
    port: int = Field(default=8425, ge=0, le=65535)
    parallel: int = Field(default=8, ge=1, le=256)
    jobs: int = Field(default=4, ge=1, le=256)  # commands of `[jobs.STAGE]` running at once
    poll_s: float = Field(default=60, ge=1, le=86400)  # between two polls of forge and tracker
    standby_kills_after_s: float = Field(default=0, ge=0, le=86400)  # a silent writer; 0 = never

    @field_validator("standby_kills_after_s")
    @classmethod
    def _many_beats(cls, value: float) -> float:
        if 0 < value < 10:
            why = "a writer beats every second and is not hung before many are missing; use 10 or more, or 0 for never"
            raise ValueError(why)
        return value


class EdgeSection(_Section):
    """One entry of `[[pipeline.edges]]`."""

    source: str = Field(alias="from")
    target: str = Field(alias="to")
    advance: Literal["auto", "job", "manual"] = "manual"
    steps: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    on_failure: str = ""


DEFAULT_STAGES = (
    "analysis",
    "architecture",
    "development",
    "review",
    "testing",
    "deploy-staging",
    "deploy",
    "done",
)
"""The owner's pipeline (REQUIREMENTS "Where the problem comes from")."""


def _default_edges() -> tuple[EdgeSection, ...]:
    pairs = pairwise(DEFAULT_STAGES)
    extra: dict[str, dict[str, Any]] = {
        "deploy-staging": {"steps": ("merge_pr", "ratchet", "rebuild"), "gates": ("coverage",), "on_failure": "review"},
        "deploy": {"steps": ("merge_verified", "deploy_init", "deploy_verified")},
    }
    return tuple(EdgeSection(source=a, target=b, **extra.get(a, {})) for a, b in pairs)


class PipelineSection(_Section):
    """`[pipeline]`: stages, edges and the budget of a whole run."""

    stages: tuple[str, ...] = DEFAULT_STAGES
    edges: tuple[EdgeSection, ...] = Field(default_factory=_default_edges)
    on_new_head: str = "review"
    reaper_max_running_s: int = Field(default=5400, ge=1)
    reaper_finalize_grace_s: int = Field(default=600, ge=0)


class GitSection(_Section):
    """`[integrations.git]`: the bare repositories that embedded steps work on."""

    repositories: dict[str, Path] = Field(default_factory=dict)


class DeploySection(_Section):
    """`[integrations.deploy]`: where the running commit is read; "" = this process was told by ORCH_RUNNING_VERSION."""

    version_file: Path | None = None


class GiteaSection(_Section):
    """`[integrations.gitea]`: the forge; its token comes from ORCH_GITEA_TOKEN or the file ORCH_GITEA_TOKEN_FILE."""

    url: str = Field(default="", pattern=r"^(https?://[^\s/?#@]+(/[^\s?#@]*)?)?$")  # ROOT_URL; no account in it
    clones: Path = Path("clones")  # where its repositories are cloned, to ask git what landed


class IntegrationsSection(_Section):
    """`[integrations]`."""

    git: GitSection = GitSection()
    gitea: GiteaSection = GiteaSection()
    plane: PlaneConfig = PlaneConfig()
    alerts: AlertsConfig = AlertsConfig()
    deploy: DeploySection = DeploySection()


Tables = dict[str, dict[str, Any]]
"""`[steps.NAME]` and `[gates.NAME]`: `use`, limits, and what the adapter named by `use` wants."""


def _default_steps() -> Tables:
    return {
        "merge_pr": {"use": "git-merge", "budget_s": 300},
        "ratchet": {"use": "ratchet", "budget_s": 60},
        "rebuild": {
            "use": "command",
            "budget_s": 1800,
            "guard": "repeatable",
            "irreversible": False,
            "apply": ["./build", "{landed}"],
            "probe": ["./built", "{landed}"],
        },
        "merge_verified": {"use": "git-merge-verified", "budget_s": 0},
        "deploy_init": {
            "use": "self-deploy",
            "budget_s": 300,
            "folder": "deploys",
            "command": ["./deploy", "{target}"],
        },
        "deploy_verified": {"use": "deploy-verified", "budget_s": 2000, "folder": "deploys"},
    }


class FileSettings(_Section):
    """The whole of `journal.toml`."""

    journal: JournalSection = JournalSection()
    serve: ServeSection = ServeSection()
    pipeline: PipelineSection = Field(default_factory=PipelineSection)
    steps: Tables = Field(default_factory=_default_steps)
    gates: Tables = Field(default_factory=lambda: {"coverage": {"use": "coverage"}})
    jobs: Tables = Field(default_factory=dict)
    host: HostConfig | None = None  # an orchestrator whose database the journal lives in; None = it stands alone
    integrations: IntegrationsSection = IntegrationsSection()


def describe(error: ValidationError) -> str:
    """Every fault of a validation in one line: key, what is wrong, and the nearest known key for an unknown one."""
    faults = []
    for fault in error.errors():
        where = ".".join(str(part) for part in fault["loc"]) or "top level"
        if fault["type"] == "extra_forbidden":
            faults.append(f"{where}: unknown key{_nearest(str(fault['loc'][-1]))}")
        else:
            faults.append(f"{where}: {fault['msg']}")
    return "; ".join(faults)


def _nearest(key: str) -> str:
    known = {
        name
        for model in (FileSettings, JournalSection, ServeSection, PipelineSection, EdgeSection, IntegrationsSection)
        for name, field in model.model_fields.items()
        for name in ((field.alias or name),)
    }
    close = difflib.get_close_matches(key, sorted(known), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""
