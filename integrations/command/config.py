"""What `[steps.NAME] use = "command"` may say, and which of it cannot work (E4)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from journal.words import Guard

PRESENT, ABSENT, OTHERS, CONFLICT = 0, 10, 11, 12
"""What a probe's exit codes mean; every other code is unknown."""
Argv = tuple[str, ...]
_ExitCode = Annotated[int, Field(ge=1, le=125)]  # 126 and above: the shell's and env's own failures, and signals


class CommandConfig(BaseModel):
    """
    A step by argument lists; nothing here ever goes through a shell.

    Placeholders inside an argument: {task} {repo} {branch} {head} {base} {pr} {key} {generation} {epoch} {attempt}
    {step}, {landed} and {digest} of an earlier step, or {STEP.NAME} of that step's evidence.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    apply: Argv = ()
    probe: Argv = ()
    quiesce: Argv = ()  # installs the fence (fenced), or helps attempts to end (probed)
    guard: Guard = Guard.BLIND
    irreversible: bool = True
    adopts: bool = False
    policy: Literal["", "at-most-once"] = ""  # the explicit consent to an irreversible step that cannot be probed
    lane: str = ""
    drain_s: float = Field(default=0, ge=0, le=86400)  # probed: how long a request may still be on its way
    absent_exit: _ExitCode = ABSENT
    rejected_exit: frozenset[_ExitCode] = frozenset()  # apply: "I did nothing, and nothing of it comes later"
    env: tuple[str, ...] = ()  # names of our environment that the command needs, beside PATH, HOME and the like
    cwd: Path | None = None
    probe_budget_s: float = Field(default=60, gt=0)

    @model_validator(mode="after")
    def _can_work(self) -> Self:
        if faults := list(self._faults()):
            raise ValueError("; ".join(faults))
        return self

    def _faults(self) -> Iterator[str]:
        if self.guard is Guard.AWAITED and (self.apply or not self.probe):
            yield "an awaited step only asks: give `probe`, and no `apply`"
        if self.guard is not Guard.AWAITED and not self.apply:
            yield "`apply` is missing: what shall the step run?"
        if self.guard not in {Guard.AWAITED, Guard.BLIND} and not self.probe:
            yield f"guard `{self.guard}` needs a `probe`"
        if self.guard is Guard.FENCED and not self.quiesce:
            yield "guard `fenced` needs `quiesce`, the command that installs the fence at the far side"
        if self.guard is Guard.PROBED and not (self.drain_s or self.quiesce):
            yield "guard `probed` needs `drain_s`, the longest time an attempt may still take effect after its end"
        if self.guard is Guard.BLIND and self.irreversible and not (self.probe or self.policy):
            yield 'an irreversible step needs a `probe`, or `policy = "at-most-once"` (a doubt then always parks)'
        if self.absent_exit in {OTHERS, CONFLICT}:
            yield f"`absent_exit` cannot be {self.absent_exit}: that code has a meaning of its own"
        for name, argv in (("apply", self.apply), ("probe", self.probe), ("quiesce", self.quiesce)):
            if argv and (not argv[0] or "{" in argv[0]):
                yield f"`{name}` must begin with the program's own name"

    def warnings(self) -> tuple[str, ...]:
        """Name what works but is easily wrong; for `journal doctor` and the start of `serve`."""
        if self.absent_exit != 1:
            return ()
        return ("`absent_exit = 1`: most programs exit with 1 when they fail, which would read as a proof of absence",)
