"""
Read-only facts from the forge: the pull request, the checks of a head, its approvals. Polling alone suffices (R73, G).

Checks and approvals belong to a commit: those of another head say nothing about ours (gitea.md 5, 6.4).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from integrations.gitea.client import Forge, Response
from integrations.gitea.history import History
from integrations.gitea.pulls import Pull, UnansweredError, pulls_path, read_pull, repo_path
from journal import names
from journal.errors import InvalidInputError, JournalError
from journal.ports import Call, Subject

OURS = "transition-journal/"
"""How the contexts begin that we report ourselves: no check, and no reason to wait for ourselves."""
_GREEN = frozenset({"success", "warning", "skipped"})
_RED = frozenset({"failure", "error"})


@dataclass(frozen=True, slots=True)
class Checks:
    """The latest state of each context of one commit."""

    green: tuple[str, ...]
    red: tuple[str, ...]
    pending: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Approvals:
    """Who said what about one commit, counted over their latest reviews."""

    approved: tuple[str, ...]
    rejected: tuple[str, ...]


async def read_checks(forge: Forge, repo: str, sha: str) -> Checks:
    """
    Read all statuses of a commit and take each context's latest; the forge's own sum covers one page only.

    Raises:
        UnansweredError: Some page was not answered, or an entry cannot be read.
    """
    path = f"{repo_path(repo)}/commits/{names.commit_id(sha)}/statuses"
    return latest_checks(await _listed(forge, path), path)


def latest_checks(entries: Iterable[Any], asked: str = "statuses") -> Checks:
    """Each context by its newest entry: entries of one second have no order, ids have (gitea.md 5)."""
    newest: dict[str, tuple[int, str]] = {}
    for entry in entries:
        try:
            context, at, state = str(entry["context"]), names.number(entry["id"], "id"), str(entry["status"])
            if context.startswith(OURS):
                continue
        except (KeyError, TypeError, InvalidInputError) as error:
            raise UnansweredError(asked=asked, status=200, said="an entry without context, id or status") from error
        newest[context] = max(newest.get(context, (0, "")), (at, state))
    by_state = sorted((context, state) for context, (_, state) in newest.items())
    return Checks(
        tuple(context for context, state in by_state if state in _GREEN),
        tuple(context for context, state in by_state if state in _RED),
        tuple(context for context, state in by_state if state not in _GREEN | _RED),
    )


async def read_approvals(forge: Forge, repo: str, number: int, sha: str) -> Approvals:
    """
    Read who approved exactly this commit, and whose rejection still stands.

    Raises:
        UnansweredError: Some page was not answered, or a review cannot be read.
    """
    path = f"{pulls_path(repo)}/{number}/reviews"
    return standing(await _listed(forge, path), sha, path)


def standing(reviews: Iterable[Any], sha: str, asked: str = "reviews") -> Approvals:
    """
    Each reviewer by the newest review that decides.

    An approval counts for the commit it names, while it is neither stale nor dismissed, and only from somebody whose
    approval the forge counts. A rejection stands over later pushes until it is dismissed or taken back.
    """
    newest: dict[str, tuple[int, str]] = {}
    for review in reviews:
        try:
            who, at, state = str(review["user"]["login"]), names.number(review["id"], "id"), str(review["state"])
            official, dismissed = review["official"] is True, review["dismissed"] is True
            fresh = review["commit_id"] == sha and review["stale"] is False
        except (KeyError, TypeError, InvalidInputError) as error:
            raise UnansweredError(asked=asked, status=200, said="a review without its fields") from error
        if state not in ("APPROVED", "REQUEST_CHANGES") or not official or dismissed:
            continue
        said = "old" if state == "APPROVED" and not fresh else state
        newest[who] = max(newest.get(who, (0, "")), (at, said))
    return Approvals(
        tuple(sorted(who for who, (_, said) in newest.items() if said == "APPROVED")),
        tuple(sorted(who for who, (_, said) in newest.items() if said == "REQUEST_CHANGES")),
    )


async def read_agreed(forge: Forge, history: History, call: Call) -> tuple[Pull, str]:
    """
    Read the pull request, and the commit its branch is at by git; the API's head may be older (R09).

    Raises:
        UnansweredError: No answer, or API and git name different heads.
        JournalError: Git could not be asked.
    """
    pull = await read_pull(forge, call.subject)
    at = await history.branch_at(call) or pull.head  # a deleted branch: the record keeps its last head
    if at != pull.head:
        said = f"the API says {pull.head}, git says {at}"
        raise UnansweredError(asked=f"head of pull request {pull.number}", status=200, said=said)
    return pull, at


@dataclass(frozen=True, slots=True)
class CurrentPull:
    """A change as the forge has it at this moment."""

    head: str
    merged: bool  # the record; False proves nothing
    closed: bool


class GiteaPulls:
    """What the reconciler polls: the pull request, and the head that git and the API agree on."""

    def __init__(self, forge: Forge, head_of: Callable[[Subject], Awaitable[str]]) -> None:
        self._forge, self._head_of = forge, head_of

    async def pull(self, subject: Subject) -> CurrentPull | None:
        """Read a change; None = not answered, or the two name different heads (R09)."""
        try:
            pull = await read_pull(self._forge, subject)
            at = await self._head_of(subject)
        except (JournalError, OSError):
            return None
        if at and at != pull.head:
            return None
        return CurrentPull(pull.head, pull.merged, not pull.is_open)


async def _listed(forge: Forge, path: str) -> list[Any]:
    answer = await forge.list(path)
    if isinstance(answer, Response):
        raise UnansweredError(asked=path, status=answer.status, said=answer.message)
    return answer
