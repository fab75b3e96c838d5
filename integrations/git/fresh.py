"""
Steps and gates that read a repository, for one that lives on a forge: on its clone, fetched before each question.

A fetch that fails makes the answer unknown; what the clone held before is never asked (R24).
"""

from __future__ import annotations

from collections.abc import Callable

from integrations.git.facts import finding
from integrations.git.mirror import Mirrors
from integrations.git.repository import Repository
from journal.errors import JournalError
from journal.ports import Answer, Call, Finding, Gate, Reply, StepAdapter, Traits
from journal.words import Fact, Opening, evidence

Clones = Callable[[str], Repository]


class FreshStep:
    """A step whose probe sees the forge as it is now."""

    def __init__(self, make: Callable[[Clones], StepAdapter], mirrors: Mirrors) -> None:
        self._step, self._mirrors = make(mirrors.clone), mirrors

    @property
    def traits(self) -> Traits:
        return self._step.traits

    async def probe(self, call: Call) -> Finding:
        try:
            await self._mirrors.fetched(call)
        except JournalError as error:
            return finding(Fact.UNKNOWN, reason="cannot_fetch", detail=str(error)[:400])
        return await self._step.probe(call)

    async def apply(self, call: Call) -> Reply:
        return await self._step.apply(call)

    async def quiesce(self, call: Call) -> None:
        await self._step.quiesce(call)


class FreshGate:
    """A gate that sees the forge as it is now."""

    def __init__(self, make: Callable[[Clones], Gate], mirrors: Mirrors) -> None:
        self._gate, self._mirrors = make(mirrors.clone), mirrors

    async def ask(self, call: Call) -> Answer:
        try:
            await self._mirrors.fetched(call)
        except JournalError as error:
            return Answer(Opening.UNKNOWN, evidence(source="git", reason="cannot_fetch"), str(error)[:400])
        return await self._gate.ask(call)
