"""What the tracker may be told (`[integrations.plane]`)."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from journal import names
from journal.errors import InvalidInputError


class PlaneConfig(BaseModel):
    """
    One project of one workspace. A state is named as in Plane, or by its id, which survives renaming.

    The key comes from ORCH_PLANE_TOKEN, the webhooks' secret from ORCH_PLANE_WEBHOOK_SECRET (or ..._FILE).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str = Field(default="", pattern=r"^(https?://[^\s/?#@]+(/[^\s?#@]*)?)?$")  # "" = no tracker
    workspace: str = Field(default="", pattern=r"^[A-Za-z0-9_-]{0,100}$")  # its slug
    project: str = Field(default="", pattern=r"^[0-9A-Za-z-]{0,64}$")  # its id
    identifier: str = Field(default="", pattern=r"^[A-Z0-9]{0,12}$")  # the letters before the number: ORCH of ORCH-114
    transitions: dict[str, str] = Field(default_factory=dict)  # state -> stage that a person wants the task to leave
    states: dict[str, str] = Field(default_factory=dict)  # stage -> state that shows it
    approvers: tuple[str, ...] = ()  # ids of users whose wishes count; empty = everybody who may move the item
    account: str = ""  # id of the key's own user: what it did is our echo
    calls_per_minute: int = Field(default=60, ge=1, le=10_000)  # Plane's own default for a key

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.url and not (self.workspace and self.project):
            message = "workspace and project are needed beside url"
            raise ValueError(message)
        if both := set(self.transitions) & set(self.states.values()):
            message = f"state '{min(both)}' cannot both ask for something and show a stage: every task would ask"
            raise ValueError(message)
        for stage in (*self.transitions.values(), *self.states):
            try:
                names.word(stage, "stage")
            except InvalidInputError as error:
                raise ValueError(str(error)) from error  # so that it is told with its file and key
        return self
