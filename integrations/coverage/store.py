"""
What coverage needs of a repository, as a port: this folder knows no git, and the composition root hands one in.

Every method raises a `JournalError` when the question could not be answered; that is never "no".
"""

from __future__ import annotations

from typing import Protocol

from journal.ports import Call


class Store(Protocol):
    """A repository: trees of commits, refs, and a chain of commits under a ref that is moved by compare-and-swap."""

    def within(self, call: Call) -> Store:
        """The same store, bound to the call's budget and carrying the task's lock."""
        ...

    async def is_shallow(self) -> bool:
        """Whether history was cut off, so that "not found" means nothing."""
        ...

    async def refs(self, *wanted: str) -> tuple[str, ...]:
        """The commit each ref names, "" for one that does not exist."""
        ...

    async def read_file(self, commit: str, path: str) -> bytes | None:
        """A file at a commit; None when there is none."""
        ...

    async def merge_base(self, one: str, two: str) -> str:
        """The best common ancestor, "" for none."""
        ...

    async def changed_files(self, old: str, new: str) -> tuple[str, ...]:
        """Names of the files that differ."""
        ...

    async def messages(self, span: str, said: str) -> list[tuple[str, str]]:
        """(id, message) of the commits in `span`, newest first, whose message contains `said`."""
        ...

    async def commit_time_s(self, sha: str) -> int:
        """When a commit was made, in seconds since 1970."""
        ...

    async def append(self, ref: str, old: str, path: str, content: bytes, message: str, at_s: int) -> str:
        """Add a commit with one file to the chain under `ref`; "" when the ref is not at `old` any more."""
        ...
