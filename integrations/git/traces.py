"""What effects of a journal show in a repository: the fences in tags under `refs/journal` and in trailers (A4, V8)."""

from __future__ import annotations

from dataclasses import dataclass

from integrations.git.marks import JOURNAL, marks_in
from integrations.git.repository import Repository


@dataclass(frozen=True, slots=True)
class GitTraces:
    """One repository, or a clone that is fetched before it is asked."""

    name: str
    repository: Repository
    remote: str = ""  # address to fetch from; "" = the repository is the authority itself

    async def greatest(self, journal_id: str) -> int:
        """
        The greatest epoch that a mark of this journal carries; marks that somebody forged can only raise it.

        Raises:
            GitError: The repository, or its remote, could not be read.
        """
        if self.remote:
            await self.repository.fetch(self.remote, "+refs/heads/*:refs/heads/*")
        texts = await self.repository.ref_messages("refs/journal/")
        texts += [text for _, text in await self.repository.messages("--all", f"{JOURNAL}{journal_id}@")]
        marks = (mark for text in texts for mark in marks_in(text) if mark.journal == journal_id)
        return max((_epoch(mark.fence) for mark in marks), default=0)


def _epoch(fence: str) -> int:
    epoch = fence.partition(".")[0]
    return int(epoch) if epoch.isascii() and epoch.isdigit() and len(epoch) <= 18 else 0
