"""`deploy_verified`: handed over is not done; done is the target running (R63, R67, FR-4)."""

from __future__ import annotations

from integrations.deploy import markers
from integrations.deploy.config import DeployVerifiedConfig
from integrations.deploy.markers import Result, UnreadableError
from integrations.deploy.target import IsAncestor, Running, includes, target_of
from journal.ports import Call, Finding, Reply, Traits
from journal.words import Fact, Guard, Outcome, Scalar, evidence

_TAIL_LIMIT = 1000


class DeployVerified:
    """
    Wait until the running version is the target or a descendant of it.

    Args:
        config: The folder of the markers and the names of the steps before.
        running: Asks which commit runs now.
        is_ancestor: Asks whether one commit includes another.
    """

    def __init__(self, config: DeployVerifiedConfig, running: Running, is_ancestor: IsAncestor) -> None:
        self._config, self._running, self._is_ancestor = config, running, is_ancestor

    @property
    def traits(self) -> Traits:
        return Traits(guard=Guard.AWAITED, irreversible=False, adopts=True)

    async def probe(self, call: Call) -> Finding:
        """Ask what runs first: a RESULT only explains why it is not the target."""
        target, running = target_of(call, self._config.merge_step), await self._running()
        seen: dict[str, Scalar] = {"source": "running", "target": target, "running": running}
        key = f"{call.subject.task}/{call.generation}/{self._config.init_step}"
        try:
            result = markers.read_result(self._config.folder, key)
        except UnreadableError as error:
            result, seen["result"] = None, f"unreadable: {error}"
        if result:
            seen |= _ended(result)
        fact = await self._fact(target, running, result)
        return Finding(fact, evidence(**seen, superseded=fact is Fact.OTHERS))

    async def apply(self, call: Call) -> Reply:
        """Refuse: an awaited step has no effect."""
        return Reply(Outcome.REJECTED, evidence(source="running", reason="this step only asks"))

    async def quiesce(self, call: Call) -> None:
        """Do nothing: there is no attempt."""

    async def _fact(self, target: str, running: str | None, result: Result | None) -> Fact:
        if not target or not running:
            return Fact.UNKNOWN
        if running == target:
            return Fact.OURS
        newer = await includes(running, target, self._is_ancestor)
        if newer:
            return Fact.OTHERS
        if result and not result.ok:
            return Fact.CONFLICT  # the command failed and the old version runs: waiting longer cannot help (R62)
        return Fact.UNKNOWN if newer is None else Fact.ABSENT


def _ended(result: Result) -> dict[str, Scalar]:
    told: dict[str, Scalar] = {"result": "ok" if result.ok else "failed", "result_code": result.code}
    if not result.ok:
        told["tail"] = "".join(char if char.isprintable() else " " for char in result.tail[-_TAIL_LIMIT:])
    return told
