"""What the forge does to its repository: merge styles with real git, so that every fact of ancestry is true."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.widgets import run_git


class PushRefusedError(Exception):
    """The base moved while merging: the forge's own push is not forced."""


class ConflictError(Exception):
    """The change does not merge cleanly."""


class NothingToCommitError(Exception):
    """A squash of what is there already (gitea.md 1.7)."""


@dataclass(frozen=True, slots=True)
class Merging:
    """One merge, made in two steps as the forge does: a commit aside, then a push of the base."""

    repository: Path
    base: str
    head: str
    old: str

    def made(self, style: str, message: str, number: int) -> str:
        """Make what would be pushed."""
        if style == "fast-forward-only":
            return self.head
        if style == "merge" and self._is_ancestor(self.head):
            raise ConflictError  # status 'ancestor'
        done = self._git("merge-tree", "--write-tree", self.old, self.head, fails=True)
        if not done:
            raise ConflictError
        tree = done.splitlines()[0]
        if style == "squash" and tree == self._git("rev-parse", f"{self.old}^{{tree}}"):
            raise NothingToCommitError
        parents = ["-p", self.old, *(["-p", self.head] if style == "merge" else [])]
        if style == "rebase":
            message = f"{self._git('log', '-1', '--format=%B', self.head)}\n\nrebased for {number}"
        return self._git("commit-tree", tree, *parents, "-m", message.rstrip("\n"))

    def push(self, new: str) -> None:
        """Move the base, if it is where it was."""
        try:
            self._git("update-ref", f"refs/heads/{self.base}", new, self.old)
        except AssertionError as error:
            raise PushRefusedError from error

    def _is_ancestor(self, sha: str) -> bool:
        return self._git("merge-base", sha, self.old) == sha

    def _git(self, *argv: str, fails: bool = False) -> str:
        try:
            return run_git(self.repository, *argv)
        except AssertionError:
            if fails:
                return ""
            raise
