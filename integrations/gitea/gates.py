"""Gates that ask the forge: "checks green" and "approved" (E12). What cannot be read is unknown, never open."""

from __future__ import annotations

from collections.abc import Awaitable

from pydantic import BaseModel, ConfigDict, Field

from integrations.gitea.client import Forge
from integrations.gitea.history import History
from integrations.gitea.poll import read_agreed, read_approvals, read_checks
from journal.errors import JournalError
from journal.ports import Answer, Call
from journal.words import Opening, evidence


class GiteaChecksConfig(BaseModel):
    """`[gates.checks] use = "gitea-checks"`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    required: tuple[str, ...] = ()  # contexts that must be among the green ones; () = any, but at least one


class GiteaChecksGate:
    """Open when every check of the task's head is green."""

    def __init__(self, config: GiteaChecksConfig, forge: Forge, history: History) -> None:
        self._config, self._forge, self._history = config, forge, history

    async def ask(self, call: Call) -> Answer:
        return await _asked(self._ask(call))

    async def _ask(self, call: Call) -> Answer:
        _, at = await read_agreed(self._forge, self._history, call)
        if moved := _moved(call, at):
            return moved
        checks = await read_checks(self._forge, call.subject.repo, at)
        missing = tuple(name for name in self._config.required if name not in checks.green)
        seen = evidence(source="gitea", head=at, green=len(checks.green), red=", ".join(checks.red)[:300])
        if checks.red:
            return Answer(Opening.CLOSED, seen, f"checks failed: {', '.join(checks.red)[:300]}")
        if checks.pending or missing:
            return Answer(Opening.CLOSED, seen, f"checks not green yet: {', '.join(checks.pending or missing)[:300]}")
        if not checks.green:
            return Answer(Opening.CLOSED, seen, f"no check has reported on {at[:12]} yet")
        return Answer(Opening.OPEN, seen)


class GiteaApprovedConfig(BaseModel):
    """`[gates.approved] use = "gitea-approved"`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    approvals: int = Field(default=1, ge=1, le=20)


class GiteaApprovedGate:
    """Open when enough people approved exactly this head, and nobody's rejection stands."""

    def __init__(self, config: GiteaApprovedConfig, forge: Forge, history: History) -> None:
        self._config, self._forge, self._history = config, forge, history

    async def ask(self, call: Call) -> Answer:
        return await _asked(self._ask(call))

    async def _ask(self, call: Call) -> Answer:
        pull, at = await read_agreed(self._forge, self._history, call)
        if moved := _moved(call, at):
            return moved
        said = await read_approvals(self._forge, call.subject.repo, pull.number, at)
        seen = evidence(source="gitea", head=at, approved=len(said.approved), rejected=len(said.rejected))
        if said.rejected:
            return Answer(Opening.CLOSED, seen, f"changes requested by {', '.join(said.rejected)[:200]}")
        if (count := len(said.approved)) < self._config.approvals:
            return Answer(Opening.CLOSED, seen, f"{count} of {self._config.approvals} approvals of {at[:12]}")
        return Answer(Opening.OPEN, seen)


async def _asked(asking: Awaitable[Answer]) -> Answer:
    try:
        return await asking
    except JournalError as error:
        seen = evidence(source="gitea", reason="cannot_ask")
        return Answer(Opening.UNKNOWN, seen, str(error)[:400])


def _moved(call: Call, at: str) -> Answer | None:
    if at == call.subject.head:
        return None
    seen = evidence(source="gitea", reason="head_moved", head=call.subject.head, branch_at=at)
    return Answer(Opening.CLOSED, seen, f"the branch is at {at[:12]}, the task is about {call.subject.head[:12]}")
