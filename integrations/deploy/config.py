"""What the two steps of a self-deploy may be told (`[steps.NAME]`, `[integrations.deploy]`)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")]


class SelfDeployConfig(BaseModel):
    """
    `use = "self-deploy"`: hand the deploy over to a process that outlives us.

    Placeholders in the command's arguments: {target} {digest} {key} {environment}; the same, with fence and journal,
    in TRANSITION_TARGET, TRANSITION_DIGEST, TRANSITION_KEY and so on.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: Path
    command: tuple[str, ...] = Field(min_length=1)
    environment: _Name = "production"
    cwd: Path | None = None
    env: tuple[str, ...] = ()  # names of our environment that the command needs, beside PATH, HOME and the like
    command_budget_s: float = Field(default=1800, gt=0)
    idempotent: bool = True  # the command may run again for a key whose deployer died under it
    # "agent": something on the host runs the deployer (a systemd path unit, say). Needed where a stop of the service
    # ends every process it started: inside a systemd service or a container no session of its own helps.
    starts: Literal["process", "agent"] = "process"
    merge_step: _Name = "merge_pr"  # its `landed` is the target
    build_step: _Name = "rebuild"  # its `digest`, if there is one, is what runs


class DeployVerifiedConfig(BaseModel):
    """`use = "deploy-verified"`: done only when the running version is the target, or a descendant of it (R63, R67)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: Path
    init_step: _Name = "deploy_init"  # whose RESULT tells how the deploy command ended
    merge_step: _Name = "merge_pr"
