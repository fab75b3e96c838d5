"""What the adapters ask of git; provided by the composition root, since adapters do not know each other."""

from __future__ import annotations

from typing import Protocol

from journal.ports import Call, Finding


class History(Protocol):
    """The forge's repository as a fresh fetch shows it: the authority on what landed (gitea.md 1.4)."""

    async def landed(self, call: Call, recorded: str = "", number: int = 0) -> Finding:
        """
        Fetch, then say whether the task's change is in its base branch; a failure to ask is unknown.

        Args:
            call: The step that asks.
            recorded: The id that the forge's own record says landed; "" when it names none.
            number: The pull request, whose ref keeps the merged head.

        Returns:
            One of the five answers; its evidence names `base_sha`, and `branch_at` while the head is somewhere.
        """
        ...

    async def branch_at(self, call: Call) -> str:
        """
        Fetch, then name the commit of the task's branch; "" when it is gone.

        Raises:
            JournalError: It could not be asked.
        """
        ...

    def trailers(self, call: Call) -> str:
        """The last paragraph of the merge's message: key, fence, journal, head (F3)."""
        ...
