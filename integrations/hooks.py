"""The forge as webhooks, inbox and reconciler know it: composition, so that no adapter knows another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from integrations.gitea import hooks as gitea
from journal.ports import Subject
from recovery.outside import ForgeFacts, Hint, Pull


@dataclass(frozen=True, slots=True)
class GiteaHooks:
    """`Hooks` of a Gitea or Forgejo with its secret; an empty secret authenticates nothing."""

    secret: str = field(repr=False)

    def verify(self, raw: bytes, headers: Mapping[str, str]) -> Hint | None:
        """
        Check the signature, then read the hint; a kind that nobody has use for names no repository and no task.

        Raises:
            InvalidInputError: Signed, and not what a forge sends.
        """
        if not gitea.is_signed(headers, raw, self.secret):
            return None
        sent = gitea.read(headers, raw)
        delivery, found = sent.id or sent.body_id, sent.hint
        if found is None:
            return Hint(delivery, sent.event)
        return Hint(delivery, str(found.change), repo=found.repo, branch=found.branch, pr=found.pr, head=found.sha)


@dataclass(frozen=True, slots=True)
class Forges:
    """`ForgeFacts` over bare repositories on this machine and one forge for all the others."""

    local: ForgeFacts
    known: frozenset[str]  # names of the repositories that `local` reads
    forge: ForgeFacts

    async def pull(self, subject: Subject) -> Pull | None:
        """Ask where the task's repository is."""
        return await (self.local if subject.repo in self.known else self.forge).pull(subject)
