"""
Traces of the real shell, and a machine that accepts them: the simulated world, followed step by step.

A trace is written in the labels of `recovery.prove`. The machine keeps every world that fits what was seen so far; what
nobody sees (a request leaves, a request is lost) may happen in between. No world left: product and model differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from journal.actions import (
    Appended,
    Busy,
    Lost,
    Occupied,
)
from journal.events import Draft
from journal.pipeline import Pipeline
from journal.plan import EdgePlan, StepPlan
from journal.ports import Answer, Call, Finding, Reply, StepAdapter, Traits
from journal.shell import Ports
from journal.state import TaskState
from journal.words import Fact, Guard, Hold, Opening, Outcome, evidence
from recovery.prove.minds import Mind
from recovery.prove.moves import Rules
from recovery.prove.telling import tell
from recovery.prove.world import NAMES, NOBODY, Actor, Bounds, Config, Move, World

PLENTY = Bounds(crash=99, suspicion=99, bad_probe=99, refusal=99, shut_gate=99, pause=9, cancel=9, retry=9)
UNSEEN = (" leaves this machine", " gets lost", " comes true")


class Unending(Rules):
    """The rules, also where the search stops looking because nothing more can come of it."""

    def settled(self, w: World) -> bool:
        return False

    def _take_lock(self, w: World, i: int, a: Actor, mind: Mind) -> Iterator[Move]:
        """
        After a holder was ended, somebody else may have the lock: left out of the search, where it doubles the worlds.

        Whoever finds that leaves, as if the holder had ended by itself; a crash of the holder leads to the same world.
        """
        yield from super()._take_lock(w, i, a, mind)
        if mind.run.ended and w.lock != NOBODY:
            gone = self._put(w, i, a._replace(mind=self.minds.learn(mind, Busy(overdue=False))))
            yield f"{NAMES[i]} finds the lock busy", False, gone


class RejectedTraceError(AssertionError):
    """The simulated world knows no such history."""


class Machine:
    """Every world that fits the trace so far."""

    def __init__(self, plans: tuple[EdgePlan, ...]) -> None:
        self.rules = Unending(Config(plans, PLENTY))
        self.worlds = {self.rules.cfg.start()}
        self.trace: list[str] = []

    def see(self, *labels: str, state: TaskState | None = None) -> None:
        """
        Take in one event, under any of its possible labels, and the task's fold where the log told it.

        Raises:
            RejectedTraceError: No world allows it.
        """
        self.trace.append(" | ".join(labels))
        worlds = {x for w in self._closure() for label, _, x in self.rules.moves(w) if label in labels}
        self._keep(worlds, state)

    def crash(self, actor: str) -> None:
        """A process dies; where it held nothing, nothing changes."""
        self.trace.append(f"{actor} crashes")
        i = "AB".index(actor)
        worlds = set()
        for w in self._closure():
            ends = {x for label, _, x in self.rules.moves(w) if label.startswith(f"{actor} crashes")}
            worlds |= ends or ({w} if w.actors[i].mind is None else set())
        self._keep(worlds, None)

    def _closure(self) -> set[World]:
        seen, todo = set(self.worlds), list(self.worlds)
        while todo:
            for label, _, x in self.rules.moves(todo.pop()):
                if label.endswith(UNSEEN) and x not in seen:
                    seen.add(x)
                    todo.append(x)
        return seen

    def _keep(self, worlds: set[World], state: TaskState | None) -> None:
        fits = {w for w in worlds if state is None or bare(w.task) == bare(state)}
        if not fits:
            told = {bare(w.task) for w in worlds} if worlds else "no such move"
            raise RejectedTraceError("\n  ".join((*self.trace, f"is {state}", f"should be {told}")))
        self.worlds = fits


def bare(state: TaskState) -> TaskState:
    """The fold without the name of the run, which the two sides choose differently."""
    return state._replace(owner="somebody" if state.owner else "", floor=0)


class Crashed(BaseException):
    """The process is gone; nothing of ours may handle it."""


class TooLate(BaseException):
    """The task was over before this run began."""


@dataclass
class Turns:
    """Lets one actor at a time do one thing; a seed chooses whose turn it is."""

    rng: Random
    alive: int
    waiting: dict[str, asyncio.Future[None]] = field(default_factory=dict)

    async def take(self, name: str) -> None:
        self.waiting[name] = asyncio.get_running_loop().create_future()
        self.grant()
        try:
            await self.waiting[name]
        finally:
            self.waiting.pop(name, None)

    def leave(self) -> None:
        self.alive -= 1
        self.grant()

    def grant(self) -> None:
        ready = [f for f in self.waiting.values() if not f.done()]
        if self.waiting and len(ready) == self.alive:
            self.waiting[self.rng.choice(sorted(self.waiting))].set_result(None)


@dataclass
class Theatre:
    """One seeded performance: what goes wrong, whose turn it is, and what is told to the machine."""

    machine: Machine
    rng: Random
    turns: Turns
    crashes: int = 2
    suspects: bool = True

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    async def turn(self, actor: str) -> None:
        """Wait for one's turn, and perhaps die at it."""
        await self.turns.take(actor)
        if self.crashes and self.chance(0.06):
            self.crashes -= 1
            self.machine.crash(actor)
            raise Crashed


class Told:
    """Stands before the ports of a run: waits for its turn, and tells the machine what came of each call."""

    def __init__(self, ports: Ports, actor: str, theatre: Theatre, over: Callable[[], Any]) -> None:
        self._ports, self._actor, self._theatre, self._over = ports, actor, theatre, over

    async def _turn(self) -> None:
        await self._theatre.turn(self._actor)

    def _see(self, *words: str, state: TaskState | None = None) -> None:
        self._theatre.machine.see(*(f"{self._actor} {w}" for w in words), state=state)

    async def take_lock(self) -> Any:
        await self._turn()
        if await self._over():
            raise TooLate
        got = await self._ports.take_lock()
        if not isinstance(got, Busy):
            self._see("locks")
            return got
        overdue = self._actor == "B" and self._theatre.suspects and self._theatre.chance(0.5)
        self._see(*(("finds the lock overdue", "finds the lock busy still") if overdue else ("finds the lock busy",)))
        return Busy(overdue)

    async def end_holder(self) -> Any:
        await self._turn()
        ended = await self._ports.end_holder()
        self._see("ends the holder", "ends the holder, which hangs on")
        return ended

    async def read(self) -> Any:
        await self._turn()
        seen = await self._ports.read()
        self._see("reads", state=seen.state)
        return seen

    async def ask(self, plan: EdgePlan, pending: tuple[Draft, ...]) -> Any:
        await self._turn()
        asked = await self._ports.ask(plan, pending)
        self._see(f"asks the gates: {asked.answer.opening}")
        return asked

    async def append(self, drafts: tuple[Draft, ...]) -> Any:
        await self._turn()
        got = await self._ports.append(drafts)
        match got:
            case Appended(state=state):
                self._see(f"appends {tell(drafts)}", state=state)
            case Lost(state=state):
                self._see("loses the race", state=state)
            case Occupied():
                self._see("finds the lane busy")
        return got

    async def quiesce(self, step: StepPlan, fence: tuple[int, int], pending: tuple[Draft, ...]) -> Any:
        await self._turn()
        quiet = await self._ports.quiesce(step, fence, pending)
        self._see("drains" if step.guard is not Guard.FENCED else f"installs the fence {fence[0]}.{fence[1]}")
        return quiet

    async def probe(self, step: StepPlan, pending: tuple[Draft, ...]) -> Any:
        await self._turn()
        got = await self._ports.probe(step, pending)
        word = f"probes {step.name}: {got.finding.fact}{', late' if got.late else ''}"
        self._see(word, f"{word} (bad_probe)", f"{word} (late)")
        return got

    async def apply(self, step: StepPlan, fence: tuple[int, int]) -> Any:
        await self._turn()
        tag = f"{step.name}#{fence[1]}"
        self._see(f"sends {tag}")
        got = await self._ports.apply(step, fence)
        outcome, gives_up = got.reply.outcome, f"{self._actor} gives up on apply {step.name}"
        labels = {
            Outcome.APPLIED: (f"{tag} arrives, answer applied",),
            Outcome.REJECTED: (f"{tag} is refused", f"{tag} arrives, answer rejected"),
            Outcome.UNKNOWN: (f"{tag} arrives, answer unknown", gives_up),
        }
        self._theatre.machine.see(*labels[outcome])
        return got

    async def wait(self, nth: int, step: StepPlan) -> Any:
        return await self._ports.wait(nth, step)

    async def unlock(self) -> Any:
        await self._turn()
        unlocked = await self._ports.unlock()
        self._see("unlocks")
        return unlocked


@dataclass
class FileSide:
    """A far side made of files that keeps exactly the promise of one guard; what lands is counted in them."""

    folder: Path
    name: str
    guard: Guard

    @property
    def traits(self) -> Traits:
        return Traits(self.guard, self.guard is not Guard.REPEATABLE, self.guard is Guard.EXCLUSIVE)

    def _landed(self) -> Path:
        return self.folder / f"{self.name}.landed"

    def landings(self) -> int:
        return len(self._landed().read_text().splitlines()) if self._landed().exists() else 0

    def _highest(self) -> tuple[int, int]:
        path = self.folder / f"{self.name}.fence"
        epoch, attempt = path.read_text().split(".") if path.exists() else ("0", "0")
        return int(epoch), int(attempt)

    def _install(self, fence: tuple[int, int]) -> None:
        highest = max(self._highest(), fence)
        (self.folder / f"{self.name}.fence").write_text(f"{highest[0]}.{highest[1]}")

    def land(self, call: Call) -> Outcome:
        """A request arrives."""
        if self.guard is Guard.EXCLUSIVE and self._landed().exists():
            return Outcome.UNKNOWN
        if self.guard is Guard.FENCED:
            if call.fence < self._highest():
                return Outcome.REJECTED
            self._install(call.fence)
        with self._landed().open("a") as file:
            file.write(f"{call.fence}\n")
        return Outcome.APPLIED

    async def probe(self, call: Call) -> Finding:
        if self.guard is Guard.BLIND:
            return Finding(Fact.UNKNOWN)
        return Finding(Fact.OURS if self._landed().exists() else Fact.ABSENT, evidence(source="file"))

    async def apply(self, call: Call) -> Reply:
        return Reply(self.land(call))

    async def quiesce(self, call: Call) -> None:
        if self.guard is Guard.FENCED:
            self._install(call.fence)


@dataclass
class Troubled:
    """Any adapter behind a bad line: replies are lost, requests fail, arrive late or never, probes do not answer."""

    inner: StepAdapter
    theatre: Theatre
    actor: Callable[[], str]
    flying: list[Call] = field(default_factory=list)  # sent, no longer waited for, and still to arrive

    @property
    def traits(self) -> Traits:
        return self.inner.traits

    async def probe(self, call: Call) -> Finding:
        if self.theatre.chance(0.1):
            raise ConnectionError("the probe was cut off")
        return await self.inner.probe(call)

    async def apply(self, call: Call) -> Reply:
        theatre, tag = self.theatre, f"{call.step}#{call.attempt}"
        if theatre.chance(0.12):
            if theatre.chance(0.6):
                self.flying.append(call)
            raise TimeoutError("no answer")
        if theatre.chance(0.08):
            return Reply(Outcome.REJECTED, evidence(reason="refused before anything was sent"))
        await theatre.turn(self.actor())
        reply = await self.inner.apply(call)
        if reply.outcome is not Outcome.APPLIED or theatre.chance(0.7):
            return reply
        theatre.machine.see(f"{tag} arrives, its reply is lost")
        await theatre.turn(self.actor())
        raise ConnectionResetError("the reply was lost")

    async def quiesce(self, call: Call) -> None:
        if self.traits.guard is Guard.PROBED:
            await self.arrive()  # what drained is gone or has happened
            self.flying.clear()
        await self.inner.quiesce(call)

    async def arrive(self) -> None:
        """Let a request that nobody waits for any more arrive now."""
        if self.flying:
            call = self.flying.pop(self.theatre.rng.randrange(len(self.flying)))
            reply = await self.inner.apply(call)
            if reply.outcome is Outcome.APPLIED:  # else it changed nothing, as if it had been lost
                self.theatre.machine.see(f"{call.step}#{call.attempt} arrives, its reply is lost")


@dataclass
class Door:
    """A gate that is now and then shut."""

    theatre: Theatre

    async def ask(self, call: Call) -> Answer:
        word = self.theatre.rng.choice([Opening.OPEN] * 6 + [Opening.CLOSED, Opening.UNKNOWN])
        return Answer(word, reason="as it comes")


class Swift:
    """A clock that goes when somebody sleeps by it, and lets the others run."""

    def __init__(self) -> None:
        self.us = 1_800_000_000_000_000

    def now_us(self) -> int:
        return self.us

    def monotonic_s(self) -> float:
        return self.us / 1e6

    async def sleep(self, seconds: float) -> None:
        self.us += int(seconds * 1e6)
        for _ in range(5):  # a cancelled run needs some turns of the loop to give its lock back
            await asyncio.sleep(0)


def plans_of(stages: Iterable[str], route: Callable[[str], EdgePlan | None]) -> tuple[EdgePlan, ...]:
    """The plans that the product drives by, so that both sides hold the same objects."""
    return tuple(p for s in stages if (p := route(s)) is not None)


def is_over(state: TaskState, pipeline: Pipeline) -> bool:
    """Nobody would begin a run."""
    return state.hold is not Hold.NONE or (not state.owner and not state.begun and pipeline.edge(state.stage) is None)
