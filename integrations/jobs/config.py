"""What `[jobs.STAGE]` may say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from journal.errors import InvalidInputError
from journal.ports import Subject

_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_NAMES = ("task", "repo", "branch", "base", "head", "pr", "stage")


class JobConfig(BaseModel):
    """
    The command that does the work of one stage; exit code 0 = done, and the edge is taken.

    Placeholders inside an argument: {task} {repo} {branch} {base} {head} {pr} {stage}. The same facts are in the
    environment as JOURNAL_TASK and so on. Nothing goes through a shell. A job must bear being started again: one that
    was cut off by a crash is.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: tuple[str, ...] = Field(min_length=1)
    timeout_s: float = Field(default=3600, gt=0, le=7 * 86400)
    retries: int = Field(default=2, ge=0, le=100)  # runs after the first failure
    backoff_s: float = Field(default=10, ge=0, le=3600)  # before the first retry; doubles, up to an hour
    per_repository: int = Field(default=1, ge=1, le=256)  # running at once for one repository in this stage
    env: tuple[str, ...] = ()  # names of our environment that the command needs, beside PATH, HOME and the like
    cwd: Path | None = None

    @model_validator(mode="after")
    def _can_work(self) -> Self:
        if not self.command[0] or "{" in self.command[0]:
            why = "`command` must begin with the program's own name"
            raise ValueError(why)
        unknown = [n for part in self.command for n in _PLACEHOLDER.findall(part) if n not in _NAMES]
        if unknown:
            why = f"unknown placeholder {{{unknown[0]}}}; known: {', '.join(_NAMES)}"
            raise ValueError(why)
        return self


def facts(subject: Subject, stage: str) -> dict[str, str]:
    """What a job is told about its task, by placeholder."""
    return {
        "task": subject.task,
        "repo": subject.repo,
        "branch": subject.branch,
        "base": subject.base,
        "head": subject.head,
        "pr": str(subject.pr or ""),
        "stage": stage,
    }


def fill(command: tuple[str, ...], known: dict[str, str]) -> tuple[str, ...]:
    """
    Replace each placeholder inside each argument: data may fill one, never add one and never make it an option (R100).

    Raises:
        InvalidInputError: A fact that the command wants is not known of this task.
    """

    def value(match: re.Match[str]) -> str:
        if not (found := known.get(match[1], "")):
            raise InvalidInputError(what=match[0], why="is not known of this task")
        return found

    return tuple(_PLACEHOLDER.sub(value, part) for part in command)
