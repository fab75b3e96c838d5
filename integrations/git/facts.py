"""
The fact "SHA in main": did this change reach the base branch, by whom, and is it still in effect (git-facts 1, 5, 9)?

The order of the questions is the order of proof: our key ref, our trailer on the first-parent line, ancestry of the
head. Equal content alone proves nothing (somebody else's commit looks the same) and a revert takes nothing of that
back, so the first is unknown and the second a conflict (R17, R22, R23). Questions that git cannot answer raise
`GitError`; `answered` turns that into unknown, in one place.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass

from integrations.git.commands import GitError
from integrations.git.marks import Mark, mark_at, marks_in, searched_for
from integrations.git.repository import Repository
from journal.errors import InvalidInputError
from journal.ports import Finding
from journal.words import Fact, Scalar, evidence

_HINT_LIMIT = 50
"""Commits whose patch is compared at most: equality is only a hint, so it may not cost without bound."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, about which state of the base branch."""

    key: str
    journal_id: str
    head: str
    tip: str  # the base branch's commit that the answer is about
    marker: str = ""  # what the key ref names; "" when there is none


async def answered(asking: Awaitable[Finding]) -> Finding:
    """Wait for an answer; a failure to ask is unknown, never "no" (V2, R26)."""
    try:
        return await asking
    except (GitError, InvalidInputError) as error:
        return finding(Fact.UNKNOWN, reason="cannot_ask", detail=str(error)[:400])


def finding(fact: Fact, **seen: Scalar) -> Finding:
    """Build an answer whose evidence names git as its source and holds no empty values."""
    return Finding(fact, evidence(source="git", **{name: value for name, value in seen.items() if value != ""}))


async def landed(repository: Repository, question: Question) -> Finding:
    """Ask whether and how the change reached the base branch."""
    if await repository.is_shallow():
        return finding(Fact.UNKNOWN, reason="shallow", base_sha=question.tip)
    if question.marker:
        return await _by_key_ref(repository, question)
    known = bool(question.head) and await repository.has_commit(question.head)
    since = await repository.merge_base(question.head, question.tip) if known else ""
    if by_trailer := await _by_trailer(repository, question, since):
        return by_trailer
    if not known:
        return finding(Fact.UNKNOWN, reason="head_missing", base_sha=question.tip)
    if await repository.is_ancestor(question.head, question.tip):
        return await _by_ancestry(repository, question)
    if since and await _looks_equal(repository, question, since):
        return finding(Fact.UNKNOWN, reason="equal_patch", base_sha=question.tip)
    return finding(Fact.ABSENT, base_sha=question.tip)


async def reverted_by(repository: Repository, shas: tuple[str, ...], tip: str) -> str:
    """The commit that took one of `shas` back and was not taken back itself, "" when there is none (git-facts 5)."""
    for sha in shas:
        for revert, message in await repository.messages(f"{sha}..{tip}", f"This reverts commit {sha}"):
            quoted = f"This reverts commit {sha}" in message
            if quoted and not await reverted_by(repository, (revert,), tip):
                return revert
    return ""


async def _by_key_ref(repository: Repository, question: Question) -> Finding:
    mark = await mark_at(repository, question.marker, question.key)
    commit = await repository.commit_of(question.marker)
    if not mark.key:
        return finding(Fact.CONFLICT, reason="unmarked", via="key_ref", landed=commit, base_sha=question.tip)
    if not await repository.is_ancestor(commit, question.tip):
        return finding(Fact.CONFLICT, reason="not_in_base", via="key_ref", landed=commit, base_sha=question.tip)
    return await _by_mark(repository, question, mark, commit, "key_ref")


async def _by_trailer(repository: Repository, question: Question, since: str) -> Finding | None:
    span = f"{since}..{question.tip}" if since else question.tip
    hits: list[tuple[Mark, str]] = []
    for sha, message in await repository.messages(span, searched_for(question.key), "--first-parent"):
        hits += [(mark, sha) for mark in marks_in(message) if mark.key == question.key]
    if not hits:
        return None
    ours = [hit for hit in hits if hit[0].journal == question.journal_id]
    mark, sha = (ours or hits)[-1]  # newest first: the oldest is the one that landed, later ones are copies of it
    return await _by_mark(repository, question, mark, sha, "trailer")


async def _by_mark(repository: Repository, question: Question, mark: Mark, sha: str, via: str) -> Finding:
    seen: dict[str, Scalar] = {
        "via": via,
        "landed": sha,
        "base_sha": question.tip,
        "journal": mark.journal,
        "cites": mark.cites,
        "fence": mark.fence,
    }
    if mark.head != question.head:
        return finding(Fact.CONFLICT, reason="other_head", **seen)
    if revert := await reverted_by(repository, (sha, question.head), question.tip):
        return finding(Fact.CONFLICT, reason="reverted", reverted=revert, **seen)
    return finding(Fact.OURS if mark.journal == question.journal_id else Fact.OTHERS, **seen)


async def _by_ancestry(repository: Repository, question: Question) -> Finding:
    sha = await _brought_by(repository, question.head, question.tip)
    seen: dict[str, Scalar] = {"via": "ancestor", "landed": sha, "base_sha": question.tip}
    if revert := await reverted_by(repository, tuple({sha, question.head}), question.tip):
        return finding(Fact.CONFLICT, reason="reverted", reverted=revert, **seen)
    return finding(Fact.OTHERS, **seen)


async def _brought_by(repository: Repository, head: str, tip: str) -> str:
    """The first commit of the base branch's own line that contains `head`: a merge, or after fast-forward itself."""
    line = [row.split() for row in await repository.revisions("--first-parent", "--parents", f"{head}..{tip}")]
    if not line or head in line[-1][1:2]:
        return head
    children = set(await repository.revisions("--ancestry-path", f"{head}..{tip}"))
    return next((row[0] for row in reversed(line) if row[0] in children), head)


async def _looks_equal(repository: Repository, question: Question, since: str) -> bool:
    """Whether the content seems to be there already: rebased, cherry-picked or squashed by somebody (R19, R20)."""
    head, tip = question.head, question.tip
    if await repository.tree_of(head) == await repository.tree_of(since):
        return False  # nothing to compare: an empty change is equal to everything
    if await repository.merge_tree(tip, head) == await repository.tree_of(tip):
        return True
    own = await repository.revisions("--no-merges", f"{tip}..{head}")
    new = await repository.revisions("--no-merges", "--cherry-pick", "--right-only", f"{tip}...{head}")
    return bool(own and not new) or await _squashed(repository, since, head, tip)


async def _squashed(repository: Repository, since: str, head: str, tip: str) -> bool:
    """Whether one commit of the base branch holds the whole branch's patch; only those with the same files count."""
    files, wanted = set(await repository.changed_files(since, head)), await repository.patch_id(since, head)
    line = await repository.revisions("--first-parent", "--no-merges", f"{since}..{tip}")
    for sha in line[-_HINT_LIMIT:]:
        parent = (await repository.revisions("--max-count=1", f"{sha}^"))[0]
        same_files = set(await repository.changed_files(parent, sha)) == files
        if same_files and await repository.patch_id(parent, sha) == wanted:
            return True
    return False


async def in_main(
    clone: Repository, *, key: str, journal_id: str, head: str, base: str, remote: str = "origin"
) -> Finding:
    """
    Ask a clone, after a fetch that must succeed: a stale or shallow clone knows no "no" (git-facts 3, 9; R24).

    The base branch is fetched into a ref of our own, so that nobody else's fetch is mistaken for this one.
    """

    async def ask() -> Finding:
        ref = f"refs/journal-fetched/heads/{base}"
        await clone.fetch(remote, f"+refs/heads/{base}:{ref}")
        tip = await clone.read_ref(ref)
        return await landed(clone, Question(key, journal_id, head, tip))

    return await answered(ask())
