"""
A world without waiting: six steps of every guard over a far side in memory that is honest about keys and fences.

What is left of the cost is the product's own: locks, engine, log, chain, views.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha1
from pathlib import Path

from journal.hosts.port import Join
from journal.journal import Journal, NewTask, Pending
from journal.log.upstream import Upstream
from journal.pipeline import Edge, Pipeline, StepDefinition
from journal.plan import StepPlan
from journal.ports import Call, Finding, Reply, StepAdapter, Traits
from journal.words import Evidence, Fact, Guard, Outcome, evidence
from projections import all_views

GUARDS = {
    "merge_pr": Guard.EXCLUSIVE,
    "ratchet": Guard.EXCLUSIVE,
    "rebuild": Guard.REPEATABLE,
    "publish": Guard.FENCED,
    "announce": Guard.PROBED,
    "tag": Guard.EXCLUSIVE,
}
AT_ONCE = 100
_SOURCE = ("source", "far-side")
_ABSENT = Finding(Fact.ABSENT, evidence(base="main", source="far-side"))
# Python 3.11 takes twenty times longer to look a member up in its class than a name in its module.
_OURS, _OTHERS, _APPLIED = Fact.OURS, Fact.OTHERS, Outcome.APPLIED
_EXCLUSIVE, _FENCED = Guard.EXCLUSIVE, Guard.FENCED
SOURCE, TARGET = "deploy-staging", "done"


@dataclass(slots=True)
class FarSide:
    """Where effects land: by key, with whose they are and what a probe sees; and the highest fence of each."""

    effects: dict[str, tuple[str, Evidence]] = field(default_factory=dict)
    fences: dict[str, tuple[int, int]] = field(default_factory=dict)
    landed: int = 0


@dataclass(frozen=True, slots=True)
class InstantStep:
    """One step over the far side; awaits nothing, and costs as little as it can: the peers' steps do nothing at all."""

    guard: Guard
    far: FarSide

    @property
    def traits(self) -> Traits:
        return Traits(self.guard, irreversible=self.guard is not Guard.REPEATABLE)

    async def probe(self, call: Call) -> Finding:
        found = self.far.effects.get(call.key)
        if found is None:
            return _ABSENT
        journal, seen = found
        return Finding(_OURS if journal == call.journal_id else _OTHERS, seen)

    async def apply(self, call: Call) -> Reply:
        far, key = self.far, call.key
        if self.guard is _FENCED and call.fence < far.fences.get(key, (0, 0)):
            return Reply(Outcome.REJECTED, evidence(reason="an older fence"))
        if self.guard is _EXCLUSIVE and key in far.effects:
            return Reply(Outcome.REJECTED, evidence(reason="is there already"))
        far.landed += 1
        commit = ("commit", f"{far.landed:040x}")
        far.effects[key] = call.journal_id, (("by", f"{call.fence[0]}.{call.fence[1]}"), commit, _SOURCE)
        return Reply(_APPLIED, (commit,))

    async def quiesce(self, call: Call) -> None:
        self.far.fences[call.key] = call.fence


def commit_of(key: str) -> str:
    """A commit id of the right length."""
    return sha1(key.encode(), usedforsecurity=False).hexdigest()


def six_steps() -> Pipeline:
    """One edge with six effects, the shape that all systems are compared by."""
    steps = {
        name: StepDefinition(StepPlan(name, guard, irreversible=guard is not Guard.REPEATABLE), "merge:{repo}/{base}")
        for name, guard in GUARDS.items()
    }
    edge = Edge(SOURCE, TARGET, tuple(GUARDS), advance="auto")
    return Pipeline((SOURCE, TARGET), (edge,), steps)


def adapters(far: FarSide) -> Mapping[str, StepAdapter]:
    """An adapter for each of the six."""
    return {name: InstantStep(guard, far) for name, guard in GUARDS.items()}


def open_six(path: Path, far: FarSide, upstream: Upstream | None = None, join: Join | None = None) -> Pending[Journal]:
    """The product with everything on: chain, views, ownership, guards, invariants; on a server, if one is named."""
    return Journal.open(
        path, pipeline=six_steps(), steps=adapters(far), projections=all_views(), upstream=upstream, join=join
    )


def new_task(number: int, prefix: str = "BENCH", repositories: int = AT_ONCE) -> NewTask:
    """Tasks as a tracker would name them, of as many repositories as are busy at once: no two want one lane."""
    task = f"{prefix}-{number}"
    return NewTask(
        task, f"acme/widgets-{number % repositories}", f"feature/{task.lower()}", head=commit_of(task), pr=number
    )
