"""What the word `use` may say in `[steps.NAME]` and `[gates.NAME]`, and the adapter that is made for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from integrations.command import CommandConfig, CommandStep
from integrations.coverage.gate import CoverageGate, CoverageGateConfig
from integrations.coverage.ratchet import Ratchet, RatchetConfig
from integrations.deploy.config import DeployVerifiedConfig, SelfDeployConfig
from integrations.deploy.container import (
    ContainerDeployConfig,
    ContainerHost,
    ContainerRecords,
    ContainerVerifiedConfig,
)
from integrations.deploy.handover import HandOver, HandOverVerified
from integrations.deploy.initiate import SelfDeploy
from integrations.deploy.unit import UnitDeployConfig, UnitHost, UnitRecords, UnitVerifiedConfig
from integrations.deploy.verified import DeployVerified
from integrations.git.fresh import FreshGate, FreshStep
from integrations.git.merge import GitMerge, GitMergeConfig
from integrations.git.mirror import Mirrors
from integrations.git.repository import Repositories, Repository
from integrations.git.tree import Trees
from integrations.git.verified import MergeVerified, MergeVerifiedConfig
from integrations.gitea.branch import GiteaDeleteBranch, GiteaDeleteBranchConfig
from integrations.gitea.client import GiteaClient
from integrations.gitea.gates import GiteaApprovedConfig, GiteaApprovedGate, GiteaChecksConfig, GiteaChecksGate
from integrations.gitea.merge import GiteaMerge, GiteaMergeConfig
from integrations.image.config import ImageConfig
from integrations.image.engine import Engine
from integrations.image.step import ImageStep
from integrations.plane.client import PlaneClient
from integrations.plane.gate import PlaneGate, PlaneGateConfig
from integrations.plane.poll import PlaneItems
from integrations.sections import describe
from integrations.settings import Settings, pipeline_fault
from journal.errors import InvalidInputError, PipelineError
from journal.pipeline import StepDefinition
from journal.plan import StepPlan
from journal.ports import Clock, Gate, StepAdapter

LIMITS = {
    "budget_s": ("budget_ms", 1000),
    "retry_s": ("retry_ms", 1000),
    "deadline_s": ("deadline_ms", 1000),
    "attempts": ("attempts", 1),
    "waits": ("waits", 1),
    "looks": ("looks", 1),
}
"""Keys of `[steps.NAME]` that limit a step: the field of its plan, and units of that field in one of the key's."""


@dataclass(frozen=True, slots=True)
class Context:
    """What adapters are made from."""

    settings: Settings
    clock: Clock
    repositories: Repositories
    running: Callable[[], Awaitable[str | None]]
    is_ancestor: Callable[[str, str], Awaitable[bool | None]]
    clones: Mirrors  # of the forge's repositories; one for all, since fetches into a clone take turns
    plane: PlaneClient | None = None  # one for all, since it counts what the key may ask in a minute
    items: PlaneItems | None = None

    def tracked(self) -> PlaneItems:
        """The work items of the tracker."""
        if self.items is None:
            where = f"{self.settings.file or 'built-in defaults'}: integrations.plane.url"
            raise InvalidInputError(what=where, why="a gate needs the tracker; set it to the address of Plane")
        return self.items

    def forge(self) -> GiteaClient:
        """The forge of the settings."""
        return GiteaClient(self._forge_url(), self.settings.gitea_token)

    def mirrors(self) -> Mirrors:
        """The clones of the forge's repositories."""
        self._forge_url()
        return self.clones

    def _forge_url(self) -> str:
        if not (url := self.settings.values.integrations.gitea.url):
            where = f"{self.settings.file or 'built-in defaults'}: integrations.gitea.url"
            raise InvalidInputError(what=where, why="a step or gate needs the forge; set it to the forge's ROOT_URL")
        return url


def _command(context: Context, name: str, table: dict[str, Any]) -> StepAdapter:
    config = CommandConfig.model_validate(table)
    cwd = context.settings.path(config.cwd) if config.cwd else context.settings.base
    return CommandStep(name, config.model_copy(update={"cwd": cwd}), context.clock)


def _self_deploy(context: Context, name: str, table: dict[str, Any]) -> StepAdapter:
    config = deploy_config(context.settings, table)
    return SelfDeploy(config, context.clock, context.running, context.is_ancestor)


def deploy_config(settings: Settings, table: dict[str, Any]) -> SelfDeployConfig:
    """The table of a `self-deploy`, its paths made whole."""
    config = SelfDeployConfig.model_validate(table)
    cwd = settings.path(config.cwd) if config.cwd else settings.base
    return config.model_copy(update={"folder": settings.path(config.folder), "cwd": cwd})


def _deploy_verified(context: Context, name: str, table: dict[str, Any]) -> StepAdapter:
    config = DeployVerifiedConfig.model_validate(table)
    config = config.model_copy(update={"folder": context.settings.path(config.folder)})
    return DeployVerified(config, context.running, context.is_ancestor)


def _container_deploy(context: Context, name: str, table: dict[str, Any]) -> StepAdapter:
    config = ContainerDeployConfig.model_validate(table)
    host = ContainerHost(config, Engine(config.program))
    return HandOver(config, host, context.clock, context.running, context.is_ancestor)


def _container_verified(context: Context, name: str, table: dict[str, Any]) -> StepAdapter:
    config = ContainerVerifiedConfig.model_validate(table)
    return HandOverVerified(config, ContainerRecords(Engine(config.program)), context.running, context.is_ancestor)


def _unit_deploy(context: Context, name: str, table: dict[str, Any]) -> StepAdapter:
    config = UnitDeployConfig.model_validate(table)
    config = config.model_copy(
        update={"cwd": context.settings.path(config.cwd) if config.cwd else context.settings.base}
    )
    return HandOver(config, UnitHost(config), context.clock, context.running, context.is_ancestor)


def _unit_verified(context: Context, name: str, table: dict[str, Any]) -> StepAdapter:
    config = UnitVerifiedConfig.model_validate(table)
    return HandOverVerified(config, UnitRecords(config), context.running, context.is_ancestor)


def _image(context: Context, repositories: Callable[[str], Repository], table: dict[str, Any]) -> StepAdapter:
    config = ImageConfig.model_validate(table)
    return ImageStep(config, Engine(config.program), Trees(repositories), context.is_ancestor)


STEPS: dict[str, Callable[[Context, str, dict[str, Any]], StepAdapter]] = {
    "git-merge": lambda c, _, t: GitMerge(GitMergeConfig.model_validate(t), c.repositories),
    "git-merge-verified": lambda c, _, t: MergeVerified(MergeVerifiedConfig.model_validate(t), c.repositories),
    "gitea-merge": lambda c, _, t: GiteaMerge(GiteaMergeConfig.model_validate(t), c.forge(), c.mirrors(), c.clock),
    "gitea-merge-verified": lambda c, _, t: FreshStep(
        lambda clones: MergeVerified(MergeVerifiedConfig.model_validate(t), clones), c.mirrors()
    ),
    "gitea-delete-branch": lambda c, _, t: GiteaDeleteBranch(
        GiteaDeleteBranchConfig.model_validate(t), c.forge(), c.mirrors()
    ),
    "ratchet": lambda c, _, t: Ratchet(RatchetConfig.model_validate(t), c.repositories),
    "gitea-ratchet": lambda c, _, t: FreshStep(
        lambda clones: Ratchet(RatchetConfig.model_validate(t), clones), c.mirrors()
    ),
    "command": _command,
    "image": lambda c, _, t: _image(c, c.repositories, t),
    "gitea-image": lambda c, _, t: FreshStep(lambda clones: _image(c, clones, t), c.mirrors()),
    "self-deploy": _self_deploy,
    "deploy-verified": _deploy_verified,
    "container-deploy": _container_deploy,
    "container-verified": _container_verified,
    "unit-deploy": _unit_deploy,
    "unit-verified": _unit_verified,
}
"""What `use` may say in `[steps.NAME]`."""

GATES: dict[str, Callable[[Context, str, dict[str, Any]], Gate]] = {
    "coverage": lambda c, _, t: CoverageGate(CoverageGateConfig.model_validate(t), c.repositories),
    "gitea-coverage": lambda c, _, t: FreshGate(
        lambda clones: CoverageGate(CoverageGateConfig.model_validate(t), clones), c.mirrors()
    ),
    "plane-state": lambda c, _, t: PlaneGate(PlaneGateConfig.model_validate(t), c.tracked()),
    "gitea-checks": lambda c, _, t: GiteaChecksGate(GiteaChecksConfig.model_validate(t), c.forge(), c.mirrors()),
    "gitea-approved": lambda c, _, t: GiteaApprovedGate(GiteaApprovedConfig.model_validate(t), c.forge(), c.mirrors()),
}
"""What `use` may say in `[gates.NAME]`."""


def step_of(context: Context, name: str, table: dict[str, Any]) -> tuple[StepDefinition, StepAdapter]:
    """The step that a table describes, its limits taken out of the table first."""
    where = f"{context.settings.file or 'built-in defaults'}: steps.{name}"
    use = table.pop("use", None)
    limits = {key: _limit(where, key, table.pop(key)) for key in LIMITS if key in table}
    adapter = _made(where, use, STEPS, context, table)
    traits = adapter.traits
    fields = {LIMITS[key][0]: round(value * LIMITS[key][1]) for key, value in limits.items()}
    if "deadline_ms" not in fields and fields.get("budget_ms"):
        fields["deadline_ms"] = fields["budget_ms"]
    plan = StepPlan(name, traits.guard, traits.irreversible, traits.adopts, traits.ends_owner, **fields)
    return StepDefinition(plan, traits.lane, table.get("policy") == "at-most-once"), adapter


def gate_of(context: Context, name: str, table: dict[str, Any]) -> Gate:
    """The gate that a table describes."""
    where = f"{context.settings.file or 'built-in defaults'}: gates.{name}"
    return _made(where, table.pop("use", None), GATES, context, table)


A = TypeVar("A")


def _made(
    where: str,
    use: object,
    known: Mapping[str, Callable[[Context, str, dict[str, Any]], A]],
    context: Context,
    table: dict[str, Any],
) -> A:
    maker = known.get(use) if isinstance(use, str) else None
    if maker is None:
        raise InvalidInputError(what=f"{where}.use", why=f"'{use}' is unknown; known: {', '.join(sorted(known))}")
    try:
        return maker(context, where.rpartition(".")[2], table)
    except ValidationError as error:
        raise InvalidInputError(what=where, why=describe(error)) from error
    except PipelineError as error:
        raise pipeline_fault(context.settings, error) from error


def _limit(where: str, key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 10_000_000:
        raise InvalidInputError(what=f"{where}.{key}", why=f"{value!r} is not a number between 0 and 10000000")
    return value
