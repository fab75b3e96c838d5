"""
A rule machine over the public API and real files, against a plain model that knows nothing of epochs and events (T4).

Draws depend on the model only. The model says what each call must answer and which effects must be there; the far side
counts them, and `verify` goes over the log at the end.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from journal import Journal, advance_stage
from journal.errors import TaskExistsError
from journal.journal import NewTask
from journal.pipeline import Edge, Pipeline, StepDefinition
from journal.plan import StepPlan
from journal.ports import Call, Reply
from journal.results import Advanced, Done, Freed, Refused, Waiting
from journal.shell import Ports
from journal.words import Guard, Kind
from projections import all_views
from recovery.verify import verify
from tests.builders import FileStep, StandingClock
from tests.conftest import Counts

TASKS = ("T-1", "T-2", "T-3")
EDGES = {"a": ("merge_pr", "ratchet"), "b": ("deploy_init",)}
NEXT = {"a": "b", "b": "done"}
LANES = {"a": "merge", "b": "deploy"}
MOMENTS = ("locked", "acquired", "intended", "effect", "outcome")
"""Where a run may be cut off: what it did last."""


def the_pipeline() -> Pipeline:
    steps = {
        name: StepDefinition(
            StepPlan(name, Guard.EXCLUSIVE, attempts=9, retry_ms=1), "deploy" if "dep" in name else "merge"
        )
        for source, names in EDGES.items()
        for name in names
    }
    edges = tuple(Edge(source, NEXT[source], steps) for source, steps in EDGES.items())
    return Pipeline(("a", "b", "done"), edges, steps, on_new_head="a")


@dataclass
class Model:
    """One task as a person understands it."""

    stage: str = "a"
    generation: int = 1
    hold: str = ""  # paused, canceled, done
    cancel: bool = False  # asked for, and too late for the step in doubt
    owned: bool = False  # somebody began and never said that it ended
    doubt: str = ""  # the step that was begun and not settled
    closed: list[str] = field(default_factory=list)
    there: set[str] = field(default_factory=set)  # keys whose effect happened
    lane: str = ""
    head: int = 1

    @property
    def rest(self) -> list[str]:
        return [s for s in EDGES.get(self.stage, ()) if s not in self.closed]

    def key(self, task: str, step: str) -> str:
        return f"{task}/{self.generation}/{step}"


class CutOff(BaseException):
    """The process of this run is gone."""


@dataclass
class Trouble:
    """What goes wrong in the next run: where it is cut off, and whether the first reply is lost or comes late."""

    moment: str = ""
    step: str = ""
    reply: str = ""  # lost, late


@dataclass
class Line(FileStep):
    """The far side behind a line that can fail."""

    trouble: Trouble = field(default_factory=Trouble)
    late: list[Call] = field(default_factory=list)

    async def apply(self, call: Call) -> Reply:
        reply, self.trouble.reply = self.trouble.reply, ""
        if reply == "late":
            self.late.append(call)
            raise TimeoutError("no answer yet")
        done = await super().apply(call)
        if self.trouble.moment == "effect" and call.step == self.trouble.step:
            raise CutOff
        if reply == "lost":
            raise ConnectionResetError("the reply was lost")
        return done


class Cut:
    """Stands before the ports and ends the run after a moment."""

    def __init__(self, ports: Ports, trouble: Trouble) -> None:
        self._ports, self._trouble = ports, trouble

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ports, name)

    async def take_lock(self) -> Any:
        got = await self._ports.take_lock()
        self._end_if("locked")
        return got

    async def append(self, drafts: Any) -> Any:
        got = await self._ports.append(drafts)
        kinds = {d.kind for d in drafts}
        if Kind.ACQUIRED in kinds:
            self._end_if("acquired")
        for d in drafts:
            if d.step == self._trouble.step and d.kind is Kind.INTENDED:
                self._end_if("intended")
            if d.step == self._trouble.step and d.kind is Kind.APPLIED:
                self._end_if("outcome")
        return got

    def _end_if(self, moment: str) -> None:
        if self._trouble.moment == moment:
            raise CutOff


class Delivery(RuleBasedStateMachine):
    """Opens, drives, cuts off, restarts, and lets people interfere."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.runner = asyncio.Runner()
        self.model: dict[str, Model] = {}
        self.trouble = Trouble()
        self.line = Line(self.folder)
        self.journal: Journal

    def do(self, work: Any) -> Any:
        return self.runner.run(work)

    @initialize()
    def begin(self) -> None:
        self.do(self._open())

    async def _open(self) -> None:
        steps = dict.fromkeys(("merge_pr", "ratchet", "deploy_init"), self.line)
        self.journal = await Journal.open(
            self.folder / "j.db",
            pipeline=the_pipeline(),
            steps=steps,
            projections=all_views(),
            clock=StandingClock(),
            wrap=lambda ports, _: cast("Ports", Cut(ports, self.trouble)),
        )

    def teardown(self) -> None:
        if hasattr(self, "journal"):
            self.do(self.journal.close())
            with closing(sqlite3.connect(self.folder / "j.db")) as db:
                found = verify(db, projections=all_views(), deep=True)
            assert found.intact, found.violations
        self.runner.close()
        shutil.rmtree(self.folder)

    # -- tasks ------------------------------------------------------------------------------------------------------

    @rule(task=st.sampled_from(TASKS))
    def open_task(self, task: str) -> None:
        wanted = NewTask(task, "acme/widgets", f"feature/{task}", head=_head(1), stage="a")
        try:
            self.do(self.journal.open_task(wanted, actor="operator"))
            fresh = True
        except TaskExistsError:
            fresh = False
        assert fresh is (task not in self.model)
        self.model.setdefault(task, Model())

    @precondition(lambda self: self.model)
    @rule(data=st.data(), reply=st.sampled_from(["", "", "lost", "late"]))
    def advance(self, data: st.DataObject, reply: str) -> None:
        """A run that is not cut off: whatever was in doubt is settled, and the edge is passed once."""
        task = self._pick(data)
        m = self.model[task]
        self._arm(Trouble(reply=reply))
        result = self.do(advance_stage(self.journal, task))
        unused = bool(self.trouble.reply)
        self._arm(Trouble())
        if m.hold:
            assert isinstance(result, Refused)
            return
        if m.cancel:
            self._settle_cancel(m, task)
            return
        if holder := self._lane_holder(m, task):
            assert isinstance(result, Waiting), (result, holder)
            m.owned = False
            return
        assert isinstance(result, Advanced), result
        assert unused or not reply or m.rest
        self._pass(m, task)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), moment=st.sampled_from(MOMENTS))
    def cut_off(self, data: st.DataObject, moment: str) -> None:
        """A run that dies at a moment; the model knows exactly what it left behind."""
        task = self._pick(data)
        m = self.model[task]
        if m.hold or m.cancel or not m.rest or self._lane_holder(m, task):
            return
        step = data.draw(st.sampled_from(m.rest))
        # What is in doubt and there already is settled without a new intent or effect.
        if moment in ("intended", "effect") and (m.key(task, step) in m.there or m.doubt == step):
            return
        self._arm(Trouble(moment, step))
        try:
            self.do(advance_stage(self.journal, task))
            ended = True
        except CutOff:
            ended = False
        self._arm(Trouble())
        if moment == "outcome" and step == EDGES[m.stage][-1]:
            assert not ended
            self._pass(m, task)
            return
        assert not ended
        self._left(m, task, moment, step)

    def _left(self, m: Model, task: str, moment: str, step: str) -> None:
        if moment == "locked":
            return
        m.owned = True
        if moment == "acquired":
            return
        steps = EDGES[m.stage]
        for name in steps[: steps.index(step)]:
            m.there.add(m.key(task, name))
            if name not in m.closed:
                m.closed.append(name)
        m.lane, m.doubt = LANES[m.stage], step
        if moment != "intended":
            m.there.add(m.key(task, step))
        if moment == "outcome":
            m.closed.append(step)
            m.doubt = ""
            after = steps[steps.index(step) + 1]  # its intent rides in the same unit
            m.doubt = after

    def _pass(self, m: Model, task: str) -> None:
        m.there |= {m.key(task, name) for name in EDGES[m.stage]}
        m.closed += m.rest
        m.stage, m.owned, m.doubt, m.lane = NEXT[m.stage], False, "", ""
        m.hold = "done" if m.stage == "done" else ""

    def _settle_cancel(self, m: Model, task: str) -> None:
        """Too late for the step in doubt: if it happened it counts, and if it was the last one, so does the edge."""
        step = m.doubt
        if m.key(task, step) in m.there and step == EDGES[m.stage][-1]:
            self._pass(m, task)
        else:
            m.hold, m.owned, m.doubt, m.lane = "canceled", False, "", ""

    def _lane_holder(self, m: Model, task: str) -> str:
        if m.lane:
            return ""
        lane = LANES.get(m.stage, "")
        return next((t for t, other in self.model.items() if t != task and other.lane == lane and lane), "")

    # -- people -----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.model)
    @rule(data=st.data(), verb=st.sampled_from(["pause", "resume", "cancel", "release", "head", "reopen"]))
    def interfere(self, data: st.DataObject, verb: str) -> None:
        task = self._pick(data)
        getattr(self, f"_{verb}")(task, self.model[task])

    def _pause(self, task: str, m: Model) -> None:
        result = self.do(self.journal.pause(task, reason="why not"))
        assert isinstance(result, Refused if m.hold in ("done", "canceled") else Done), result
        if isinstance(result, Done):
            m.hold, m.owned = "paused", False

    def _resume(self, task: str, m: Model) -> None:
        result = self.do(self.journal.resume(task, reason="go on"))
        assert isinstance(result, Done if m.hold == "paused" else Refused), result
        if m.hold == "paused":
            m.hold = ""

    def _cancel(self, task: str, m: Model) -> None:
        result = self.do(self.journal.cancel(task, reason="no more"))
        assert isinstance(result, Refused if m.hold in ("done", "canceled") else Done), result
        if isinstance(result, Refused):
            return
        m.owned = False
        if m.doubt:
            m.cancel = True
        else:
            m.hold, m.lane = "canceled", ""

    def _release(self, task: str, m: Model) -> None:
        result = self.do(self.journal.release(task, reason="stuck"))
        assert isinstance(result, Freed if m.owned else Refused), result
        m.owned = False

    def _head(self, task: str, m: Model) -> None:
        result = self.do(self.journal.change_head(task, head=_head(m.head + 1), actor="webhook"))
        allowed = not m.hold and not m.doubt and not m.closed
        assert isinstance(result, Done if allowed else Refused), (result, m)
        if allowed:
            self._anew(m)
            m.head += 1

    def _reopen(self, task: str, m: Model) -> None:
        result = self.do(self.journal.reopen(task, stage="a", reason="once more"))
        allowed = not m.owned and not m.doubt
        assert isinstance(result, Done if allowed else Refused), (result, m)
        if allowed:
            self._anew(m)

    def _anew(self, m: Model) -> None:
        m.generation += 1
        m.stage, m.hold, m.cancel, m.owned, m.doubt, m.lane = "a", "", False, False, "", ""
        m.closed = []

    # -- the world --------------------------------------------------------------------------------------------------

    @rule()
    def restart(self) -> None:
        self.do(self.journal.close())
        self.do(self._open())

    @precondition(lambda self: self.line.late)
    @rule()
    def late_requests_arrive(self) -> None:
        """By now their effects are there, by a later attempt; the far side refuses them by their keys."""
        for call in self.line.late:
            assert self.line.effect(call.key).exists()
            with pytest.raises(FileExistsError):
                self.do(FileStep.apply(self.line, call))
        self.line.late.clear()

    @invariant()
    def the_journal_is_what_the_model_says(self) -> None:
        for task, m in self.model.items():
            state = self.do(self.journal.stream(task)).state
            told = (state.stage, state.generation, str(state.hold), bool(state.owner), list(state.closed))
            assert told == (m.stage, m.generation, m.hold, m.owned, m.closed)
            assert (state.open, state.cancel) == (bool(m.doubt), m.cancel)

    @invariant()
    def the_world_is_what_the_model_says(self) -> None:
        keys = {self.line.effect(key).name for m in self.model.values() for key in m.there}
        assert {p.name for p in self.folder.iterdir() if "__" in p.name and not p.name.endswith(".calls")} == keys

    def _pick(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.model)))

    def _arm(self, trouble: Trouble) -> None:
        self.trouble.__dict__.update(trouble.__dict__)
        self.line.trouble = self.trouble


def _head(n: int) -> str:
    return f"{n:040x}"


@pytest.mark.proves("T4", "FR-2", "FR-4", "E1", "E3", "E13", "I10", "I12", "I13", "I16", "I23", "R08", "R103", "R104")
def test_whatever_happens_the_journal_and_the_world_are_what_a_plain_model_says(counts: Counts) -> None:
    run_state_machine_as_test(
        Delivery,
        settings=settings(max_examples=counts.of(12, most=2000), stateful_step_count=25),
    )
