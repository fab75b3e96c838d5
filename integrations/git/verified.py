"""
`merge_verified`: before a deploy begins, the merge must still be in main and in effect (DESIGN 6; R22).

It asks about the id that landed, as the merge step's evidence names it, never about the branch head: after a squash
the head is in no branch at all (R17).
"""

from __future__ import annotations

from collections.abc import Callable

from pydantic import BaseModel, ConfigDict

from integrations.git.facts import answered, finding, reverted_by
from integrations.git.repository import Repository
from journal import names
from journal.ports import Call, Finding, Reply, Traits
from journal.words import Fact, Guard, Outcome, evidence


class MergeVerifiedConfig(BaseModel):
    """`[steps.merge_verified] use = "git-merge-verified"`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    merge_step: str = "merge_pr"  # whose evidence names what landed


class MergeVerified:
    """Awaits nothing but proof; a merge that vanished or was reverted is a conflict and stops the deploy."""

    def __init__(self, config: MergeVerifiedConfig, repositories: Callable[[str], Repository]) -> None:
        self._config, self._repositories = config, repositories

    @property
    def traits(self) -> Traits:
        return Traits(Guard.AWAITED, irreversible=False, adopts=True)

    async def probe(self, call: Call) -> Finding:
        return await answered(self._probe(call))

    async def apply(self, call: Call) -> Reply:
        """An awaited step has no effect to perform."""
        return Reply(Outcome.REJECTED, evidence(reason="read_only"))

    async def quiesce(self, call: Call) -> None:
        """Nothing to do: there is no effect."""

    async def _probe(self, call: Call) -> Finding:
        repository = self._repositories(call.subject.repo).within(call)
        seen = dict(call.outcomes.get(self._config.merge_step, ()))
        sha = str(seen.get("landed") or "")
        if not sha:
            return finding(Fact.UNKNOWN, reason="no_landed_sha", step=self._config.merge_step)
        base = f"refs/heads/{names.branch(call.subject.base)}"
        tip = await repository.read_ref(base)
        if not tip or await repository.is_shallow():
            return finding(Fact.UNKNOWN, reason="shallow" if tip else "no_base_branch", ref=base)
        if not await repository.is_ancestor(sha, tip):
            return finding(Fact.CONFLICT, reason="not_in_base", landed=sha, base_sha=tip)
        if revert := await reverted_by(repository, tuple({sha, call.subject.head} - {""}), tip):
            return finding(Fact.CONFLICT, reason="reverted", reverted=revert, landed=sha, base_sha=tip)
        return finding(Fact.OURS, landed=sha, base_sha=tip)
