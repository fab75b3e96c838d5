"""
A full bare clone of a forge's repository, fetched afresh for every question (git-facts 3, 9; R24).

The forge's API may lag, lie or be silent; its refs do not. A fetch that fails is unknown, never an older answer.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from integrations.git import locks
from integrations.git.commands import GitError
from integrations.git.facts import Question, answered, finding, landed, reverted_by
from integrations.git.marks import mark_of
from integrations.git.repository import Repository
from journal import names
from journal.ports import Call, Finding, Subject
from journal.words import Fact


@dataclass(frozen=True, slots=True)
class Mirrors:
    """The clones of one forge, by repository name; made when first asked for."""

    folder: Path
    url: str  # of the forge: a repository is at `url/owner/name.git`
    header: str = field(default="", repr=False)  # an HTTP header with the token; never stored, never an argument
    _turns: dict[str, asyncio.Lock] = field(default_factory=dict, repr=False)

    def clone(self, name: str) -> Repository:
        """Where a repository's clone is; it holds whatever the last fetch brought."""
        return Repository(self.folder / f"{names.repository(name)}.git", header=self.header)

    def made(self) -> list[Repository]:
        """Every clone there is, as the last fetch left it: enough to order two commits that it holds."""
        return [Repository(path) for path in sorted(self.folder.glob("*/*.git")) if (path / "HEAD").is_file()]

    async def fetched(self, call: Call, number: int = 0) -> Repository:
        """
        The clone of the task's repository, as the forge is now.

        Raises:
            GitError: The forge could not be read; what the clone holds is no answer.
            InvalidInputError: The repository's name cannot be a path.
        """
        name, pull = call.subject.repo, number or call.subject.pr
        repository = self.clone(name).within(call)
        # Patterns, not names: a branch that is gone is an answer, and must not fail the fetch of the others.
        refspecs = ["+refs/heads/*:refs/heads/*"] + ([f"+refs/pull/{pull}/*:refs/pull/{pull}/*"] if pull else [])
        # One at a time: two fetches into one clone meet at the locks of its refs, and one of them would fail.
        async with self._turns.setdefault(name, asyncio.Lock()):
            await _made(repository)
            await _fetch(repository, self._remote(name), refspecs)
        return repository

    async def head_of(self, subject: Subject) -> str:
        """
        The commit that a branch is at on the forge at this moment; "" when it is gone. Nothing is fetched.

        Raises:
            GitError: The forge could not be read.
            InvalidInputError: The task's names cannot be asked for.
        """
        repository = self.clone(subject.repo)
        async with self._turns.setdefault(subject.repo, asyncio.Lock()):
            await _made(repository)
        ref = f"refs/heads/{names.branch(subject.branch)}"
        return (await repository.remote_refs(self._remote(subject.repo), ref))[0]

    def _remote(self, name: str) -> str:
        return f"{self.url.rstrip('/')}/{name}.git"

    async def landed(self, call: Call, recorded: str = "", number: int = 0) -> Finding:
        """Whether the change is in its base branch, by git first and by the forge's record where git cannot tell."""
        return await answered(self._landed(call, recorded, number))

    async def branch_at(self, call: Call) -> str:
        """The commit of the task's branch, "" when it is gone."""
        return await (await self.fetched(call)).read_ref(f"refs/heads/{names.branch(call.subject.branch)}")

    def trailers(self, call: Call) -> str:
        """The mark of one attempt."""
        return mark_of(call).trailers

    async def _landed(self, call: Call, recorded: str, number: int) -> Finding:
        repository = await self.fetched(call, number)
        subject = call.subject
        base, branch = (f"refs/heads/{names.branch(name)}" for name in (subject.base, subject.branch))
        pull = f"refs/pull/{number or subject.pr}/head"
        tip, at, kept = await repository.refs(base, branch, pull)
        if not tip:
            return finding(Fact.UNKNOWN, reason="no_base_branch", ref=base)
        found = await landed(repository, Question(call.key, call.journal_id, subject.head, tip))
        if recorded and found.fact is not Fact.OURS:
            found = await _by_record(repository, call, recorded, found, tip, kept)
        return Finding(found.fact, tuple(sorted({**dict(found.seen), "branch_at": at or kept}.items())))


async def _by_record(repository: Repository, call: Call, recorded: str, found: Finding, tip: str, kept: str) -> Finding:
    """Weigh the forge's record: it knows merges whose message was edited or never carried a mark (R18, R19)."""
    head = call.subject.head
    if found.fact is Fact.CONFLICT:
        return found
    seen = {"via": "forge_record", "landed": recorded, "base_sha": tip}
    # The pull request's ref stays at the head that was merged: another one than ours was never reviewed (R06).
    if kept and kept != head:
        return finding(Fact.CONFLICT, reason="other_head", merged_head=kept, **seen)
    if found.fact is Fact.OTHERS:
        return found
    if not await repository.has_commit(recorded) or not await repository.is_ancestor(recorded, tip):
        return finding(Fact.CONFLICT, reason="not_in_base", **seen)
    if revert := await reverted_by(repository, tuple({recorded, head} - {""}), tip):
        return finding(Fact.CONFLICT, reason="reverted", reverted=revert, **seen)
    return finding(Fact.OTHERS, **seen)


async def _made(repository: Repository) -> None:
    if not (repository.path / "HEAD").is_file():
        repository.path.parent.mkdir(parents=True, exist_ok=True)
        await repository.create()


async def _fetch(repository: Repository, url: str, refspecs: list[str]) -> None:
    try:
        await repository.fetch(url, *refspecs)
    except GitError:
        # A fetch that was killed at its budget leaves its locks, and every later one would fail on them.
        left = [*(repository.path / "refs").rglob("*.lock"), *repository.path.glob("*.lock")]
        if not [lock for lock in left if locks.remove_if_stale(repository.path, lock)]:
            raise
        await repository.fetch(url, *refspecs)
