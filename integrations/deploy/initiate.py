"""`deploy_init`: creating the marker *is* the effect; what it led to is asked elsewhere (finding 8, V10)."""

from __future__ import annotations

from integrations.deploy import markers
from integrations.deploy.config import SelfDeployConfig
from integrations.deploy.launch import ensure_deployer
from integrations.deploy.markers import Initiated, NotLinkedError, UnreadableError
from integrations.deploy.target import IsAncestor, Running, includes, outcome, target_of
from journal.ports import Call, Clock, Finding, Reply, Traits
from journal.words import Evidence, Fact, Guard, Outcome, Scalar, evidence

_LOOK_S = 0.25
_TEXT_LIMIT = 400


class SelfDeploy:
    """
    Hand the deploy of this service over to the deployer, once for each key.

    Args:
        config: The folder of the markers, the command, the environment.
        clock: Dates the marker and paces the wait for our own end.
        running: Asks which commit runs now.
        is_ancestor: Asks whether one commit includes another, for deploys that are superseded.
    """

    def __init__(self, config: SelfDeployConfig, clock: Clock, running: Running, is_ancestor: IsAncestor) -> None:
        self._config, self._clock = config, clock
        self._running, self._is_ancestor = running, is_ancestor
        self._traits = Traits(
            guard=Guard.EXCLUSIVE,
            irreversible=True,
            adopts=False,
            ends_owner=True,
            lane=f"deploy:{config.environment}",
        )

    @property
    def traits(self) -> Traits:
        return self._traits

    async def probe(self, call: Call) -> Finding:
        """Read the marker. Ours: never initiate again. None: nothing was handed over, unless a newer deploy was."""
        target = target_of(call, self._config.merge_step)
        try:
            marker = markers.read_initiated(self._config.folder, call.key)
            if marker is None:
                return await self._superseded(target)
        except UnreadableError as error:
            return _unknown(str(error))
        seen = _seen(marker) + self._ended(call.key)
        return Finding(_whose(marker, call, target), tuple(sorted(seen)))

    async def apply(self, call: Call) -> Reply:
        """
        Link the marker, start the deployer, and wait to be killed (V10).

        Never claims success: what follows is asked by a probe, of ours or of our successor. Linking and syncing are
        done right here and not in a thread, which could still link after we were cancelled.
        """
        started_s = self._clock.monotonic_s()
        try:
            marker = self._marker(call)
            markers.write(markers.initiated_path(self._config.folder, call.key), marker)
        except (NotLinkedError, UnreadableError) as error:
            return Reply(Outcome.REJECTED, _reason(f"not handed over: {error}"))
        except OSError as error:  # a marker of this key is there already, or the link is in doubt: the probe tells
            return Reply(Outcome.UNKNOWN, _reason(str(error)))
        try:
            await ensure_deployer(self._config)
        except (OSError, UnreadableError) as error:
            return Reply(Outcome.UNKNOWN, _reason(f"handed over, but no deployer was started: {error}"))
        return await self._wait_for_the_end(call, started_s)

    async def quiesce(self, call: Call) -> None:
        """Do nothing: link() refuses a second marker of a key, so absence needs no help."""

    async def _wait_for_the_end(self, call: Call, started_s: float) -> Reply:
        while self._clock.monotonic_s() - started_s < call.budget_s:
            if seen := self._ended(call.key):
                return Reply(Outcome.UNKNOWN, tuple(sorted((*seen, ("reason", "the deployer ended and we live")))))
            await self._clock.sleep(_LOOK_S)
        return Reply(Outcome.UNKNOWN, _reason("handed over; still alive at the end of the budget"))

    def _marker(self, call: Call) -> Initiated:
        target = target_of(call, self._config.merge_step)
        if not target:
            raise NotLinkedError(why=f"step {self._config.merge_step} left no landed commit")
        others, bad = markers.all_initiated(self._config.folder)
        if bad:
            raise NotLinkedError(why=f"{bad[0]} cannot be believed, so the order of the deploys is not known")
        return Initiated(
            key=call.key,
            epoch=call.epoch,
            attempt=call.attempt,
            journal=call.journal_id,
            cites=f"{call.anchor.position}:{call.anchor.hash}" if call.anchor else "",
            main_sha=target,
            digest=outcome(call, self._config.build_step, "digest"),
            environment=self._config.environment,
            order=1 + max((other.order for other in others), default=0),
            at_us=self._clock.now_us(),
        )

    async def _superseded(self, target: str) -> Finding:
        """Tell absent from overtaken: the running or last initiated version includes our target already (DESIGN 6)."""
        absent = evidence(source="marker", folder=str(self._config.folder), target=target)
        if not target:
            return _unknown(f"step {self._config.merge_step} left no landed commit")
        newer = {"running": await self._running() or "", "initiated": self._last_initiated()}
        answers = {
            source: await includes(commit, target, self._is_ancestor) for source, commit in newer.items() if commit
        }
        for source, answer in answers.items():
            if answer:
                by = evidence(superseded=True, superseded_by=newer[source], superseded_where=source)
                return Finding(Fact.OTHERS, tuple(sorted((*absent, *by))))
        if None in answers.values():
            return _unknown(f"cannot tell whether {target} is superseded by {newer}")
        return Finding(Fact.ABSENT, absent)

    def _last_initiated(self) -> str:
        """Find the target handed over last, of those whose command did not fail."""
        found, bad = markers.all_initiated(self._config.folder)
        if bad:
            raise UnreadableError(what=bad[0], why="cannot be believed; what was initiated last is not known")
        for marker in reversed(found):
            if marker.environment == self._config.environment:
                result = markers.read_result(self._config.folder, marker.key)
                if result is None or result.ok:
                    return marker.main_sha
        return ""

    def _ended(self, key: str) -> Evidence:
        try:
            result = markers.read_result(self._config.folder, key)
        except UnreadableError as error:
            return (("result", f"unreadable: {error}"),)
        if result is None:
            return ()
        return (("result", "ok" if result.ok else "failed"), ("result_code", result.code))


def _whose(marker: Initiated, call: Call, target: str) -> Fact:
    if marker.journal != call.journal_id:
        return Fact.OTHERS
    # A later epoch than any we know: this journal is an older copy (V8). Another target: one of the two is wrong.
    if marker.epoch > call.epoch or (target and marker.main_sha != target):
        return Fact.CONFLICT
    return Fact.OURS


def _seen(marker: Initiated) -> Evidence:
    facts: dict[str, Scalar] = {
        "source": "marker",
        "journal": marker.journal,
        "fence": f"{marker.epoch}.{marker.attempt}",
        "cites": marker.cites,
        "main_sha": marker.main_sha,
        "digest": marker.digest,
        "environment": marker.environment,
    }
    return tuple(facts.items())


def _unknown(reason: str) -> Finding:
    return Finding(Fact.UNKNOWN, _reason(reason))


def _reason(text: str) -> Evidence:
    return evidence(source="marker", reason=text[:_TEXT_LIMIT])
