"""
Handing a deploy over to a helper of the host: a container or a unit that is named by the key's hash.

Starting it under that name *is* the effect: the host refuses a second one of the same name, its labels say whose it is,
and what it ended with stays readable for the successor. Nothing here ever says that a deploy is done (V10; R59-R67).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from integrations.deploy.markers import stem
from integrations.deploy.target import IsAncestor, Running, includes, outcome, target_of
from journal.errors import JournalError
from journal.ports import Call, Clock, Finding, Reply, Traits
from journal.words import Evidence, Fact, Guard, Outcome, Scalar, evidence

_LOOK_S = 0.5
_TEXT_LIMIT = 400
_TAIL_LIMIT = 1000
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")]


class HandOverConfig(BaseModel):
    """What both kinds of helper may be told."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: tuple[str, ...] = Field(min_length=1)  # {target} {digest} {key} {environment} are filled in
    environment: _Name = "production"
    merge_step: _Name = "merge_pr"  # its `landed` is the target
    build_step: _Name = "rebuild"  # its `digest`, if there is one, is what shall run


class HandOverVerifiedConfig(BaseModel):
    """Which hand-over is waited for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    init_step: _Name = "deploy_init"
    merge_step: _Name = "merge_pr"


State = Literal["claimed", "running", "ended", "broken"]
"""`claimed`: the name is taken, nothing ran yet. `broken`: it could not be started and never ran."""


@dataclass(frozen=True, slots=True)
class Helper:
    """One helper as the host shows it now."""

    labels: Mapping[str, str]  # the words of `order` below
    state: State
    code: int = 0  # exit code, when it ended
    said: str = ""  # why it is broken


@dataclass(frozen=True, slots=True)
class Order:
    """What a helper is asked to do, and for whom."""

    name: str
    labels: Mapping[str, str]
    command: tuple[str, ...]


class NotStartedError(JournalError):
    """The helper's starter itself could not be started: nothing has left this machine."""


class Records(Protocol):
    """What the host remembers of helpers; every method raises `JournalError` for "cannot tell"."""

    async def find(self, name: str, call: Call) -> Helper | None:
        """Look for a helper; None is the host's own answer that there is none."""
        ...

    async def last(self, environment: str, call: Call) -> Helper | None:
        """The helper started last for an environment, of those that did not fail."""
        ...

    async def tail(self, name: str, call: Call) -> str:
        """The end of what a helper said; "" when that cannot be read."""
        ...


class Host(Records, Protocol):
    """Where helpers run."""

    async def start(self, order: Order, call: Call) -> str:
        """
        Start a helper unless its name is taken; says in words what the host answered, "" when it claims success.

        Raises:
            NotStartedError: Nothing was asked of the host.
        """
        ...


def helper_name(key: str) -> str:
    """Name the helper of a key: by its hash, never of the epoch, so that no second one can be started (R100)."""
    return f"deploy-{stem(key)[:32]}"


class HandOver:
    """
    Hand the deploy over to a helper, once for each key.

    Args:
        config: The command, the environment.
        host: Where the helper runs.
        clock: Paces the wait for our own end.
        running: Asks which commit runs now.
        is_ancestor: Asks whether one commit includes another, for deploys that are superseded.
    """

    def __init__(
        self, config: HandOverConfig, host: Host, clock: Clock, running: Running, is_ancestor: IsAncestor
    ) -> None:
        self._config, self._host, self._clock = config, host, clock
        self._running, self._is_ancestor = running, is_ancestor

    @property
    def traits(self) -> Traits:
        return Traits(
            Guard.EXCLUSIVE, irreversible=True, adopts=False, ends_owner=True, lane=f"deploy:{self._config.environment}"
        )

    async def probe(self, call: Call) -> Finding:
        """Look for the helper. Ours: never initiate again. None: nothing was handed over, unless a newer deploy was."""
        target = target_of(call, self._config.merge_step)
        try:
            helper = await self._host.find(helper_name(call.key), call)
            if helper is None:
                return await self._superseded(target, call)
        except JournalError as error:
            return _unknown(str(error))
        fact, reason = _whose(helper, call, target)
        return Finding(fact, evidence(**_seen(helper), **({"reason": reason} if reason else {})))

    async def apply(self, call: Call) -> Reply:
        """Start the helper and wait to be ended by it. Never claims success: a probe tells, ours or the successor's."""
        started_s = self._clock.monotonic_s()
        target = target_of(call, self._config.merge_step)
        if not target:
            return Reply(Outcome.REJECTED, _reason(f"step {self._config.merge_step} left no landed commit"))
        try:
            refused = await self._host.start(self._order(call, target), call)
            if refused:  # the name is taken, or the host said no: whether it is there is for the probe to say
                return Reply(Outcome.UNKNOWN, _reason(refused))
            while self._clock.monotonic_s() - started_s < call.budget_s:
                helper = await self._host.find(helper_name(call.key), call)
                if helper is None or helper.state not in ("running", "claimed"):
                    return Reply(Outcome.UNKNOWN, _reason("the helper ended and we live"))
                await self._clock.sleep(_LOOK_S)
        except NotStartedError as error:
            return Reply(Outcome.REJECTED, _reason(f"not handed over: {error}"))
        except JournalError as error:
            return Reply(Outcome.UNKNOWN, _reason(str(error)))
        return Reply(Outcome.UNKNOWN, _reason("handed over; still alive at the end of the budget"))

    async def quiesce(self, call: Call) -> None:
        """Do nothing: the host refuses a second helper of a name, so absence needs no help."""

    def _order(self, call: Call, target: str) -> Order:
        labels = {
            "key": call.key,
            "fence": f"{call.epoch}.{call.attempt}",
            "journal": call.journal_id,
            "cites": f"{call.anchor.position}:{call.anchor.hash}" if call.anchor else "",
            "target": target,
            "digest": outcome(call, self._config.build_step, "digest"),
            "environment": self._config.environment,
        }
        command = tuple(_filled(part, labels) for part in self._config.command)
        return Order(helper_name(call.key), labels, command)

    async def _superseded(self, target: str, call: Call) -> Finding:
        """Tell absent from overtaken: what runs, or was handed over last, includes our target already (DESIGN 6)."""
        if not target:
            return _unknown(f"step {self._config.merge_step} left no landed commit")
        last = await self._host.last(self._config.environment, call)
        newer = {"running": await self._running() or "", "initiated": last.labels.get("target", "") if last else ""}
        answers = {where: await includes(sha, target, self._is_ancestor) for where, sha in newer.items() if sha}
        seen: dict[str, Scalar] = {"source": "helper", "helper": helper_name(call.key), "target": target}
        for where, answer in answers.items():
            if answer:
                seen |= {"superseded": True, "superseded_by": newer[where], "superseded_where": where}
                return Finding(Fact.OTHERS, evidence(**seen))
        if None in answers.values():
            return _unknown(f"cannot tell whether {target} is superseded by {newer}")
        return Finding(Fact.ABSENT, evidence(**seen))


class HandOverVerified:
    """
    Wait until the running version is the target or a descendant of it (R63, R67).

    Args:
        config: The names of the steps before.
        records: Tell how the helper ended, to explain why the target does not run.
        running: Asks which commit runs now.
        is_ancestor: Asks whether one commit includes another.
    """

    def __init__(
        self, config: HandOverVerifiedConfig, records: Records, running: Running, is_ancestor: IsAncestor
    ) -> None:
        self._config, self._records = config, records
        self._running, self._is_ancestor = running, is_ancestor

    @property
    def traits(self) -> Traits:
        return Traits(Guard.AWAITED, irreversible=False, adopts=True)

    async def probe(self, call: Call) -> Finding:
        """Ask what runs first; the helper only explains why it is not the target."""
        target, running = target_of(call, self._config.merge_step), await self._running()
        seen: dict[str, Scalar] = {"source": "running", "target": target, "running": running}
        if not target or not running:
            return Finding(Fact.UNKNOWN, evidence(**seen))
        newer = await includes(running, target, self._is_ancestor)
        if newer:
            return Finding(Fact.OURS if running == target else Fact.OTHERS, evidence(**seen))
        name = helper_name(f"{call.subject.task}/{call.generation}/{self._config.init_step}")
        try:
            helper = await self._records.find(name, call)
            failed = helper is not None and (helper.state == "broken" or (helper.state == "ended" and helper.code != 0))
            if helper and failed:  # the command failed and the old version runs: waiting longer cannot help (R62)
                seen |= {"state": helper.state, "code": helper.code}
                seen["tail"] = _clean(helper.said or await self._records.tail(name, call), _TAIL_LIMIT)
                return Finding(Fact.CONFLICT, evidence(**seen))
        except JournalError as error:
            seen["helper"] = _clean(str(error), _TEXT_LIMIT)
        return Finding(Fact.UNKNOWN if newer is None else Fact.ABSENT, evidence(**seen))

    async def apply(self, call: Call) -> Reply:
        """Refuse: an awaited step has no effect."""
        return Reply(Outcome.REJECTED, _reason("this step only asks"))

    async def quiesce(self, call: Call) -> None:
        """Do nothing: there is no attempt."""


def _whose(helper: Helper, call: Call, target: str) -> tuple[Fact, str]:
    labels = helper.labels
    if labels.get("key") != call.key:
        return Fact.CONFLICT, "a helper of this name says it belongs to another key"
    if labels.get("journal") != call.journal_id:
        return Fact.OTHERS, ""
    epoch = labels.get("fence", "").partition(".")[0]
    # A later epoch than any we know: this journal is an older copy (V8). Another target: one of the two is wrong.
    if not epoch.isdecimal() or int(epoch) > call.epoch or (target and labels.get("target") != target):
        return Fact.CONFLICT, "its fence or target is not one this journal can have given"
    if helper.state == "broken":
        return Fact.CONFLICT, f"it could not be started: {_clean(helper.said, _TEXT_LIMIT)}"
    if helper.state == "claimed":
        # Killed between taking the name and starting. Starting it here could run a fast one twice.
        return Fact.UNKNOWN, "its name is taken but it never ran; start it, or remove it and retry"
    return Fact.OURS, ""


def _seen(helper: Helper) -> dict[str, Scalar]:
    words = ("journal", "fence", "cites", "target", "digest", "environment")
    told: dict[str, Scalar] = {word: _clean(helper.labels.get(word, ""), _TEXT_LIMIT) for word in words}
    ended = {"code": helper.code} if helper.state == "ended" else {}
    return {"source": "helper", "state": helper.state, **told, **ended}


def _filled(part: str, labels: Mapping[str, str]) -> str:
    for word in ("target", "digest", "key", "environment"):
        part = part.replace(f"{{{word}}}", labels[word])
    return part


def _unknown(reason: str) -> Finding:
    return Finding(Fact.UNKNOWN, _reason(reason))


def _reason(text: str) -> Evidence:
    return evidence(source="helper", reason=_clean(text, _TEXT_LIMIT))


def _clean(text: str, limit: int) -> str:
    """Make foreign text storable: no control characters (R101)."""
    return "".join(char if char.isprintable() else " " for char in text)[-limit:]
