"""
Where a task's coverage report comes from: a path in the tree of its head, or a file on this machine.

From the tree it is bound to the commit by content. A file on disk is bound by its name only, so it should hold
`{head}`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ConfigDict, field_validator

from integrations.coverage.counts import Report
from integrations.coverage.reports import SIZE_LIMIT, read_report
from integrations.coverage.store import Store
from journal import names
from journal.errors import InvalidInputError, StoreUnavailableError
from journal.ports import Subject


class ReportConfig(BaseModel):
    """Where to look; `{task}`, `{branch}` and `{head}` are filled in."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    reports: tuple[str, ...] = ("coverage.json",)  # paths in the head's tree; the first that exists counts
    file: str = ""  # a file on this machine instead

    @field_validator("reports")
    @classmethod
    def _inside_the_tree(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        for path in paths:
            if not path or PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
                message = f"'{path}' is no path inside the repository"
                raise ValueError(message)
        return paths


async def measured(config: ReportConfig, store: Store, subject: Subject) -> Report:
    """
    Read the report about a task's head.

    Raises:
        InvalidInputError: There is none, or it is not a report.
        JournalError: It could not be read; nothing is known.
    """
    if config.file:
        return await asyncio.to_thread(_from_disk, Path(_filled(config.file, subject)))
    head = names.commit_id(subject.head)
    paths = [_filled(path, subject) for path in config.reports]
    for path in paths:
        content = await store.read_file(head, path)
        if content is not None:
            return read_report(content)
    raise InvalidInputError(what="coverage report", why=f"commit {head[:12]} holds none at {' or '.join(paths)}")


def _filled(template: str, subject: Subject) -> str:
    task, branch = names.task_id(subject.task), names.branch(subject.branch)
    return template.replace("{task}", task).replace("{branch}", branch).replace("{head}", subject.head)


def _from_disk(path: Path) -> Report:
    try:
        with path.open("rb") as file:
            content = file.read(SIZE_LIMIT + 1)
    except FileNotFoundError:
        raise InvalidInputError(what="coverage report", why=f"there is no file {path}") from None
    except OSError as error:
        raise StoreUnavailableError(path=str(path), why=str(error)) from error
    return read_report(content)
