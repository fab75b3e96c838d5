"""`command`: a step by argument lists. Exit codes are claims and answers, and most of them mean unknown (E6, V2)."""

from __future__ import annotations

import json

from integrations.command.config import CONFLICT, OTHERS, PRESENT, CommandConfig
from integrations.command.placeholders import MissingValueError, environment, fill, unknown_names
from journal.children import Exit, child_env, run_child
from journal.errors import JournalError, PipelineError
from journal.names import MAX_INTEGER
from journal.ports import Call, Clock, Finding, Reply, Traits
from journal.words import Evidence, Fact, Guard, Outcome, Scalar, evidence

_TEXT_LIMIT = 500
_PAIRS_LIMIT = 20


class FenceNotInstalledError(JournalError):
    """Absence could not be made stable: the run must end here, since "absent" would now prove nothing (V4)."""

    def __init__(self, *, step: str, why: str) -> None:
        self.step, self.why = step, why
        super().__init__(f"step {step}: `quiesce` failed: {why}")


class CommandStep:
    """
    One step of the user's own, by its configuration.

    Args:
        name: The step's name, for messages.
        config: What `[steps.NAME]` says.
        clock: Waits for the drain of a `probed` step.

    Raises:
        PipelineError: A placeholder that no call can fill.
    """

    def __init__(self, name: str, config: CommandConfig, clock: Clock) -> None:
        self._config, self._clock = config, clock
        if unknown := unknown_names((*config.apply, *config.probe, *config.quiesce)):
            raise PipelineError(where=f"steps.{name}", why=f"unknown placeholder {{{unknown[0]}}}")
        self._traits = Traits(
            guard=config.guard,
            irreversible=config.irreversible and config.guard is not Guard.AWAITED,
            adopts=config.adopts,
            lane=config.lane,
        )

    @property
    def traits(self) -> Traits:
        return self._traits

    async def probe(self, call: Call) -> Finding:
        """Run `probe`; only its own codes are answers. Without one nothing can be known."""
        if not self._config.probe:
            return Finding(Fact.UNKNOWN, evidence(source="command", reason="the step has no probe"))
        try:
            ended = await self._run(self._config.probe, call, min(call.budget_s, self._config.probe_budget_s))
        except (OSError, MissingValueError) as error:
            return Finding(Fact.UNKNOWN, evidence(source="command", reason=_clean(str(error))))
        return Finding(self._fact(ended), _seen(ended, _said(ended.text)))

    async def apply(self, call: Call) -> Reply:
        """Run `apply` once. Only a program that never started, or a listed refusal, is `rejected` (E6)."""
        try:
            ended = await self._run(self._config.apply, call, call.budget_s)
        except (OSError, MissingValueError) as error:
            return Reply(Outcome.REJECTED, evidence(source="command", reason=f"not started: {_clean(str(error))}"))
        return Reply(self._outcome(ended), _seen(ended, _said(ended.text)))

    async def quiesce(self, call: Call) -> None:
        """
        Install the fence, then wait until no earlier attempt can still take effect.

        Raises:
            FenceNotInstalledError: The command did not succeed.
        """
        if self._config.quiesce:
            try:
                ended = await self._run(self._config.quiesce, call, call.budget_s)
            except (OSError, MissingValueError) as error:
                raise FenceNotInstalledError(step=call.step, why=str(error)) from error
            if ended.code != 0:
                raise FenceNotInstalledError(step=call.step, why=f"exit {ended.code}: {_clean(ended.tail)}")
        if self._config.guard is Guard.PROBED and self._config.drain_s:
            await self._clock.sleep(self._config.drain_s)

    async def _run(self, argv: tuple[str, ...], call: Call, budget_s: float) -> Exit:
        config = self._config
        env = child_env(config.env, **environment(call))
        return await run_child(fill(argv, call), budget_s=budget_s, term=call.term, env=env, cwd=config.cwd)

    def _fact(self, ended: Exit) -> Fact:
        answers = {
            PRESENT: Fact.OURS,
            self._config.absent_exit: Fact.ABSENT,
            OTHERS: Fact.OTHERS,
            CONFLICT: Fact.CONFLICT,
        }
        return Fact.UNKNOWN if ended.timed_out else answers.get(ended.code, Fact.UNKNOWN)

    def _outcome(self, ended: Exit) -> Outcome:
        if ended.timed_out:
            return Outcome.UNKNOWN
        if ended.code == 0:
            return Outcome.APPLIED
        # Something of it that lives on could still act, so its refusal is no longer a promise.
        refused = ended.code in self._config.rejected_exit and not ended.left_behind
        return Outcome.REJECTED if refused else Outcome.UNKNOWN


def _seen(ended: Exit, said: dict[str, Scalar]) -> Evidence:
    facts: dict[str, Scalar] = {"source": "command", "exit": ended.code}
    if ended.timed_out:
        facts["timed_out"] = True
    if ended.left_behind:
        facts["left_behind"] = True
    if ended.code != 0 and ended.tail:
        facts["tail"] = _clean(ended.tail)
    return tuple(sorted((said | facts).items()))


def _said(text: str) -> dict[str, Scalar]:
    """Read what a command prints: a JSON object of scalars becomes evidence by name, anything else its first line."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict) and all(isinstance(item, str | int | float | None) for item in value.values()):
        return {_clean(name)[:64]: _scalar(item) for name, item in list(value.items())[:_PAIRS_LIMIT]}
    line = text.strip().split("\n", 1)[0]
    return {"said": _clean(line)} if line else {}


def _scalar(value: str | float | None) -> Scalar:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) <= MAX_INTEGER:
        return value
    return _clean(str(value))  # evidence holds no floats: they do not compare


def _clean(text: str) -> str:
    """Make foreign text storable: no control characters, nothing that UTF-8 cannot hold (R101, R102)."""
    storable = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(char if char.isprintable() else " " for char in storable)[:_TEXT_LIMIT]
