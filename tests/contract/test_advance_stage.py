"""
`advance_stage` over real files: a real log, real locks, and effects that are counted where none of our memory reaches.

The adapters are files made exclusively (`tests.builders.FileStep`); each test bends one answer of one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from journal import Journal, advance_stage
from journal.errors import NotWriterError, PipelineError, TaskExistsError
from journal.events import Acquired, Draft, Event, Intended, Observed, Parked, Paused, Released, Resumed
from journal.journal import NewTask
from journal.log.unit import Unit
from journal.pipeline import Pipeline
from journal.ports import Answer, Call, Clock, Finding, Gate, Reply, StepAdapter
from journal.results import (
    Advanced,
    Deferred,
    Freed,
    LostRace,
    Refused,
    Result,
    RolledBack,
    Unavailable,
    Waiting,
)
from journal.results import Parked as ParkedResult
from journal.words import Ending, Evidence, Fact, Guard, Kind, Opening, Outcome, evidence
from tests.builders import FileStep, StandingClock, pipeline, step

SIX = ("merge_pr", "ratchet", "rebuild", "merge_verified", "deploy_init", "cleanup")
Answered = TypeVar("Answered")
Body = TypeVar("Body")


@dataclass
class Bent(FileStep):
    """A file step that behaves as told: `probes` and `applies` answer first, in order; then it is itself again."""

    probes: list[Fact | Exception] = field(default_factory=list)
    applies: list[Outcome | Exception] = field(default_factory=list)
    claims: Outcome = Outcome.APPLIED
    loses_reply: bool = False  # the effect happens, the reply does not arrive
    seen: Evidence = ()
    shows: Fact = Fact.OURS  # what an effect that is there is taken for

    async def probe(self, call: Call) -> Finding:
        if self.probes:
            return Finding(_raise(self.probes.pop(0)), evidence(source="bent"))
        found = await super().probe(call)
        return Finding(self.shows if found.fact is Fact.OURS else found.fact, (*found.seen, *self.seen))

    async def apply(self, call: Call) -> Reply:
        if self.applies:
            return Reply(_raise(self.applies.pop(0)), evidence(source="bent"))
        reply = await super().apply(call)
        if self.loses_reply:
            raise ConnectionResetError("the reply was lost")
        return Reply(self.claims, (*reply.seen, *self.seen))


def _raise(answer: Answered | Exception) -> Answered:
    if isinstance(answer, Exception):
        raise answer
    return answer


@dataclass
class Door:
    """A gate that answers as told, then stays open."""

    answers: list[Opening | Exception] = field(default_factory=list)
    asked: int = 0

    async def ask(self, call: Call) -> Answer:
        self.asked += 1
        return Answer(_raise(self.answers.pop(0)) if self.answers else Opening.OPEN, reason="as told")


@asynccontextmanager
async def journal_of(
    folder: Path,
    definition: Pipeline,
    steps: Mapping[str, StepAdapter],
    *,
    gates: Mapping[str, Gate] | None = None,
    tasks: int = 1,
    clock: Clock | None = None,
) -> AsyncIterator[Journal]:
    """A journal with tasks T-1, T-2, ... open in its first stage."""
    async with Journal.open(
        folder / "journal.db", pipeline=definition, steps=steps, gates=gates or {}, clock=clock
    ) as journal:
        for n in range(1, tasks + 1):
            if not (await journal.log.read(f"T-{n}")).version:
                wanted = NewTask(f"T-{n}", "acme/widgets", f"feature/{n}", stage="analysis")
                await journal.open_task(wanted, actor="operator")
        yield journal


async def kinds(journal: Journal, task: str = "T-1") -> list[Kind]:
    return [e.kind for e in await journal.events(task)]


async def of_kind(journal: Journal, kind: Kind, task: str = "T-1") -> list[Event]:
    return [e for e in await journal.events(task) if e.kind is kind]


def free(journal: Journal, task: str = "T-1") -> bool:
    return not journal.locks.is_held(task) and not journal.tools.running


# -- the good path --------------------------------------------------------------------------------------------------


@pytest.mark.proves("DC-1", "DC-4", "FR-1", "E1", "E3", "F3")
async def test_an_edge_runs_its_steps_in_order_each_intended_before_it_and_recorded_after_it(tmp_path: Path) -> None:
    files = FileStep(tmp_path)
    async with journal_of(tmp_path, pipeline(*map(step, SIX)), dict.fromkeys(SIX, files)) as journal:
        assert await advance_stage(journal, "T-1", expect="analysis") == Advanced("T-1", "analysis", "done", 1)

        assert await kinds(journal) == [
            Kind.OPENED, Kind.ACQUIRED, *[Kind.INTENDED, Kind.APPLIED] * 6, Kind.STAGE_MOVED, Kind.RELEASED,
        ]  # fmt: skip
        assert [e.draft.step for e in await of_kind(journal, Kind.APPLIED)] == list(SIX)
        assert {e.key for e in await of_kind(journal, Kind.INTENDED)} == {f"T-1/1/{name}" for name in SIX}
        assert free(journal)
    assert [files.calls(f"T-1/1/{name}") for name in SIX] == [["1.1"]] * 6


@pytest.mark.proves("I13")
async def test_an_edge_without_steps_moves_the_stage_in_one_unit(tmp_path: Path) -> None:
    async with journal_of(tmp_path, pipeline(), {}) as journal:
        assert await advance_stage(journal, "T-1") == Advanced("T-1", "analysis", "done", 1)
        assert await kinds(journal) == [Kind.OPENED, Kind.ACQUIRED, Kind.STAGE_MOVED, Kind.RELEASED]
        events = await journal.events("T-1")
        assert len({e.at for e in events[1:]}) == 1


@pytest.mark.proves("FR-7", "NFR-1", "I15")
@pytest.mark.parametrize("task", ["T-9", "", "../../etc/passwd", "T-1\n", "x" * 500, "caf\udce9", "T-1.lock"])
async def test_a_task_that_does_not_exist_is_refused_without_an_exception_or_a_file(tmp_path: Path, task: str) -> None:
    async with journal_of(tmp_path, pipeline(), {}) as journal:
        assert isinstance(await advance_stage(journal, task), Refused)
        assert isinstance(await journal.release(task, reason="stuck"), Refused)
        assert not list((tmp_path / "journal.db.locks").glob("tasks/*"))


@pytest.mark.proves("I15")
async def test_a_finished_task_is_refused(tmp_path: Path) -> None:
    async with journal_of(tmp_path, pipeline(), {}) as journal:
        await advance_stage(journal, "T-1")
        before = await kinds(journal)
        assert await advance_stage(journal, "T-1") == Refused("T-1", "the task is done", "done")
        assert await kinds(journal) == before


# -- races ----------------------------------------------------------------------------------------------------------


@pytest.mark.proves("FR-2", "L3")
async def test_who_expects_another_stage_loses_and_does_nothing(tmp_path: Path) -> None:
    files = FileStep(tmp_path)
    async with journal_of(tmp_path, pipeline(step("merge_pr")), {"merge_pr": files}) as journal:
        assert isinstance(await advance_stage(journal, "T-1", expect="review"), LostRace)
        assert await kinds(journal) == [Kind.OPENED]
    assert files.calls("T-1/1/merge_pr") == []


@pytest.mark.proves("TR-5", "FR-2", "FR-5", "O3", "E5")
@pytest.mark.parametrize("actors", [2, 8])
async def test_of_many_at_once_one_drives_and_each_effect_happens_once(tmp_path: Path, actors: int) -> None:
    files = FileStep(tmp_path)
    async with journal_of(tmp_path, pipeline(*map(step, SIX)), dict.fromkeys(SIX, files)) as journal:
        answers = await asyncio.gather(
            *(advance_stage(journal, "T-1", expect="analysis", actor=f"actor-{n}") for n in range(actors))
        )
        assert sum(isinstance(a, Advanced) for a in answers) == 1
        assert all(isinstance(a, (Advanced, Deferred, LostRace)) for a in answers)
        await journal.open_task(NewTask("X", "a/b", "c"), actor="operator")  # after every counter that was put
        rows = await journal.log.query("SELECT sum(count) FROM journal_counters WHERE name = 'deferred'")
        assert (rows[0][0] or 0) == sum(isinstance(a, Deferred) for a in answers)
    assert [files.calls(f"T-1/1/{name}") for name in SIX] == [["1.1"]] * 6


@pytest.mark.proves("L3", "E1")
async def test_an_operators_word_makes_the_owner_lose_and_write_no_outcome(tmp_path: Path) -> None:
    """`paused` arrives while the effect runs: the run leaves, the attempt stays in doubt and is settled later."""
    entered, go_on = asyncio.Event(), asyncio.Event()

    class Slow(FileStep):
        async def apply(self, call: Call) -> Reply:
            entered.set()
            await go_on.wait()
            return await super().apply(call)

    files = Slow(tmp_path)
    async with journal_of(tmp_path, pipeline(step("merge_pr")), {"merge_pr": files}) as journal:
        run = asyncio.create_task(advance_stage(journal, "T-1"))
        await entered.wait()
        stream = await journal.stream("T-1")
        await journal.log.append(Unit(stream, (Draft(Paused("look first"), stream.state.epoch, 1, "operator"),)))
        go_on.set()
        assert isinstance(await run, LostRace)
        assert await kinds(journal) == [Kind.OPENED, Kind.ACQUIRED, Kind.INTENDED, Kind.PAUSED]
        assert isinstance(await advance_stage(journal, "T-1"), Refused)

        stream = await journal.stream("T-1")
        await journal.log.append(Unit(stream, (Draft(Resumed("go"), stream.state.epoch, 1, "operator"),)))
        assert isinstance(await advance_stage(journal, "T-1"), Advanced)
    assert files.calls("T-1/1/merge_pr") == ["1.1"]


# -- doubt ----------------------------------------------------------------------------------------------------------


@pytest.mark.proves("E6", "V1", "FR-4")
async def test_an_effect_whose_reply_was_lost_is_found_and_not_done_again(tmp_path: Path) -> None:
    files = Bent(tmp_path, loses_reply=True)
    async with journal_of(tmp_path, pipeline(step("merge_pr")), {"merge_pr": files}) as journal:
        assert isinstance(await advance_stage(journal, "T-1"), Advanced)
        (observed,) = await of_kind(journal, Kind.OBSERVED)
        assert isinstance(observed.draft.body, Observed)
        assert observed.draft.body.verdict == "converge"
        assert "the reply was lost" in str(dict(observed.draft.body.reply)["error"])
    assert files.calls("T-1/1/merge_pr") == ["1.1"]


@pytest.mark.proves("E10", "P1")
async def test_an_effect_that_is_there_before_the_first_attempt_halts_as_an_older_copy_would(tmp_path: Path) -> None:
    files = FileStep(tmp_path)
    files.effect("T-1/1/merge_pr").write_text("from a journal that we do not know")
    async with journal_of(tmp_path, pipeline(step("merge_pr")), {"merge_pr": files}) as journal:
        assert isinstance(await advance_stage(journal, "T-1"), ParkedResult)
    assert files.calls("T-1/1/merge_pr") == []


@pytest.mark.proves("V4", "E6")
async def test_an_attempt_that_did_nothing_is_made_again_with_the_same_key_and_a_higher_fence(tmp_path: Path) -> None:
    files = Bent(tmp_path, applies=[ConnectionResetError("before it was sent, for all we know")])
    async with journal_of(tmp_path, pipeline(step("merge_pr")), {"merge_pr": files}) as journal:
        assert isinstance(await advance_stage(journal, "T-1"), Advanced)
        intents = await of_kind(journal, Kind.INTENDED)
        assert [(e.key, e.draft.epoch, e.draft.attempt) for e in intents] == [
            ("T-1/1/merge_pr", 1, 1),
            ("T-1/1/merge_pr", 1, 2),
        ]
    assert files.calls("T-1/1/merge_pr") == ["1.2"]


@pytest.mark.proves("V3", "I17", "NFR-6", "O1")
async def test_an_unknown_fact_waits_then_parks_and_never_drives(tmp_path: Path) -> None:
    clock = StandingClock()
    merge = step("merge_pr", waits=2, looks=3, deadline_ms=10**9)
    files = Bent(tmp_path, probes=[Fact.UNKNOWN] * 100)
    async with journal_of(tmp_path, pipeline(merge), {"merge_pr": files}, clock=clock) as journal:
        answers: list[Result] = []
        for _ in range(6):
            answers.append(await advance_stage(journal, "T-1"))
            clock.us += 60_000_000
            assert free(journal)
        assert [type(a) for a in answers] == [Waiting] * 3 + [ParkedResult] * 3
        assert isinstance(answers[0], Waiting)
        assert answers[0].look_ms > 0
        assert [b.ending for b in await bodies(journal, Released)] == [Ending.WAITING] * 3 + [Ending.PARKED]
        (parked,) = await bodies(journal, Parked)
        assert parked.alert
    assert files.calls("T-1/1/merge_pr") == []


@pytest.mark.proves("V3", "V2")
async def test_a_probe_that_raises_or_hangs_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Hangs(FileStep):
        async def probe(self, call: Call) -> Finding:
            await asyncio.Event().wait()
            raise AssertionError

    monkeypatch.setattr("journal.shell.PROBE_BUDGET_S", 0.01)
    merge = step("merge_pr", waits=0)
    for name, adapter in {"a": Bent(tmp_path, probes=[OSError("no route")]), "b": Hangs(tmp_path)}.items():
        folder = tmp_path / name
        folder.mkdir()
        async with journal_of(folder, pipeline(merge), {"merge_pr": adapter}) as journal:
            answer = await advance_stage(journal, "T-1")
            assert isinstance(answer, Waiting), answer
            assert free(journal)


@pytest.mark.proves("V2", "I17")
async def test_a_conflict_parks_at_once(tmp_path: Path) -> None:
    files = Bent(tmp_path, probes=[Fact.CONFLICT])
    async with journal_of(tmp_path, pipeline(step("merge_pr")), {"merge_pr": files}) as journal:
        assert isinstance(await advance_stage(journal, "T-1"), ParkedResult)
    assert files.calls("T-1/1/merge_pr") == []


@pytest.mark.proves("V8", "X2", "A4")
async def test_an_effect_that_cites_an_event_which_the_log_lacks_parks(tmp_path: Path) -> None:
    """The log is an older copy of the one that the effect knows; going on would hand out used epochs again."""
    for cites, expected in (("99:" + "0" * 64, ParkedResult), ("", Advanced)):
        folder = tmp_path / (cites[:2] or "none")
        folder.mkdir()
        files = Bent(folder, loses_reply=True, seen=(("cites", cites),))
        async with journal_of(folder, pipeline(step("merge_pr")), {"merge_pr": files}) as journal:
            assert isinstance(await advance_stage(journal, "T-1"), expected)


@pytest.mark.proves("V8", "X2", "A4", "F1")
@pytest.mark.parametrize(
    ("fact", "knows", "row", "verdict"),
    [
        (Fact.OURS, {"cites": "99:" + "0" * 64}, "fresh", "halt"),
        (Fact.OURS, {"fence": "9.1"}, "fresh", "halt"),
        (Fact.OTHERS, {"cites": "99:" + "0" * 64, "journal": ""}, "fresh", "park"),
        (Fact.OTHERS, {"cites": "99:" + "0" * 64, "journal": "another"}, "fresh", "converge"),
    ],
)
async def test_what_the_world_knows_of_this_journal_and_the_log_does_not_hold_stops_the_task(
    tmp_path: Path, fact: Fact, knows: dict[str, str], row: str, verdict: str
) -> None:
    """Before the first attempt too: yesterday's copy, put back by hand, would do everything since then once more."""
    files = Bent(tmp_path)
    async with journal_of(tmp_path, pipeline(step("merge_pr", adopts=True)), {"merge_pr": files}) as journal:
        files.seen = tuple((knows | {"journal": knows.get("journal") or journal.log.journal_id}).items())
        files.effect("T-1/1/merge_pr").write_text("made by the journal that was lost")
        files.shows = fact
        await advance_stage(journal, "T-1")
        observed = (await of_kind(journal, Kind.OBSERVED))[0].draft.body
        assert isinstance(observed, Observed) and (observed.row, observed.verdict) == (row, verdict)
        assert ("older copy" in str(dict(observed.seen).get("reason"))) == (verdict != "converge")
    assert files.calls("T-1/1/merge_pr") == []


@pytest.mark.proves("V8", "A4")
async def test_an_effect_of_another_task_of_this_log_is_no_sign_of_an_older_copy(tmp_path: Path) -> None:
    files = Bent(tmp_path)
    async with journal_of(tmp_path, pipeline(step("merge_pr", adopts=True)), {"merge_pr": files}, tasks=2) as journal:
        assert isinstance(await advance_stage(journal, "T-1"), Advanced)
        made = (await of_kind(journal, Kind.INTENDED))[0]
        cites = f"{made.position}:{made.hash.hex()}"
        files.seen = (("cites", cites), ("fence", "7.1"), ("journal", journal.log.journal_id))
        files.effect("T-2/1/merge_pr").write_text("the branch that T-1 merged")
        files.shows = Fact.OTHERS
        assert isinstance(await advance_stage(journal, "T-2"), Advanced)


@pytest.mark.proves("E8", "O2", "I20")
@pytest.mark.parametrize("back", ["", "development"])
async def test_refused_as_often_as_allowed_the_task_rolls_back_or_parks(tmp_path: Path, back: str) -> None:
    files = Bent(tmp_path, applies=[Outcome.REJECTED] * 9)
    definition = pipeline(step("merge_pr", attempts=2), on_failure=back)
    async with journal_of(tmp_path, definition, {"merge_pr": files}) as journal:
        answer = await advance_stage(journal, "T-1")
        assert isinstance(answer, RolledBack if back else ParkedResult)
        assert (await journal.stream("T-1")).state.stage == (back or "analysis")
        rejected = [e for e in await kinds(journal) if e is Kind.REJECTED]
        assert len(rejected) == 2
        assert free(journal)


@pytest.mark.proves("E4", "V4")
async def test_a_blind_step_in_doubt_parks_and_is_never_made_again(tmp_path: Path) -> None:
    files = Bent(tmp_path, loses_reply=True, probes=[Fact.UNKNOWN] * 9)
    blind = step("announce", Guard.BLIND)
    async with journal_of(tmp_path, pipeline(blind), {"announce": files}) as journal:
        for _ in range(3):
            assert isinstance(await advance_stage(journal, "T-1"), ParkedResult)
    assert files.calls("T-1/1/announce") == ["1.1"]


@pytest.mark.proves("L6", "TR-9")
@pytest.mark.parametrize("claims", [Outcome.APPLIED, Outcome.UNKNOWN])
async def test_odd_evidence_of_an_adapter_cannot_keep_an_outcome_from_being_written(
    tmp_path: Path, claims: Outcome
) -> None:
    odd = (("b", "x" * 200_000), ("c", "caf\udce9"), ("d", 0.5), ("e", ["list"]), ("f", 2**70), ("g", "\0" * 3000))
    files = Bent(tmp_path, seen=odd, claims=claims)  # type: ignore[arg-type]
    async with journal_of(tmp_path, pipeline(step("merge_pr")), {"merge_pr": files}) as journal:
        assert isinstance(await advance_stage(journal, "T-1"), Advanced)
        assert await journal.log.events(task="T-1")  # and what was stored is read back
    assert files.calls("T-1/1/merge_pr") == ["1.1"]


# -- gates and lanes ------------------------------------------------------------------------------------------------


@pytest.mark.proves("E12")
@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([Opening.CLOSED], Refused),
        ([Opening.UNKNOWN], Waiting),
        ([OSError("no route")], Waiting),
        ([Opening.OPEN, Opening.CLOSED], Waiting),
        ([Opening.OPEN, Opening.OPEN], Advanced),
    ],
    ids=["closed", "unknown", "an error", "closed right before the intent", "open"],
)
async def test_a_gate_is_asked_twice_and_only_open_lets_through(
    tmp_path: Path, answers: list[Opening | Exception], expected: type[Result]
) -> None:
    files, door = FileStep(tmp_path), Door(list(answers))
    definition = pipeline(step("merge_pr"), gates=("coverage",))
    async with journal_of(tmp_path, definition, {"merge_pr": files}, gates={"coverage": door}) as journal:
        assert isinstance(await advance_stage(journal, "T-1"), expected)
        assert door.asked == len(answers)
        assert free(journal)
        assert len(await of_kind(journal, Kind.INTENDED)) == (expected is Advanced)
    assert len(files.calls("T-1/1/merge_pr")) == (expected is Advanced)


@pytest.mark.proves("E13", "E2")
async def test_a_busy_lane_makes_wait_and_the_other_task_is_not_disturbed(tmp_path: Path) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    class Slow(FileStep):
        async def apply(self, call: Call) -> Reply:
            if call.subject.task == "T-1":
                entered.set()
                await go_on.wait()
            return await super().apply(call)

    files = Slow(tmp_path)
    definition = pipeline(step("merge_pr"), lane="merge:{repo}/{base}")
    async with journal_of(tmp_path, definition, {"merge_pr": files}, tasks=2) as journal:
        first = asyncio.create_task(advance_stage(journal, "T-1"))
        await entered.wait()
        second = await advance_stage(journal, "T-2")
        assert isinstance(second, Waiting)
        assert "T-1" in second.reason
        assert files.calls("T-2/1/merge_pr") == []
        go_on.set()
        assert isinstance(await first, Advanced)
        assert isinstance(await advance_stage(journal, "T-2"), Advanced)


# -- endings --------------------------------------------------------------------------------------------------------


class Broken(FileStep):
    """Breaks in one place, in one way, once."""

    def __init__(self, folder: Path, where: str, how: Callable[[], Awaitable[None]]) -> None:
        super().__init__(folder)
        self.where, self.how, self.reached = where, how, asyncio.Event()

    async def _at(self, where: str) -> None:
        if where == self.where and not self.reached.is_set():
            self.reached.set()
            await self.how()

    async def probe(self, call: Call) -> Finding:
        await self._at("probe")
        if call.attempt:
            await self._at("probe again")
        return await super().probe(call)

    async def apply(self, call: Call) -> Reply:
        await self._at("before the effect")
        reply = await super().apply(call)
        await self._at("after the effect")
        return reply

    async def quiesce(self, call: Call) -> None:
        await self._at("quiesce")

    async def ask(self, call: Call) -> Answer:
        await self._at("gate")
        return Answer(Opening.OPEN)


async def _bug() -> None:
    raise ZeroDivisionError("a bug")


async def _hang() -> None:
    await asyncio.Event().wait()


PLACES = ("gate", "probe", "before the effect", "after the effect", "probe again")


@pytest.mark.proves("TR-2", "FR-7", "NFR-1", "FR-1")
@pytest.mark.parametrize("where", PLACES)
async def test_a_bug_in_an_adapter_leaks_no_lock_and_the_next_run_settles_it(tmp_path: Path, where: str) -> None:
    adapter = Broken(tmp_path, where, _bug)
    definition = pipeline(step("merge_pr", waits=0), gates=("door",))
    async with journal_of(tmp_path, definition, {"merge_pr": adapter}, gates={"door": adapter}) as journal:
        first = await advance_stage(journal, "T-1")
        assert isinstance(first, (Advanced, Waiting)), first
        assert adapter.reached.is_set()
        assert free(journal)
        if not isinstance(first, Advanced):
            assert isinstance(await advance_stage(journal, "T-1"), Advanced)
    assert len(adapter.calls("T-1/1/merge_pr")) == 1


@pytest.mark.proves("TR-2", "R80", "V9")
@pytest.mark.parametrize("where", PLACES)
async def test_a_cancelled_run_leaks_no_lock_and_the_next_run_settles_it(tmp_path: Path, where: str) -> None:
    adapter = Broken(tmp_path, where, _hang)
    definition = pipeline(step("merge_pr"), gates=("door",))
    async with journal_of(tmp_path, definition, {"merge_pr": adapter}, gates={"door": adapter}) as journal:
        run = asyncio.create_task(advance_stage(journal, "T-1"))
        await adapter.reached.wait()
        run.cancel()
        assert isinstance((await asyncio.gather(run, return_exceptions=True))[0], asyncio.CancelledError)
        assert free(journal)
        assert (Kind.APPLIED not in await kinds(journal)) and (Kind.REJECTED not in await kinds(journal))
        assert (await journal.stream("T-1")).state.open == (where not in ("gate", "probe"))

        assert isinstance(await advance_stage(journal, "T-1"), Advanced)
    assert len(adapter.calls("T-1/1/merge_pr")) == 1


@pytest.mark.proves("TR-2", "F4")
@pytest.mark.parametrize("how", [_bug, _hang], ids=["a bug", "cancelled"])
async def test_a_failing_quiesce_drops_the_run_as_a_crash_would(
    tmp_path: Path, how: Callable[[], Awaitable[None]]
) -> None:
    adapter = Broken(tmp_path, "quiesce", how)
    bent = Bent(tmp_path, applies=[TimeoutError("no end")])
    adapter.apply = bent.apply  # type: ignore[method-assign]
    definition = pipeline(step("merge_pr", Guard.FENCED))
    async with journal_of(tmp_path, definition, {"merge_pr": adapter}) as journal:
        run = asyncio.create_task(advance_stage(journal, "T-1"))
        await adapter.reached.wait()
        if how is _hang:
            run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        assert free(journal)
        assert (await journal.stream("T-1")).state.open
        assert isinstance(await advance_stage(journal, "T-1"), Advanced)


@pytest.mark.proves("TR-1", "E9", "FR-3")
async def test_a_hung_step_is_ended_by_its_budget_and_the_task_goes_on(tmp_path: Path) -> None:
    adapter = Broken(tmp_path, "before the effect", _hang)
    async with journal_of(tmp_path, pipeline(step("merge_pr", budget_ms=20)), {"merge_pr": adapter}) as journal:
        assert isinstance(await advance_stage(journal, "T-1"), Advanced)
        (observed,) = await bodies(journal, Observed)
        assert "no end within" in str(dict(observed.reply)["reason"])
        assert free(journal)


@pytest.mark.proves("TR-1", "FR-3", "TR-7", "FR-6")
async def test_the_reaper_ends_a_run_past_its_budget_and_finishes_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker that called for the run lives on and is told; only the run ends."""
    adapter = Broken(tmp_path, "after the effect", _hang)
    async with journal_of(tmp_path, pipeline(step("merge_pr")), {"merge_pr": adapter}) as journal:
        work = asyncio.create_task(advance_stage(journal, "T-1"))
        await adapter.reached.wait()
        assert isinstance(await advance_stage(journal, "T-1", actor="reaper"), Deferred)  # not overdue yet
        assert isinstance(await advance_stage(journal, "T-1", actor="reconciler"), Deferred)

        monkeypatch.setattr("journal.shell.held_for_s", lambda _: 10**6)
        assert isinstance(await advance_stage(journal, "T-1", actor="reconciler"), Deferred)  # may not end anybody
        assert isinstance(await advance_stage(journal, "T-1", actor="reaper"), Advanced)
        ended = await work
        assert isinstance(ended, Unavailable)
        assert "ended by reaper" in ended.reason
        second = (await bodies(journal, Acquired))[1]
        assert (second.cause, bool(second.before)) == ("budget", True)
        assert free(journal)
    assert adapter.calls("T-1/1/merge_pr") == ["1.1"]


@pytest.mark.proves("FR-6", "R103")
async def test_an_operator_frees_a_stuck_task_and_the_next_run_settles_it(tmp_path: Path) -> None:
    adapter = Broken(tmp_path, "after the effect", _hang)
    async with journal_of(tmp_path, pipeline(step("merge_pr")), {"merge_pr": adapter}) as journal:
        work = asyncio.create_task(advance_stage(journal, "T-1"))
        await adapter.reached.wait()
        freed = await journal.release("T-1", reason="it hangs")
        assert freed == Freed("T-1", 2)
        assert isinstance(await work, Unavailable)
        assert free(journal)
        assert isinstance(await journal.release("T-1", reason="again"), Refused)
        assert isinstance(await advance_stage(journal, "T-1"), Advanced)
    assert adapter.calls("T-1/1/merge_pr") == ["1.1"]


@pytest.mark.proves("TR-2")
async def test_closing_the_journal_ends_its_runs_and_not_their_callers(tmp_path: Path) -> None:
    adapter = Broken(tmp_path, "after the effect", _hang)
    definition = pipeline(step("merge_pr"))
    answers: list[Result] = []
    async with journal_of(tmp_path, definition, {"merge_pr": adapter}) as journal:

        async def worker() -> None:
            answers.append(await advance_stage(journal, "T-1"))
            answers.append(await advance_stage(journal, "T-1"))

        work = asyncio.create_task(worker())
        await adapter.reached.wait()
    await work
    assert [type(a) for a in answers] == [Unavailable, Unavailable]
    async with journal_of(tmp_path, definition, {"merge_pr": adapter}) as journal:
        assert isinstance(await advance_stage(journal, "T-1"), Advanced)
    assert adapter.calls("T-1/1/merge_pr") == ["1.1"]


@pytest.mark.proves("O2", "R55", "I20")
async def test_three_terms_without_a_closed_step_park(tmp_path: Path) -> None:
    class Fails(FileStep):
        async def quiesce(self, call: Call) -> None:
            raise OSError("the fence cannot be installed")

        async def apply(self, call: Call) -> Reply:
            raise TimeoutError

    definition = pipeline(step("merge_pr", Guard.FENCED))
    async with journal_of(tmp_path, definition, {"merge_pr": Fails(tmp_path)}) as journal:
        answers = [type(await advance_stage(journal, "T-1")) for _ in range(5)]
        assert answers == [Unavailable] * 3 + [ParkedResult] * 2
        assert "3 terms in a row" in (await bodies(journal, Parked))[0].reason


@pytest.mark.proves("FR-7", "TR-9", "NFR-1")
async def test_a_log_that_fails_is_unavailable_and_no_effect_runs(tmp_path: Path) -> None:
    files = FileStep(tmp_path)
    async with journal_of(tmp_path, pipeline(step("merge_pr")), {"merge_pr": files}) as journal:
        (tmp_path / "journal.db").rename(tmp_path / "elsewhere.db")
        answer = await advance_stage(journal, "T-1")
        assert isinstance(answer, Unavailable)
        assert "removed or replaced" in answer.reason
        assert free(journal)
    assert files.calls("T-1/1/merge_pr") == []


# -- the plan -------------------------------------------------------------------------------------------------------


@pytest.mark.proves("E3", "I8")
async def test_a_transition_that_has_begun_keeps_its_plan_when_the_pipeline_changes(tmp_path: Path) -> None:
    adapter = Broken(tmp_path, "before the effect", _hang)
    old, new = pipeline(step("merge_pr"), step("ratchet")), pipeline(step("rebuild"), step("merge_pr"))
    adapters = dict.fromkeys(("merge_pr", "ratchet", "rebuild"), adapter)
    async with journal_of(tmp_path, old, adapters) as journal:
        run = asyncio.create_task(advance_stage(journal, "T-1"))
        await adapter.reached.wait()
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
    async with journal_of(tmp_path, new, adapters) as journal:
        assert isinstance(await advance_stage(journal, "T-1"), Advanced)
        assert [e.draft.step for e in await of_kind(journal, Kind.APPLIED)] == ["merge_pr", "ratchet"]
        intents = [e.draft.body for e in await of_kind(journal, Kind.INTENDED)]
        assert all(isinstance(body, Intended) for body in intents)
    assert adapter.calls("T-1/1/rebuild") == []


@pytest.mark.proves("E4", "TR-9")
async def test_a_pipeline_whose_step_or_gate_nobody_performs_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=r"steps\.merge_pr"):
        await Journal.open(tmp_path / "journal.db", pipeline=pipeline(step("merge_pr")), steps={})
    with pytest.raises(PipelineError, match=r"gates\.door"):
        await Journal.open(tmp_path / "journal.db", pipeline=pipeline(gates=("door",)), steps={})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.proves("S3")
async def test_opening_a_task_twice_says_so_and_disturbs_nobody(tmp_path: Path) -> None:
    async with journal_of(tmp_path, pipeline(), {}) as journal:
        for again in ("T-1", "t-1"):
            with pytest.raises(TaskExistsError):
                await journal.open_task(NewTask(again, "acme/widgets", "x"), actor="operator")
        both = await asyncio.gather(
            *(journal.open_task(NewTask("N-1", "acme/widgets", "x"), actor="operator") for _ in range(2)),
            return_exceptions=True,
        )
        assert sum(isinstance(b, TaskExistsError) for b in both) == 1


@pytest.mark.proves("S4", "FR-1")
async def test_a_second_journal_on_the_file_is_told_who_drives_and_may_read(tmp_path: Path) -> None:
    async with journal_of(tmp_path, pipeline(), {}) as journal:
        with pytest.raises(NotWriterError, match=r"journal@.*:\d+"):
            await Journal.open(tmp_path / "journal.db", pipeline=pipeline(), steps={})
        async with Journal.open(tmp_path / "journal.db", pipeline=pipeline(), steps={}, write=False) as reader:
            assert (await reader.stream("T-1")).version == 1
            assert isinstance(await advance_stage(reader, "T-1"), Unavailable)
        assert isinstance(await advance_stage(journal, "T-1"), Advanced)


async def bodies(journal: Journal, of: type[Body]) -> list[Body]:
    return [e.draft.body for e in await journal.events("T-1") if isinstance(e.draft.body, of)]
