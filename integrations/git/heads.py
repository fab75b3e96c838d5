"""Where a change's branch is now, in a bare repository without a forge: what the reconciler polls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from integrations.git.repository import Repository
from journal.errors import JournalError
from journal.ports import Subject


@dataclass(frozen=True, slots=True)
class Head:
    """A branch as it is at this moment; a bare repository knows neither pull requests nor their ends."""

    head: str  # full commit id; "" = the branch is gone
    merged: bool = False
    closed: bool = False


class GitHeads:
    """Reads branch heads of the configured repositories."""

    def __init__(self, repositories: Callable[[str], Repository], known: frozenset[str]) -> None:
        self._repositories, self._known = repositories, known

    async def pull(self, subject: Subject) -> Head | None:
        """The branch of a change; None = it could not be asked."""
        if subject.repo not in self._known:
            return None
        try:
            return Head(await self._repositories(subject.repo).read_ref(f"refs/heads/{subject.branch}"))
        except (JournalError, OSError):
            return None
