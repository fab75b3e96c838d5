"""
What the forge is told about a task: a commit status and one comment on its pull request. Telling twice changes nothing.

Views for people, never facts: nothing here is read back to decide anything (R75).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from integrations.gitea.client import Forge, Response
from integrations.gitea.pulls import UnansweredError, repo_path
from journal import names
from journal.errors import InvalidInputError

State = Literal["pending", "success", "error", "failure"]
TEXT_LIMIT = 60_000


@dataclass(frozen=True, slots=True)
class StatusReport:
    """One commit status."""

    sha: str
    context: str  # of ours alone: each context shows its newest entry
    state: State
    description: str = ""
    target_url: str = ""


class GiteaReports:
    """Writes statuses and comments under one account."""

    def __init__(self, forge: Forge) -> None:
        self._forge = forge
        self._login = ""

    async def status(self, repo: str, report: StatusReport) -> bool:
        """
        Post a status unless the context shows exactly this already: the forge appends, it never updates.

        Returns:
            Whether something was posted.

        Raises:
            UnansweredError: The forge did not answer; asking again is safe.
        """
        path = f"{repo_path(repo)}/statuses/{names.commit_id(report.sha)}"
        entries = [e for e in await self._listed(path) if isinstance(e, dict) and e.get("context") == report.context]
        newest = max(entries, key=_id, default={})
        wanted = {"description": report.description[:250], "target_url": report.target_url}
        if newest.get("status") == report.state and all((newest.get(k) or "") == v for k, v in wanted.items()):
            return False
        await self._send("POST", path, {"context": report.context, "state": report.state, **wanted})
        return True

    async def comment(self, repo: str, number: int, mark: str, text: str) -> bool:
        """
        Keep one comment of ours per `mark` on a pull request: posted once, then edited in place.

        The mark is a stable id; it stands in the comment's last line, invisible to readers.

        Returns:
            Whether something was written.

        Raises:
            UnansweredError: The forge did not answer; asking again is safe.
        """
        line = f"<!-- transition-journal: {names.word(mark, 'mark')} -->"
        body = f"{text[:TEXT_LIMIT]}\n\n{line}"
        issues = f"{repo_path(repo)}/issues"
        me, listed = await self._me(), await self._listed(f"{issues}/{number}/comments")
        mine = [comment for comment in listed if self._is_ours(comment, me, line)]
        if not mine:
            await self._send("POST", f"{issues}/{number}/comments", {"body": body})
            return True
        first = min(mine, key=_id)
        if first["body"] == body:
            return False
        await self._send("PATCH", f"{issues}/comments/{_id(first)}", {"body": body})
        return True

    @staticmethod
    def _is_ours(comment: Any, me: str, line: str) -> bool:
        """Anyone can copy a mark into a comment; only our own account's counts."""
        try:
            return comment["user"]["login"] == me and str(comment["body"]).rstrip().endswith(line)
        except (KeyError, TypeError):
            return False

    async def _me(self) -> str:
        if not self._login:
            answer = await self._forge.get("/user")
            login = answer.data.get("login") if isinstance(answer.data, dict) else None
            if answer.status != 200 or not isinstance(login, str):
                raise UnansweredError(asked="/user", status=answer.status, said=answer.message)
            self._login = login
        return self._login

    async def _listed(self, path: str) -> list[Any]:
        answer = await self._forge.list(path)
        if isinstance(answer, Response):
            raise UnansweredError(asked=path, status=answer.status, said=answer.message)
        return answer

    async def _send(self, method: str, path: str, body: dict[str, Any]) -> None:
        answer = await self._forge.send(method, path, body)
        if answer.status not in (200, 201):
            raise UnansweredError(asked=path, status=answer.status, said=answer.message)


def _id(entry: Any) -> int:
    """
    The id of an entry of ours.

    Raises:
        UnansweredError: It has none, so nobody can tell which is which.
    """
    try:
        return names.number(entry["id"], "id")
    except (KeyError, TypeError, InvalidInputError) as error:
        raise UnansweredError(asked="entries of ours", status=200, said="one without an id") from error
