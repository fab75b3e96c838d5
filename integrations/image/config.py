"""What the image step may be told (`[steps.NAME] use = "image"`)."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

_Tag = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,100}$")]
_Step = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")]
_NAME = r"^(?:[a-z0-9.-]+(?::[0-9]+)?/)?(?:\{repo\}|[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)$"


class ImageConfig(BaseModel):
    """
    Build an image of what the merge landed.

    The context is the commit's own tree, taken out of the repository: a work tree could be at another commit.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    image: str = Field(default="{repo}", pattern=_NAME)  # the name without a tag; {repo} in lower case
    builder: Literal["docker", "compose"] = "docker"
    file: str = "Dockerfile"  # in the commit's tree: the Dockerfile, or the compose file
    service: str = Field(default="", pattern=r"^[A-Za-z0-9_.-]{0,100}$")  # compose: whose image it is
    moving_tag: _Tag | None = None  # set last, only forward; None = no tag moves
    program: tuple[str, ...] = Field(default=("docker",), min_length=1)
    compose: tuple[str, ...] = Field(default=("docker", "compose"), min_length=1)
    merge_step: _Step = "merge_pr"  # its `landed` is the commit
    scratch: Path | None = None  # where trees are unpacked; None = the system's folder for temporary files

    @model_validator(mode="after")
    def _whose(self) -> Self:
        if self.builder == "compose" and not self.service:
            message = "builder 'compose' needs the service whose image it is"
            raise ValueError(message)
        return self

    @field_validator("file")
    @classmethod
    def _inside_the_tree(cls, path: str) -> str:
        parts = PurePosixPath(path)
        if not path or parts.is_absolute() or ".." in parts.parts or path.startswith("-"):
            message = f"'{path}' is no path inside the repository"
            raise ValueError(message)
        return path
