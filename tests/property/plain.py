"""
A plain model of a delivery and a far side that counts, for the rule machine.

The model knows stages, steps, who is in doubt and what is in the world. It knows no events, epochs, folds or tables.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from journal.ports import Call, Finding, Reply, Traits
from journal.results import Advanced, Parked, Refused, Result, Waiting
from journal.words import Fact, Guard, Outcome

EDGES = {"a": ("merge_pr", "ratchet"), "b": ("deploy_init",)}
NEXT = {"a": "b", "b": "done"}
LANES = {"a": "merge", "b": "deploy"}
GUARDS = {"merge_pr": Guard.EXCLUSIVE, "ratchet": Guard.PROBED, "deploy_init": Guard.FENCED}
ATTEMPTS = 2
TERMS = 3  # in a row without a closed step

REPLIES = ("", "", "lost", "late", "refused", "late, refused", "mute", "deaf")
"""What befalls the calls of a run: reply lost; performed later; refused; none ever performed; no probe answered."""


class CutOff(BaseException):
    """The process of this run is gone."""


@dataclass
class Trouble:
    """What goes wrong in the next run: where it is cut off, and what its far side does."""

    moment: str = ""
    step: str = ""
    reply: str = ""


@dataclass
class FarSide:
    """
    Three far sides with exactly the promise of their guards, behind a line that can fail.

    It keeps its own books; and at each call it looks into the file by itself whether the intent is there and durable.
    """

    file: Path
    trouble: Trouble = field(default_factory=Trouble)
    traits: Traits = field(default_factory=lambda: Traits(Guard.EXCLUSIVE))
    sent: Counter[str] = field(default_factory=Counter)
    landed: Counter[str] = field(default_factory=Counter)
    fences: dict[str, tuple[int, int]] = field(default_factory=dict)
    late: list[Call] = field(default_factory=list)

    async def probe(self, call: Call) -> Finding:
        if self.trouble.reply == "deaf":
            raise TimeoutError("no answer")
        return Finding(Fact.OURS if self.landed[call.key] else Fact.ABSENT)

    async def apply(self, call: Call) -> Reply:
        self._must_be_intended(call)
        self.sent[call.key] += 1
        match self._befalls():
            case "late":
                self.late.append(call)
                raise TimeoutError("no answer yet")
            case "mute":
                raise TimeoutError("never heard of again")
            case "refused":
                return Reply(Outcome.REJECTED)
            case "lost":
                self.perform(call)
                raise ConnectionResetError("the reply was lost")
            case _:
                self.perform(call)
        if self.trouble.moment == "effect" and call.step == self.trouble.step:
            raise CutOff
        return Reply(Outcome.APPLIED)

    async def quiesce(self, call: Call) -> None:
        """Fenced: nothing older lands any more. Probed: what is on its way has arrived by now."""
        self.fences[call.key] = max(self.fences.get(call.key, (0, 0)), call.fence)
        if GUARDS[call.step] is Guard.PROBED:
            for earlier in [c for c in self.late if c.key == call.key]:
                self.late.remove(earlier)
                self.perform(earlier)

    def perform(self, call: Call) -> None:
        """Let a call arrive."""
        guard, key = GUARDS[call.step], call.key
        if guard is Guard.EXCLUSIVE and self.landed[key]:
            return
        if guard is Guard.FENCED and call.fence < self.fences.get(key, (0, 0)):
            return
        self.landed[key] += 1
        assert self.landed[key] == 1, f"{key} landed twice"

    def _befalls(self) -> str:
        what, _, then = self.trouble.reply.partition(", ")
        if what != "mute":
            self.trouble.reply = then
        return what

    def _must_be_intended(self, call: Call) -> None:
        """As an auditor would: on a connection of its own, which sees only what was committed."""
        with closing(sqlite3.connect(f"file:{self.file}?mode=ro", uri=True)) as db:
            sql = (
                "SELECT count(*) FROM journal_events WHERE kind = 'intended' AND task = ? AND generation = ? "
                "AND step = ? AND attempt = ? AND epoch = ?"
            )
            wanted = (call.subject.task, call.generation, call.step, call.attempt, call.epoch)
            assert db.execute(sql, wanted).fetchone() == (1,), f"{call.key}#{call.attempt} sent before its intent"


@dataclass
class Model:
    """One task as a person understands it."""

    task: str
    stage: str = "a"
    generation: int = 1
    hold: str = ""  # paused, parked, canceled, done
    cancel: bool = False  # asked for, and too late for the step in doubt
    owned: bool = False  # somebody began and never said that it ended
    doubt: bool = False  # the next step was begun and not settled
    begun: bool = False  # the next step was ever tried
    loose: bool = False  # an earlier attempt of it may still happen
    closed: list[str] = field(default_factory=list)
    lane: str = ""
    head: int = 1
    idle: int = 0  # terms in a row that closed nothing
    there: Counter[str] = field(default_factory=Counter)  # effects by key
    sent: Counter[str] = field(default_factory=Counter)
    late: set[str] = field(default_factory=set)  # keys of exclusive attempts that may still happen

    @property
    def rest(self) -> list[str]:
        return [s for s in EDGES.get(self.stage, ()) if s not in self.closed]

    def key(self, step: str) -> str:
        return f"{self.task}/{self.generation}/{step}"

    # -- a run that is not cut off -----------------------------------------------------------------------------------

    def advance(self, reply: str, busy: bool) -> type[Result]:
        """Go over the edge as far as it goes; `busy`: another task holds the edge's lane."""
        if self.hold:
            return Parked if self.hold == "parked" else Refused
        if self.cancel and not (self.doubt or self.loose):
            return self._cancel()
        self.idle += 1
        if self.idle > TERMS:
            return self._park()
        for step in self.rest:
            if reply == "deaf":
                self.owned, self.idle = False, max(0, self.idle - 1)
                return Waiting
            if not self.there[self.key(step)]:
                if self.cancel:
                    return self._park() if self.doubt or self.loose else self._cancel()
                if busy and not self.lane:
                    self.owned, self.idle = False, max(0, self.idle - 1)
                    return Waiting
                self.lane = LANES[self.stage]
                if not self._try(step, reply):
                    return self._park()
                reply = "" if reply not in ("mute", "deaf") else reply
            self._close(step)
            if self.cancel and self.rest:
                return self._cancel()
        self._pass()
        return Advanced

    def _try(self, step: str, reply: str) -> bool:
        """One step's attempts in one run; whether its effect is there in the end."""
        key, exclusive = self.key(step), GUARDS[step] is Guard.EXCLUSIVE
        self._intend(step)
        self.sent[key] += 1
        match reply:
            case "late" if GUARDS[step] is Guard.PROBED:
                pass  # waited for, found, and not sent again
            case "late, refused" if GUARDS[step] is Guard.PROBED:
                pass
            case "late" | "refused":
                self.doubt = reply == "late"
                self._intend(step)
                self.sent[key] += 1
            case "mute" | "late, refused":
                self._intend(step)
                self.sent[key] += 1
                self.doubt = reply == "mute"
                if exclusive and reply != "mute":
                    self.late.add(key)
                return False
            case _:
                pass
        self.there[key] = 1
        return True

    def _intend(self, step: str) -> None:
        self.loose |= self.doubt and GUARDS[step] is Guard.EXCLUSIVE
        self.doubt = self.begun = True

    def _close(self, step: str) -> None:
        self.closed.append(step)
        self.doubt = self.begun = self.loose = False
        self.idle = 0

    def _pass(self) -> None:
        self.stage, self.owned, self.lane, self.idle = NEXT[self.stage], False, "", 0
        self.hold = "done" if self.stage == "done" else ""

    def _park(self) -> type[Result]:
        self.hold, self.owned, self.lane = "parked", False, ""
        return Parked

    def _cancel(self) -> type[Result]:
        self.hold, self.owned, self.lane = "canceled", False, ""
        return Refused

    # -- a run that is cut off ---------------------------------------------------------------------------------------

    def cut(self, moment: str, step: str) -> None:
        """What a run leaves behind that was cut off at a moment of a step."""
        if moment == "locked":
            return
        self.idle, self.owned = self.idle + 1, True
        if moment == "acquired":
            return
        steps = self.rest
        for name in steps[: steps.index(step)]:
            if not self.there[self.key(name)]:
                self._try(name, "")
            self._close(name)
        self.lane = LANES[self.stage] if not self.there[self.key(step)] else self.lane
        found = bool(self.there[self.key(step)])
        if moment == "intended":
            self._intend(step)
        elif moment == "effect":
            self._intend(step)
            self.sent[self.key(step)] += 1
            self.there[self.key(step)] = 1
        else:
            self._close_and_go_on(step, found)

    def _close_and_go_on(self, step: str, found: bool) -> None:
        if not found:
            self._try(step, "")
        self._close(step)
        if not self.rest:
            self._pass()
        elif not found:  # what our own attempt did rides with the next intent
            self._intend(self.rest[0])

    # -- people ------------------------------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        return self.hold in ("done", "canceled")

    @property
    def unsettled(self) -> bool:
        return self.doubt or self.loose

    def anew(self, idle: int = 0) -> None:
        """Another generation: nothing of the old one counts."""
        self.generation, self.stage, self.idle = self.generation + 1, "a", idle
        self.hold = self.lane = ""
        self.cancel = self.owned = self.doubt = self.begun = self.loose = False
        self.closed = []

    def settle(self) -> None:
        """A person says how the attempt in doubt ended."""
        step = self.rest[0]
        self.hold, self.owned, self.idle, self.doubt, self.loose = "", False, 0, False, False
        if self.there[self.key(step)]:
            self._close(step)
