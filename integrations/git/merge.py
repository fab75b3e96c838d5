"""
`merge_pr` in a bare repository: one ref transaction moves the base branch and creates the key ref (DESIGN 6).

The far side refuses a second one twice over: the base branch must still have the value that the probe before the
intent saw, and the key ref must not exist. Both are compared by git while it holds the locks, so a late request of an
older attempt changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import BaseModel, ConfigDict

from integrations.git.commands import GitError
from integrations.git.facts import Question, answered, finding, landed
from integrations.git.marks import Mark, mark_of
from integrations.git.repository import (
    NOTHING,
    Author,
    LeftoverLockError,
    RefMovedError,
    RefUpdate,
    Repository,
    ref_part,
)
from journal import names
from journal.errors import InvalidInputError
from journal.ports import Call, Finding, Reply, Traits
from journal.words import Fact, Guard, Outcome, Scalar, evidence


class GitMergeConfig(BaseModel):
    """`[steps.merge_pr] use = "git-merge"`. No rebase: it rewrites ids and leaves no place for a mark (R19)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    style: Literal["merge", "squash", "fast-forward"] = "merge"
    author_name: str = "Transition Journal"
    author_email: str = "journal@localhost"


class GitMerge:
    """Merges a task's branch into its base branch, once per key."""

    def __init__(self, config: GitMergeConfig, repositories: Callable[[str], Repository]) -> None:
        self._config, self._repositories = config, repositories

    @property
    def traits(self) -> Traits:
        return Traits(Guard.EXCLUSIVE, irreversible=True, adopts=True, lane="merge:{repo}/{base}")

    async def probe(self, call: Call) -> Finding:
        return await answered(self._probe(call))

    async def apply(self, call: Call) -> Reply:
        try:
            return await self._apply(call)
        except InvalidInputError as error:
            return _refused("bad_name", detail=str(error)[:400])
        except RefMovedError as error:
            return _doubt("ref_moved", ref=error.ref, detail=error.said)
        except LeftoverLockError as error:
            return _doubt("lock_left", lock=error.path, detail=error.said)
        except GitError as error:
            # Nothing is ever started after a command that could not be: no ref has been touched.
            say = _refused if error.never_started else _doubt
            return say("git_failed", detail=str(error)[:400])

    async def quiesce(self, call: Call) -> None:
        """Nothing to do: the compared values make a late request harmless."""

    async def _probe(self, call: Call) -> Finding:
        repository = self._repositories(call.subject.repo).within(call)
        base, marker_ref = _base_ref(call), key_ref(call)
        tip, marker = await repository.refs(base, marker_ref)
        if not tip:
            return finding(Fact.UNKNOWN, reason="no_base_branch", ref=base)
        # The key ref becomes visible after the base branch; read in between, it would look like a force-push.
        if marker and not await repository.is_ancestor(await repository.commit_of(marker), tip):
            tip = await repository.read_ref(base)
        return await landed(repository, Question(call.key, call.journal_id, call.subject.head, tip, marker))

    async def _apply(self, call: Call) -> Reply:
        repository = self._repositories(call.subject.repo).within(call)
        head, branch = names.commit_id(call.subject.head), f"refs/heads/{names.branch(call.subject.branch)}"
        old = str(dict(call.expected).get("base_sha") or "")
        if not old:
            return _refused("no_expected_base")
        at, marker = await repository.refs(branch, key_ref(call))
        if marker:
            return _doubt("key_exists", marker=marker)
        if at != head:
            return _refused("head_moved", head=head, branch_at=at)
        made = await self._make(repository, call, old)
        if isinstance(made, Reply):
            return made
        new, marker = made
        updates = (
            # The base branch first: a kill between the two renames leaves a merge that its trailer or head proves.
            RefUpdate(_base_ref(call), new, old),
            RefUpdate(key_ref(call), marker, NOTHING),
            RefUpdate(branch, "", head),
        )
        await repository.transact(updates, f"merge {call.key}")
        return Reply(Outcome.APPLIED, evidence(source="git", landed=new, base_sha=old, style=self._config.style))

    async def _make(self, repository: Repository, call: Call, old: str) -> tuple[str, str] | Reply:
        """Store what will land and what the key ref will name; no ref moves, so a refusal is proven."""
        head, mark = call.subject.head, mark_of(call)
        if not await repository.merge_base(old, head):
            return _refused("unrelated", base_sha=old)
        # Dates from the commits themselves: the same attempt gives the same id, whenever it is made.
        at_s = max(await repository.commit_time_s(old), await repository.commit_time_s(head))
        author = Author(self._config.author_name, self._config.author_email, at_s)
        if self._config.style == "fast-forward":
            if not await repository.is_ancestor(old, head):
                return _refused("not_fast_forward", base_sha=old)
            return head, await repository.write_tag(head, _message(call, mark), author)
        tree = await repository.merge_tree(old, head)
        if not tree:
            return _refused("conflict", base_sha=old)
        parents = (old,) if self._config.style == "squash" else (old, head)
        commit = await repository.write_commit(tree, parents, _message(call, mark), author)
        return commit, commit


def key_ref(call: Call) -> str:
    """Where the key becomes a ref: created once, in the transaction that moves the base branch."""
    return f"refs/journal/{ref_part(call.subject.task)}/{call.generation}/{ref_part(call.step)}"


def _base_ref(call: Call) -> str:
    return f"refs/heads/{names.branch(call.subject.base)}"


def _message(call: Call, mark: Mark) -> str:
    return f"Merge {call.subject.branch} into {call.subject.base}\n\n{mark.trailers}"


def _refused(reason: str, **seen: Scalar) -> Reply:
    return Reply(Outcome.REJECTED, evidence(source="git", reason=reason, **seen))


def _doubt(reason: str, **seen: Scalar) -> Reply:
    return Reply(Outcome.UNKNOWN, evidence(source="git", reason=reason, **seen))
