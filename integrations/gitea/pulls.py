"""Pull requests as the forge records them (gitea.md 3.1, 3.2): `merged` proves a merge, its absence proves nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from integrations.gitea.client import Forge, Response, segment
from journal import names
from journal.errors import InvalidInputError, JournalError
from journal.names import shown
from journal.ports import Subject


class UnansweredError(JournalError):
    """The forge did not answer a question, or not in a way that can be read: nothing is known."""

    def __init__(self, *, asked: str, status: int, said: str) -> None:
        self.asked, self.status, self.said = asked, status, said
        super().__init__(f"{asked}: status {status}: {shown(said, 200) or 'it said nothing'}")


@dataclass(frozen=True, slots=True)
class Pull:
    """The fields of a pull request that decisions are made from."""

    number: int
    is_open: bool
    merged: bool  # True proves a merge; False proves nothing
    landed: str  # the id that the forge says landed; "" = none recorded, even on some merged ones (R21)
    head: str  # tip of the head branch as the API sees it, which may lag (R09)
    branch: str  # becomes `refs/pull/N/head` when the branch is deleted
    base: str


def pulls_path(repo: str) -> str:
    """Where the pull requests of a repository are."""
    return f"{repo_path(repo)}/pulls"


def repo_path(repo: str) -> str:
    """
    Where a repository is.

    Raises:
        InvalidInputError: It is not named like `owner/name`.
    """
    if names.repository(repo).count("/") != 1:
        raise InvalidInputError(what=f"repository '{shown(repo)}'", why="the forge knows repositories as `owner/name`")
    return f"/repos/{repo}"


async def read_pull(forge: Forge, subject: Subject) -> Pull:
    """
    Read the pull request of a task: by its number, else the one from its branch into its base.

    Raises:
        UnansweredError: No answer, none found, or the number belongs to another branch.
        InvalidInputError: The task's names cannot be asked for.
    """
    path = pulls_path(subject.repo)
    if subject.pr:
        pull = _pull(f"{path}/{subject.pr}", await forge.get(f"{path}/{subject.pr}"))
    else:
        pull = await _by_branch(forge, path, subject)
    if pull.branch not in (subject.branch, f"refs/pull/{pull.number}/head") or pull.base != subject.base:
        said = f"it goes from {shown(pull.branch)} into {shown(pull.base)}"
        raise UnansweredError(asked=f"pull request {pull.number}", status=200, said=said)
    return pull


async def _by_branch(forge: Forge, path: str, subject: Subject) -> Pull:
    base, branch = names.branch(subject.base), names.branch(subject.branch)
    asked = f"{path}/{segment(base)}/{segment(branch)}"
    answer = await forge.get(asked)
    # A branch may have had several: the forge names any of them, in practice the oldest (gitea.md 3.1).
    if answer.status == 200 and (pull := _pull(asked, answer)).is_open:
        return pull
    listed = await forge.list(path, state="all")
    if isinstance(listed, Response):
        raise UnansweredError(asked=path, status=listed.status, said=listed.message)
    found = [p for entry in listed if (p := _read(entry)) and (p.branch, p.base) == (branch, base)]
    if not found:
        raise UnansweredError(asked=path, status=200, said=f"no pull request from {branch} into {base}")
    fitting = [p for p in found if p.head == subject.head]
    return max(fitting or found, key=lambda p: (p.is_open, p.number))


def _pull(asked: str, answer: Response) -> Pull:
    pull = _read(answer.data) if answer.status == 200 else None
    if pull is None:
        raise UnansweredError(asked=asked, status=answer.status, said=answer.message)
    return pull


def _read(data: Any) -> Pull | None:
    """A record as far as it can be relied upon; None when it is none."""
    try:
        return Pull(
            number=names.number(data["number"], "number of a pull request"),
            is_open=data["state"] == "open",
            merged=data["merged"] is True,
            landed=names.commit_id(data["merge_commit_sha"]) if data.get("merge_commit_sha") else "",
            head=names.commit_id(data["head"]["sha"]),
            branch=str(data["head"]["ref"]),
            base=str(data["base"]["ref"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, InvalidInputError):
        return None
