"""`[host]`: whose database it is, how its table of tasks is named, and which repositories take part."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Identifier = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
"""A name of a table or column: a plain word, since names cannot be bound as parameters (R101)."""

MaybeIdentifier = Annotated[str, Field(pattern=r"^([A-Za-z_][A-Za-z0-9_]{0,63})?$")]


class HostConfig(BaseModel):
    """Where the host keeps its tasks. A column that it lacks is left empty."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    db: Path  # the host's SQLite file; the journal lives in it, and its journal mode stays
    table: Identifier = "tasks"  # its table of tasks
    id: Identifier = "id"  # column: primary key or unique; a text or a whole number
    stage: Identifier = "stage"  # column: written by compare-and-swap in the journal's transaction
    repo: Identifier = "repo"  # column
    branch: Identifier = "branch"  # column
    head: MaybeIdentifier = ""  # column: full commit id of the change
    base: MaybeIdentifier = ""  # column: the branch it goes to; none = main
    pr: MaybeIdentifier = ""  # column: number of the pull request

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that is named."""
        return tuple(c for c in (self.id, self.stage, self.repo, self.branch, self.head, self.base, self.pr) if c)


@dataclass(frozen=True, slots=True)
class Scope:
    """
    Which repositories take part, and whether anything does (FR-7).

    `repos` empty means none, `*` means all.
    """

    enabled: bool = True
    repos: frozenset[str] = frozenset()

    @property
    def empty(self) -> bool:
        """Nothing can take part: then nothing of ours is opened either."""
        return not self.enabled or not self.repos

    def takes(self, repo: str) -> bool:
        """Whether a repository's tasks are journaled."""
        return self.enabled and ("*" in self.repos or repo in self.repos)
