"""
A rule machine over the public API and a real file, against a plain model that knows nothing of epochs and events (T4).

Draws depend on the model only. The model says what each call must answer, how often each far side is called and what is
there afterwards; the far side counts for itself, the views are read by SQL, and `verify` goes over the log at the end.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
import structlog
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import journal.admit
import journal.advance
import journal.engine
import journal.log.batch
import journal.verbs
from journal import Journal, advance_stage
from journal.doubt import TABLE, Row, Verdict
from journal.errors import TaskExistsError
from journal.events import Draft
from journal.journal import NewTask
from journal.log.unit import Unit
from journal.pipeline import Edge, Pipeline, StepDefinition
from journal.plan import StepPlan
from journal.ports import Call
from journal.results import Deferred, Done, Freed, Refused
from journal.shell import Ports
from journal.state import TaskState
from journal.words import Fact, Guard, Kind
from projections import all_views
from recovery.verify import verify
from tests.builders import StandingClock
from tests.conftest import Counts
from tests.property import mutants
from tests.property.plain import ATTEMPTS, EDGES, GUARDS, LANES, NEXT, REPLIES, CutOff, FarSide, Model, Trouble

TASKS = ("T-1", "T-2")
MOMENTS = ("locked", "acquired", "intended", "effect", "outcome")
"""Where a run may be cut off: what it did last."""

LONGEST_LOOK_US = 300_000_000

PEOPLE = ("pause", "resume", "cancel", "release", "settle", "head", "reopen")


def the_pipeline() -> Pipeline:
    steps = {
        name: StepDefinition(
            StepPlan(name, GUARDS[name], attempts=ATTEMPTS, retry_ms=1), LANES[source], at_most_once=True
        )
        for source, names in EDGES.items()
        for name in names
    }
    edges = tuple(Edge(source, NEXT[source], steps) for source, steps in EDGES.items())
    return Pipeline(("a", "b", "done"), edges, steps, on_new_head="a")


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
        self.file = self.folder / "j.db"
        self.runner = asyncio.Runner()
        self.model: dict[str, Model] = {}
        self.trouble = Trouble()
        self.far = FarSide(self.file, self.trouble)
        self.clock = StandingClock()
        self.journal: Journal

    def do(self, work: Any) -> Any:
        return self.runner.run(work)

    @initialize()
    def begin(self) -> None:
        self.do(self._open())

    async def _open(self) -> None:
        self.journal = await Journal.open(
            self.file,
            pipeline=the_pipeline(),
            steps=dict.fromkeys(GUARDS, self.far),
            projections=all_views(),
            clock=self.clock,
            wrap=lambda ports, _: cast("Ports", Cut(ports, self.trouble)),
        )

    def teardown(self) -> None:
        try:
            if hasattr(self, "journal"):
                self.do(self.journal.close())
                with closing(sqlite3.connect(self.file)) as db:
                    found = verify(db, projections=all_views(), deep=True)
                assert found.intact, found.violations
        finally:
            self.runner.close()
            shutil.rmtree(self.folder)

    # -- tasks -------------------------------------------------------------------------------------------------------

    @rule(task=st.sampled_from(TASKS))
    def open_task(self, task: str) -> None:
        wanted = NewTask(task, "acme/widgets", f"feature/{task}", head=_head(1), stage="a")
        try:
            self.do(self.journal.open_task(wanted, actor="operator"))
            fresh = True
        except TaskExistsError:
            fresh = False
        assert fresh is (task not in self.model)
        self.model.setdefault(task, Model(task))

    @precondition(lambda self: self.model)
    @rule(data=st.data(), reply=st.sampled_from(REPLIES))
    def advance(self, data: st.DataObject, reply: str) -> None:
        """A run that is not cut off."""
        m = self._pick(data)
        busy = self._lane_is_taken(m)
        self._arm(Trouble(reply=reply))
        result = self.do(advance_stage(self.journal, m.task))
        self._arm(Trouble())
        expected = m.advance(reply, busy)
        assert isinstance(result, expected), (result, expected)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def advance_twice_at_once(self, data: st.DataObject) -> None:
        """One drives, the other is turned away at once."""
        m = self._pick(data)
        if m.hold:
            return
        busy = self._lane_is_taken(m)

        async def both() -> list[Any]:
            return await asyncio.gather(*(advance_stage(self.journal, m.task) for _ in range(2)))

        results = self.do(both())
        expected = m.advance("", busy)
        assert [type(r) for r in results].count(Deferred) == 1, results
        assert any(isinstance(r, expected) for r in results), (results, expected)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), moments=st.lists(st.sampled_from(MOMENTS), min_size=1, max_size=3))
    def cut_off(self, data: st.DataObject, moments: list[str]) -> None:
        """Runs that die at a moment; the model knows exactly what each left behind."""
        m = self._pick(data)
        for moment in moments:
            self._cut_off(data, m, moment)

    def _cut_off(self, data: st.DataObject, m: Model, moment: str) -> None:
        if m.hold or m.cancel or not m.rest or self._lane_is_taken(m) or m.idle >= 3:
            return
        step = data.draw(st.sampled_from(m.rest))
        if moment in ("intended", "effect") and m.there[m.key(step)]:
            return  # it is found, and neither intended nor sent again
        self._arm(Trouble(moment, step))
        with pytest.raises(CutOff):
            self.do(advance_stage(self.journal, m.task))
        self._arm(Trouble())
        m.cut(moment, step)

    def _lane_is_taken(self, m: Model) -> bool:
        lane = LANES.get(m.stage)
        return any(other.lane == lane for other in self.model.values() if other is not m)

    # -- people ------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.model)
    @rule(data=st.data(), verb=st.sampled_from(PEOPLE))
    def interfere(self, data: st.DataObject, verb: str) -> None:
        m = self._pick(data)
        getattr(self, f"_{verb}")(m)

    @precondition(lambda self: any(m.unsettled for m in self.model.values()))
    @rule(data=st.data(), verb=st.sampled_from(("cancel", "head", "reopen", "settle", "release")))
    def interfere_with_doubt(self, data: st.DataObject, verb: str) -> None:
        """And go on at once: that is where a verb must not have been forgotten."""
        m = self.model[data.draw(st.sampled_from(sorted(t for t, m in self.model.items() if m.unsettled)))]
        if m.hold == "parked" and verb != "settle":
            self._resume(m)
        getattr(self, f"_{verb}")(m)
        expected = m.advance("", self._lane_is_taken(m))
        result = self.do(advance_stage(self.journal, m.task))
        assert isinstance(result, expected), (result, expected)

    def _pause(self, m: Model) -> None:
        if self._done(self.journal.pause(m.task, reason="why not"), allowed=not m.ended):
            m.hold, m.owned = "paused", False

    def _resume(self, m: Model) -> None:
        if self._done(self.journal.resume(m.task, reason="go on"), allowed=m.hold in ("paused", "parked")):
            m.hold, m.owned, m.idle = "", False, 0

    def _cancel(self, m: Model) -> None:
        if not self._done(self.journal.cancel(m.task, reason="no more"), allowed=not m.ended):
            return
        m.owned, m.cancel = False, True
        if not m.unsettled:
            m.hold, m.lane = "canceled", ""

    def _release(self, m: Model) -> None:
        result = self.do(self.journal.release(m.task, reason="stuck"))
        assert isinstance(result, Freed if m.owned else Refused), result
        m.idle += m.owned
        m.owned = False

    def _settle(self, m: Model) -> None:
        """The truth: so not while the attempt may still happen."""
        if m.hold == "parked" and m.rest and m.key(m.rest[0]) in m.late:
            return
        landed = bool(m.rest) and bool(m.there[m.key(m.rest[0])])
        told = self.journal.settle(m.task, applied=landed, evidence="looked", reason="seen")
        if self._done(told, allowed=m.hold == "parked" and bool(m.rest)):
            m.settle()

    def _head(self, m: Model) -> None:
        told = self.journal.change_head(m.task, head=_head(m.head + 1), actor="webhook")
        if self._done(told, allowed=not (m.hold or m.unsettled or m.closed)):
            m.anew(m.idle + 1)
            m.head += 1

    def _reopen(self, m: Model) -> None:
        told = self.journal.reopen(m.task, stage="a", reason="once more")
        if self._done(told, allowed=not (m.owned or m.unsettled)):
            m.anew()

    def _done(self, verb: Any, *, allowed: bool) -> bool:
        result = self.do(verb)
        assert isinstance(result, Done if allowed else Refused), result
        return allowed

    # -- the world ---------------------------------------------------------------------------------------------------

    @rule()
    def restart(self) -> None:
        self.do(self.journal.close())
        self.do(self._open())

    @precondition(lambda self: self.far.late)
    @rule()
    def late_requests_arrive(self) -> None:
        """Only an exclusive one may still find room, and then its task is there to notice."""
        for call in self.far.late:
            m = self.model[call.subject.task]
            self.far.perform(call)
            if call.key in m.late and not m.there[call.key]:
                assert call.key == m.key(call.step), "an effect of a generation that is over"
                assert m.unsettled and m.hold != "canceled", "an effect nobody waits for"
                m.there[call.key] = 1
        self.far.late.clear()
        for m in self.model.values():
            m.late.clear()

    @invariant()
    def the_journal_is_what_the_model_says(self) -> None:
        for task, m in self.model.items():
            state = self.do(self.journal.stream(task)).state
            told = (state.stage, state.generation, str(state.hold), bool(state.owner), list(state.closed))
            assert told == (m.stage, m.generation, m.hold, m.owned, m.closed)
            assert (state.open, state.loose, state.cancel, state.lane) == (m.doubt, m.loose, m.cancel, m.lane)

    @invariant()
    def the_views_are_what_the_model_says(self) -> None:
        with closing(sqlite3.connect(f"file:{self.file}?mode=ro", uri=True)) as db:
            rows = db.execute("SELECT task, stage, hold, run <> '', in_doubt FROM journal_view_tasks").fetchall()
        assert sorted(rows) == sorted((m.task, m.stage, m.hold, m.owned, m.doubt) for m in self.model.values())

    @invariant()
    def every_open_task_has_somebody_or_a_next_look(self) -> None:
        """O1: owned, or parked with an alert, or paused, or due within the longest pause between two looks."""
        with closing(sqlite3.connect(f"file:{self.file}?mode=ro", uri=True)) as db:
            rows = db.execute("SELECT run, hold, alert, look_us FROM journal_view_tasks WHERE open = 1").fetchall()
        for run, hold, alert, look_us in rows:
            due = look_us <= self.clock.us + LONGEST_LOOK_US
            assert run or hold == "paused" or (alert if hold == "parked" else due), (run, hold, alert, look_us)

    @invariant()
    def the_world_is_what_the_model_says(self) -> None:
        assert self.far.landed == sum((m.there for m in self.model.values()), Counter[str]())
        assert self.far.sent == sum((m.sent for m in self.model.values()), Counter[str]())

    def _pick(self, data: st.DataObject) -> Model:
        return self.model[data.draw(st.sampled_from(sorted(self.model)))]

    def _arm(self, trouble: Trouble) -> None:
        self.trouble.__dict__.update(trouble.__dict__)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """A line for each action would take a third of the time."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


def _head(n: int) -> str:
    return f"{n:040x}"


@pytest.mark.proves("T4", "FR-2", "FR-4", "DC-2", "E1", "E3", "E13", "O1", "I10", "I12", "I13", "I16", "I23", "I25")
@pytest.mark.proves("R08", "R54", "R57", "R103", "R104")
def test_whatever_happens_the_journal_and_the_world_are_what_a_plain_model_says(counts: Counts) -> None:
    run_state_machine_as_test(
        Delivery,
        settings=settings(max_examples=counts.of(40, ci=600, most=4000), stateful_step_count=25),
    )


# -- does it notice? ---------------------------------------------------------------------------------------------------

Break = Callable[[pytest.MonkeyPatch], None]


def _engine(next_action: Any = None, learn: Any = None) -> Break:
    def apply(patch: pytest.MonkeyPatch) -> None:
        if next_action is not None:
            patch.setattr(journal.advance, "next_action", next_action)
        if learn is not None:
            patch.setattr(journal.advance, "learn", learn)

    return apply


def _epoch_in_the_key(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Call, "key", property(lambda c: f"{c.subject.task}/{c.generation}/{c.step}/{c.epoch}"))


def _forgets_what_may_still_happen(patch: pytest.MonkeyPatch) -> None:
    """As the product did until this machine was asked: a new head while an exclusive attempt may still land."""
    refuses, admits = journal.verbs._no_new_head, journal.admit.admit_each

    def sure(state: TaskState) -> TaskState:
        return state._replace(loose=False)

    def admit_each(state: TaskState, drafts: tuple[Draft, ...]) -> list[TaskState]:
        heads = any(d.kind is Kind.HEAD_CHANGED for d in drafts)
        return admits(sure(state) if heads else state, drafts)

    patch.setattr(journal.verbs, "_no_new_head", lambda s, head: refuses(s._replace(state=sure(s.state)), head))
    patch.setattr(journal.log.batch, "admit_each", admit_each)


def _ignores_lanes(patch: pytest.MonkeyPatch) -> None:
    takes = journal.log.batch.Batch.take

    def take(batch: journal.log.batch.Batch, unit: Unit) -> Any:
        batch.lanes.clear()
        return takes(batch, unit)

    patch.setattr(journal.log.batch.Batch, "take", take)


def _drives_over_doubt(patch: pytest.MonkeyPatch) -> None:
    for guard in GUARDS.values():
        patch.setitem(TABLE, (Row.OPEN, Fact.OURS, guard), Verdict.DRIVE)


BREAKS: dict[str, Break] = {
    "the epoch in the key": _epoch_in_the_key,
    "the intent after the effect": _engine(mutants.intent_after_effect, mutants.late_intent),
    "the same attempt again": _engine(learn=mutants.retries_blindly),
    "an effect in the world is done again": _drives_over_doubt,
}
RARER: dict[str, Break] = {
    "an exception is a refusal": _engine(learn=mutants.exception_is_refusal),
    "no quiesce": _engine(mutants.no_quiesce),
    "a cancel is ignored": _engine(mutants.expecting(mutants.cancel_ignored)),
    "unknown is absent": lambda p: p.setitem(TABLE, (Row.FRESH, Fact.UNKNOWN, Guard.EXCLUSIVE), Verdict.DRIVE),
    "terms that close nothing are not counted": lambda p: p.setattr(journal.engine, "MAX_FRUITLESS", 99),
    "a new head while an attempt may still land": _forgets_what_may_still_happen,
    "lanes are ignored": _ignores_lanes,
}
"""They take more examples than the default suite has time for."""


@pytest.mark.proves("T3", "T4")
@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_product_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _notice(BREAKS[name], monkeypatch, 60)


@pytest.mark.mutants
@pytest.mark.proves("T3", "T4")
@pytest.mark.parametrize("name", RARER)
def test_a_broken_product_is_noticed_after_a_while(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _notice(RARER[name], monkeypatch, 600)


def _notice(broken: Break, patch: pytest.MonkeyPatch, examples: int) -> None:
    broken(patch)
    told = settings(max_examples=examples, stateful_step_count=25, phases=[Phase.generate], report_multiple_bugs=False)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        run_state_machine_as_test(Delivery, settings=told)
