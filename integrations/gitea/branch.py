"""
`delete_branch`: the merged branch goes, as a step of its own (E7: with the merge call its failure would hide a merge).

Only a branch that still stands at the task's head is deleted; newer work on it is left to a person.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from integrations.gitea.client import Forge, segment
from integrations.gitea.history import History
from integrations.gitea.pulls import repo_path
from journal import names
from journal.errors import JournalError
from journal.ports import Call, Finding, Reply, Traits
from journal.words import Fact, Guard, Outcome, evidence


class GiteaDeleteBranchConfig(BaseModel):
    """`[steps.delete_branch] use = "gitea-delete-branch"`."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class GiteaDeleteBranch:
    """Deletes a task's branch at the forge; a second time finds nothing to delete."""

    def __init__(self, config: GiteaDeleteBranchConfig, forge: Forge, history: History) -> None:
        self._forge, self._history = forge, history

    @property
    def traits(self) -> Traits:
        return Traits(Guard.REPEATABLE, irreversible=False, adopts=True)

    async def probe(self, call: Call) -> Finding:
        try:
            at = await self._history.branch_at(call)
        except JournalError as error:
            return Finding(Fact.UNKNOWN, evidence(source="git", reason="cannot_ask", detail=str(error)[:300]))
        if not at:
            # Nothing says who deleted it; it counts as ours once we have tried.
            return Finding(Fact.OURS if call.attempt else Fact.OTHERS, evidence(source="git", reason="gone"))
        if at != call.subject.head:
            return Finding(Fact.CONFLICT, evidence(source="git", reason="newer_work", branch_at=at))
        return Finding(Fact.ABSENT, evidence(source="git", branch_at=at))

    async def apply(self, call: Call) -> Reply:
        branch = names.branch(call.subject.branch)
        if branch == call.subject.base:
            return Reply(Outcome.REJECTED, evidence(source="gitea", reason="is_base"))
        reply = await self._forge.send("DELETE", f"{repo_path(call.subject.repo)}/branches/{segment(branch)}")
        seen = evidence(source="gitea", status=reply.status, said=reply.message[:200])
        if reply.status == 204:
            return Reply(Outcome.APPLIED, seen)
        refused = not reply.sent or reply.status in (401, 403, 423)
        return Reply(Outcome.REJECTED if refused else Outcome.UNKNOWN, seen)

    async def quiesce(self, call: Call) -> None:
        """Nothing to do: deleting again changes nothing."""
