"""
Calling git: one fixed environment for every command (git-facts 2).

No user or system configuration, no hooks, no replace refs, no helper that could outlive the command and carry the
task's lock on (E5). A question that git could not answer raises `GitError`: exit 128 is never "no" (R26), and neither
is a time-out, a truncated answer or a broken ref.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from journal.children import Exit, child_env, run_child
from journal.errors import JournalError
from journal.ports import Call, Term

ANSWER_LIMIT = 64 << 20
"""Bytes of one answer; a longer one is cut and therefore no answer."""
_NEVER_STARTED = 127
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsync=committed,reference",
    "core.fsyncMethod=fsync",
    "core.logAllRefUpdates=always",
    "core.commitGraph=false",  # it can name commits whose objects are gone
    "core.fsmonitor=false",
    "advice.graftFileDeprecated=false",  # ours is empty and meant
    "core.filesRefLockTimeout=2000",  # milliseconds; a transaction that syncs takes longer than the default waits
    "gc.auto=0",
    "maintenance.auto=false",
    "credential.helper=",
    "http.followRedirects=false",  # a token is for one host
    "i18n.commitEncoding=UTF-8",
    "i18n.logOutputEncoding=UTF-8",
    "log.showSignature=false",
)
_ENVIRONMENT = {
    "LC_ALL": "C",
    "TZ": "UTC",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_GRAFT_FILE": "/dev/null",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}


class GitError(JournalError):
    """Git did not answer the question: it failed, was ended by its budget, or said too much to be read whole."""

    def __init__(self, *, command: str, code: int, said: str) -> None:
        self.command, self.code, self.said = command, code, said
        super().__init__(f"git {command}: exit {code}: {said or 'it said nothing'}")

    @property
    def never_started(self) -> bool:
        """The program could not be started, so nothing can have happened."""
        return self.code == _NEVER_STARTED


@dataclass(frozen=True, slots=True)
class Commands:
    """Git on one repository, within a budget."""

    path: Path
    budget_s: float = 60.0
    term: Term | None = None
    deadline_s: float | None = None  # on the event loop's clock
    header: str = field(default="", repr=False)  # sent to an HTTP remote; may hold a token, so never an argument

    def within(self, call: Call) -> Self:
        """The same repository, its commands bound to the call's budget and carrying the task's lock (E5, E9)."""
        deadline_s = asyncio.get_running_loop().time() + call.budget_s
        return replace(self, term=call.term if call.term.fd >= 0 else None, deadline_s=deadline_s)

    async def ask(
        self, *argv: str, stdin: bytes = b"", extra: Mapping[str, str] | None = None, answers: Sequence[int] = (0,)
    ) -> Exit:
        """
        Ask git something; only these exit codes are answers.

        Raises:
            GitError: Any other code, or more than can be read whole.
        """
        done = await self.git(*argv, stdin=stdin, extra=extra)
        if done.code not in answers or len(done.out) >= ANSWER_LIMIT:
            raise GitError(command=argv[0], code=done.code, said=done.tail)
        return done

    async def git(self, *argv: str, stdin: bytes = b"", extra: Mapping[str, str] | None = None) -> Exit:
        """
        Run git to its end, whatever its exit code.

        Raises:
            GitError: It could not be started, or was ended by its budget or a signal.
        """
        command = ["git", f"--git-dir={self.path}"]
        for setting in _SETTINGS:
            command += ["-c", setting]
        try:
            done = await run_child(
                [*command, *argv],
                budget_s=self._left_s(),
                term=self.term,
                env=child_env(**_ENVIRONMENT, **self._header(), **(extra or {})),
                stdin=stdin,
                keep=ANSWER_LIMIT,
            )
        except OSError as error:
            raise GitError(command=argv[0], code=_NEVER_STARTED, said=str(error)) from error
        if done.timed_out or done.code < 0 or done.left_behind:
            raise GitError(command=argv[0], code=done.code, said="ended by its budget or a signal")
        return done

    def _header(self) -> dict[str, str]:
        if not self.header:
            return {}
        return {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "http.extraHeader", "GIT_CONFIG_VALUE_0": self.header}

    def _left_s(self) -> float:
        if self.deadline_s is None:
            return self.budget_s
        return min(self.budget_s, self.deadline_s - asyncio.get_running_loop().time())
