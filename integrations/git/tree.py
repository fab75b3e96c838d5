"""A commit's tree as files, for builders that want a folder; always of the commit itself, never of a work tree."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from integrations.git.commands import GitError
from integrations.git.repository import Repository
from journal import names
from journal.children import child_env, run_child
from journal.ports import Call


@dataclass(frozen=True, slots=True)
class Trees:
    """Writes trees out of the configured repositories."""

    repositories: Callable[[str], Repository]

    async def __call__(self, call: Call, sha: str, folder: Path) -> None:
        """
        Write the tree of a commit into an empty folder.

        Raises:
            GitError: It could not be read or written whole.
            InvalidInputError: No such repository, or no full commit id.
        """
        packed = folder.with_name(f"{folder.name}.tar")
        repository = self.repositories(call.subject.repo).within(call)
        await repository.pack(names.commit_id(sha), packed)
        # A child and not a thread: it ends with the budget or a cancellation, and takes nothing with it.
        argv = ("tar", "--extract", "--no-same-owner", f"--file={packed}", f"--directory={folder}")
        left_s = (repository.deadline_s or 0) - asyncio.get_running_loop().time()
        try:
            done = await run_child(argv, budget_s=left_s, term=repository.term, env=child_env(LC_ALL="C"))
        except OSError as error:
            raise GitError(command="tar", code=127, said=str(error)) from error
        if done.code != 0 or done.timed_out:
            raise GitError(command="tar", code=done.code, said=done.tail)
