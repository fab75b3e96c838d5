"""
The ports: what the engine's shell needs from outside, as small Protocols (DESIGN 1, 6).

Adapters in `integrations` implement `StepAdapter` and `Gate`; the simulator in `recovery.prove` answers the same
questions over a simulated world. An adapter never decides: it performs, asks, and reports what it saw.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from journal.words import Evidence, Fact, Guard, Opening, Outcome


@dataclass(frozen=True, slots=True)
class Subject:
    """What a task is about; stands in `opened`, changed only by `head_changed` and `reopened`."""

    task: str
    repo: str
    branch: str
    head: str = ""  # full commit id of the change; "" when the task has none yet
    base: str = "main"  # the branch it goes to
    pr: int = 0  # number of the pull request; 0 = none


@dataclass(frozen=True, slots=True)
class Anchor:
    """A place in the log that an effect can cite (A4)."""

    position: int
    hash: str  # 64 hex digits


class Term(Protocol):
    """One term of ownership as an adapter sees it: the task's lock, which every child of a step inherits (E5)."""

    @property
    def fd(self) -> int:
        """The lock's descriptor, to be passed to children."""
        ...

    def child_started(self, group: int) -> None:
        """Tell the process group beside the lock, so that a reaper can end it."""
        ...

    def child_ended(self, group: int) -> None:
        """No longer tell it."""
        ...


@dataclass(frozen=True, slots=True)
class Call:
    """One question or order to an adapter about one step of one task."""

    journal_id: str
    subject: Subject
    generation: int
    step: str
    epoch: int
    attempt: int  # apply: this attempt; quiesce: the next one; probe: the last one, 0 = none yet
    budget_s: float  # what is left of the step's budget; the adapter ends its children by then
    term: Term
    anchor: Anchor | None = None  # the intent of this attempt (apply only)
    expected: Evidence = ()  # apply: what the probe right before the intent saw
    outcomes: Mapping[str, Evidence] = field(default_factory=lambda: MappingProxyType({}))
    """Evidence of the steps applied earlier in this generation, by step name."""

    @property
    def key(self) -> str:
        """task/generation/step: identifies the effect, never contains the epoch (E3)."""
        return f"{self.subject.task}/{self.generation}/{self.step}"

    @property
    def fence(self) -> tuple[int, int]:
        """(epoch, attempt): orders and attributes, never identifies."""
        return (self.epoch, self.attempt)


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer of a probe; `seen` names its source and what was read there."""

    fact: Fact
    seen: Evidence = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer of an apply: a claim, never a proof."""

    outcome: Outcome
    seen: Evidence = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a gate."""

    opening: Opening
    seen: Evidence = ()
    reason: str = ""  # one sentence for a person when it is not open


@dataclass(frozen=True, slots=True)
class Traits:
    """What an adapter says about its effect; `journal.toml` may declare it for `command` steps."""

    guard: Guard = Guard.BLIND
    irreversible: bool = True
    adopts: bool = False  # takes another's effect as done: a merge by hand yes, a deploy by hand no
    ends_owner: bool = False  # the effect kills the process that asked for it (self-deploy)
    lane: str = ""  # at most one open intent per lane (E13); may hold {repo} {branch} {base}


class StepAdapter(Protocol):
    """One kind of step: a way to perform it, to ask for it, and to make absence stable."""

    @property
    def traits(self) -> Traits: ...

    async def probe(self, call: Call) -> Finding:
        """Ask the world, change nothing. Every failure to ask is `unknown`, never an exception the caller must read."""
        ...

    async def apply(self, call: Call) -> Reply:
        """Perform the effect once, carrying key, fence, journal id and expected old values."""
        ...

    async def quiesce(self, call: Call) -> None:
        """Make absence stable: install the fence (fenced), wait for the drain bound (probed), else nothing."""
        ...


class Gate(Protocol):
    """A read-only question asked before acquiring and again before the first intent (E12)."""

    async def ask(self, call: Call) -> Answer: ...


class Clock(Protocol):
    """Time, passed in. Wall time is for people and due dates; it never decides safety (L5)."""

    def now_us(self) -> int:
        """Microseconds since 1970, UTC."""
        ...

    def monotonic_s(self) -> float:
        """Seconds of a clock that never goes back, for budgets and waits."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class Ids(Protocol):
    """Randomness, passed in."""

    def instance(self) -> str:
        """A new random id: 32 hex digits."""
        ...
