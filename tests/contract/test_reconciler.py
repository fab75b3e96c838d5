"""Reconciler, inbox, attention: polling reaches what webhooks reach; neither fights an owner or a person (FR-5)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from integrations.git.heads import GitHeads
from journal.errors import StoreUnavailableError
from journal.journal import Journal
from journal.pipeline import Edge, Pipeline
from journal.ports import Answer, Call, Gate, Reply, Subject
from journal.results import Done
from journal.words import Kind, Opening
from recovery.attention import Attention, Looked
from recovery.hints import MAX_TRIES, HintHandler
from recovery.inbox import Inbox
from recovery.jobs import JobState
from recovery.outside import Hint, Outside, Status
from recovery.publisher import Publisher
from recovery.reconciler import Reconciler
from tests.acting import NOTE, REPO, Desk, desk, notes, python, three_stages
from tests.builders import FileStep, StandingClock
from tests.widgets import build_widgets

OLD, NEW, NEWEST = "a" * 40, "b" * 40, "c" * 40


@dataclass
class Forge:
    """What the forge has now, as its answer; None = it cannot be asked."""

    head: str = OLD
    merged: bool = False
    closed: bool = False
    answers: bool = True
    asked: int = 0

    async def pull(self, subject: Subject) -> Forge | None:
        self.asked += 1
        return self if self.answers else None


@dataclass
class Board:
    """What people ask for in the tracker, by task; None = it cannot be asked."""

    wishes: dict[str, str] = field(default_factory=dict)
    answers: bool = True

    async def asked(self, task: str) -> str | None:
        return self.wishes.get(task, "") if self.answers else None


@dataclass
class Office:
    """Attention, inbox and its handler over one desk."""

    d: Desk
    forge: Forge = field(default_factory=Forge)
    board: Board = field(default_factory=Board)
    hinted: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.inbox = Inbox(self.d.journal.log, self.d.journal.clock)
        self.attention = Attention(
            self.d.journal, submit=self.d.submit, hint=self.hinted.append, forge=self.forge, tracker=self.board
        )
        self.handler = HintHandler(self.d.journal, self.inbox, self.attention)
        self.reconciler = Reconciler(self.d.journal, self.d.jobs, self.attention, submit=self.d.submit, poll_s=60)

    async def letters(self) -> list[tuple[str, int]]:
        """(note, handled or not) of every notice."""
        rows = await self.d.journal.log.query("SELECT note, handled_us > 0 FROM journal_inbox ORDER BY id")
        return [(row[0], row[1]) for row in rows]

    async def noted(self, looked: Looked, *, handled: int) -> None:
        """Wait until the only notice says this."""
        for _ in range(2000):
            if await self.letters() == [(str(looked), handled)]:
                return
            await asyncio.sleep(0.005)
        raise AssertionError(await self.letters())


def about(delivery: str, *, pr: int = 7, what: str = "pull_request") -> Hint:
    return Hint(delivery, what, repo=REPO, branch="feature", pr=pr)


async def reconcile(o: Office, rounds: int = 1) -> None:
    for _ in range(rounds):
        await o.reconciler.round()
        await o.reconciler.runs.idle()


# -- F-1 ------------------------------------------------------------------------------------------------------------


@pytest.mark.proves("FR-1", "FR-2", "R73")
async def test_an_edge_whose_job_is_done_and_that_nobody_took_is_taken_once_by_the_reconciler(tmp_path: Path) -> None:
    async with desk(tmp_path, three_stages(ship="manual")) as d:
        await d.open("T-1")
        worker = d.worker(*python(NOTE), str(tmp_path / "ran"))

        async def dies(task: str, stage: str) -> object:
            raise StoreUnavailableError(path="journal", why=f"{task} and the process died here, in {stage}")

        worker._advance = dies
        await worker.round()
        await worker.idle()
        assert ((await d.job("T-1")).state, await d.stage("T-1")) == (JobState.DONE, "work")
        await reconcile(Office(d), rounds=3)
        assert (await d.stage("T-1"), d.asked) == ("ship", [("T-1", "reconciler", "work")])
        assert [e.draft.actor for e in await d.events("T-1", Kind.STAGE_MOVED)] == ["reconciler"]
        assert notes(tmp_path / "ran") == 1


@pytest.mark.proves("FR-1")
async def test_an_auto_edge_counts_as_missed_only_after_a_minute_and_only_if_it_is_nobodys_turn(tmp_path: Path) -> None:
    clock = StandingClock()
    async with desk(tmp_path, three_stages(ship="auto", lane="merge:{repo}"), clock=clock) as d:
        await d.open("T-1", stage="ship")
        o = Office(d)
        await reconcile(o)
        assert d.asked == []
        clock.us += 61_000_000
        await reconcile(o, rounds=2)
        assert (await d.stage("T-1"), d.asked) == ("done", [("T-1", "reconciler", "ship")])
        assert isinstance(d.step, FileStep)
        assert len(d.step.calls("T-1/1/merge_pr")) == 1


@pytest.mark.proves("E13", "R128")
async def test_a_missed_edge_whose_lane_another_task_holds_waits_its_turn_without_a_word(tmp_path: Path) -> None:
    class Hanging(FileStep):
        async def apply(self, call: Call) -> Reply:
            raise asyncio.CancelledError

    clock = StandingClock()
    async with desk(tmp_path, three_stages(ship="auto", lane="merge:{repo}"), clock=clock, step=Hanging) as d:
        await d.open("T-1", stage="ship")
        await d.open("T-2", stage="ship")
        with pytest.raises(asyncio.CancelledError):
            await d.journal.advance("T-1")  # it holds the lane with its open intent
        clock.us += 61_000_000
        before = await d.journal.log.head()
        await reconcile(Office(d), rounds=2)
        assert (d.asked, await d.journal.log.head()) == ([], before)


@pytest.mark.proves("R45", "E12")
async def test_a_gate_that_stays_closed_is_asked_less_and_less_and_at_once_after_a_notice(tmp_path: Path) -> None:
    @dataclass
    class Closed(Gate):
        asked: int = 0

        async def ask(self, call: Call) -> Answer:
            self.asked += 1
            return Answer(Opening.CLOSED, reason="checks are red")

    clock, gate = StandingClock(), Closed()
    edges = (Edge("work", "done", gates=("green",), advance="job"),)
    pipeline = Pipeline(("work", "done"), edges, {}, frozenset({"green"}))
    async with desk(tmp_path, pipeline, clock=clock, gates={"green": gate}) as d:
        await d.open("T-1")
        await d.jobs.queue("T-1", REPO, "work", 2)
        (job,) = await d.jobs.claimable(["work"], 1)
        await d.jobs.end(job, JobState.DONE)
        o = Office(d)
        for _ in range(120):  # ten minutes of looks
            await reconcile(o)
            clock.us += 5_000_000
        assert gate.asked < 12
        before = gate.asked
        o.reconciler.hint("T-1")
        await reconcile(o)
        assert gate.asked == before + 1


@pytest.mark.proves("FR-5")
@pytest.mark.parametrize("verb", ["pause", "cancel"])
async def test_what_a_person_stopped_stays_stopped(tmp_path: Path, verb: str) -> None:
    async with desk(tmp_path) as d:
        await d.open("T-1", head=OLD)
        await d.jobs.queue("T-1", REPO, "work", 2)
        (job,) = await d.jobs.claimable(["work"], 1)
        assert await d.jobs.end(job, JobState.DONE)
        assert isinstance(await getattr(d.journal, verb)("T-1", reason="not this one"), Done)
        before = len(await d.events("T-1"))
        o = Office(d, Forge(NEW), Board({"T-1": "work"}))
        await o.inbox.record("gitea", about("d-1"))
        await reconcile(o, rounds=2)
        await o.handler.round()
        assert (len(await d.events("T-1")), d.asked, o.forge.asked) == (before, [], 0)
        assert await o.letters() == [("concerns no open task" if verb == "cancel" else str(Looked.NOTHING), 1)]


@pytest.mark.proves("FR-5", "TR-5")
async def test_an_owned_task_is_skipped_in_silence_and_counted(tmp_path: Path) -> None:
    async with desk(tmp_path) as d:
        await d.open("T-1", head=OLD, stage="ship")
        before = len(await d.events("T-1"))
        lock = d.journal.locks.take_task("T-1", "worker", "somebody")
        assert lock is not None
        o = Office(d, Forge(NEW))
        await reconcile(o)
        lock.release()
        assert (len(await d.events("T-1")), d.asked, o.forge.asked) == (before, [], 0)
        assert await d.counted("deferred", "reconciler") == 1


# -- new heads ------------------------------------------------------------------------------------------------------


@pytest.mark.proves("R73", "R08", "FR-5")
async def test_a_force_push_that_no_webhook_told_of_is_found_by_polling_real_git(tmp_path: Path) -> None:
    widgets = build_widgets(tmp_path / "git")
    branch, first = widgets.feature().branch, widgets.feature().head
    heads = GitHeads(widgets.repositories, frozenset({REPO}))
    async with desk(tmp_path, three_stages(ship="manual")) as d:
        await d.open("T-1", branch=branch, head=first, stage="ship")
        await d.open("T-2", branch=branch, head=first, stage="work")  # has not come as far as a new head would send it
        attention = Attention(d.journal, submit=d.submit, hint=lambda _: None, forge=heads)
        reconciler = Reconciler(d.journal, d.jobs, attention, submit=d.submit, poll_s=60)
        await reconciler.round()
        assert await d.events("T-1", Kind.HEAD_CHANGED) == []
        second = widgets.git("rev-parse", f"{first}~1")
        widgets.git("update-ref", f"refs/heads/{branch}", second)  # a force-push
        await reconciler.poll(["T-1", "T-2"])
        await reconciler.poll(["T-1", "T-2"])
        stream = await d.journal.stream("T-1")
        assert (stream.subject.head, stream.state.generation, stream.state.stage) == (second, 2, "ship")
        assert len(await d.events("T-1", Kind.HEAD_CHANGED)) == 1
        assert await d.events("T-2", Kind.HEAD_CHANGED) == []


@pytest.mark.proves("R70", "R74", "R69")
@pytest.mark.parametrize("order", list(itertools.permutations(["old", "new", "newest"])), ids="-".join)
async def test_in_whatever_order_notices_come_the_task_follows_the_forge(tmp_path: Path, order: Sequence[str]) -> None:
    async with desk(tmp_path, three_stages(ship="manual")) as d:
        await d.open("T-1", head=OLD, stage="ship", pr=7)
        o = Office(d, Forge(NEWEST))
        for n, what in enumerate(order):
            assert await o.inbox.record("gitea", about(f"d-{what}", pr=7 * (n % 2)))
            assert not await o.inbox.record("gitea", about(f"d-{what}"))  # a repeat of the same delivery
            await o.handler.round()
        stream = await d.journal.stream("T-1")
        assert (stream.subject.head, stream.state.generation) == (NEWEST, 2)
        assert len(await o.letters()) == 3


@pytest.mark.proves("R76", "R73")
@pytest.mark.parametrize("told", [["pull_request"], ["push"], []], ids=["pull", "push", "nothing"])
async def test_whichever_notice_comes_or_none_the_end_is_the_same(tmp_path: Path, told: list[str]) -> None:
    async with desk(tmp_path, three_stages(ship="manual")) as d:
        await d.open("T-1", head=OLD, stage="ship", pr=7)
        o = Office(d, Forge(NEW))
        for what in told:
            await o.inbox.record("gitea", about(what, what=what, pr=7 if what == "pull_request" else 0))
        await o.handler.round()
        await reconcile(o)
        kinds = [str(e.kind) for e in await d.events("T-1")]
        assert kinds == ["opened", "acquired", "head_changed", "released"]


@pytest.mark.proves("R25")
async def test_a_new_head_after_the_change_landed_is_left_to_a_person(tmp_path: Path) -> None:
    async with desk(tmp_path, three_stages(ship="manual")) as d:
        await d.open("T-1", head=OLD, stage="ship")
        assert type(await d.journal.advance("T-1", expect="ship")).__name__ == "Advanced"
        o = Office(d, Forge(NEW))
        assert await o.attention.look("T-1", "gitea") is Looked.NOTHING
        await d.open("T-2", head=OLD, stage="ship")
        o.forge.merged = True  # the head of a merged change is history
        assert await o.attention.look("T-2", "gitea") is Looked.NOTHING
        assert await d.events("T-2", Kind.HEAD_CHANGED) == []


# -- the inbox ------------------------------------------------------------------------------------------------------


@pytest.mark.proves("R69", "FR-5")
async def test_a_notice_about_an_owned_task_is_consumed_at_its_release_and_deferred_once(tmp_path: Path) -> None:
    async with desk(tmp_path, three_stages(ship="manual")) as d:
        await d.open("T-1", head=OLD, stage="ship", pr=7)
        o = Office(d, Forge(NEW))
        assert d.journal.log.writer is not None
        d.journal.log.writer.on_events = o.handler.on_events
        lock = d.journal.locks.take_task("T-1", "worker", "somebody")
        assert lock is not None
        await o.inbox.record("gitea", about("d-1"))
        serving = asyncio.create_task(o.handler.serve())
        await o.noted(Looked.DEFERRED, handled=0)
        lock.release()
        await d.journal.pause("T-1", reason="an event that ends a term, as `released` does")
        await d.journal.resume("T-1", reason="and goes on")
        await o.noted(Looked.NEW_HEAD, handled=1)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        assert (await d.journal.stream("T-1")).subject.head == NEW
        assert await d.counted("deferred", "gitea") == 1


@pytest.mark.proves("R58", "R73")
async def test_a_forge_that_cannot_be_asked_is_no_answer_and_the_notice_is_tried_and_then_left_to_polling(
    tmp_path: Path,
) -> None:
    clock = StandingClock()
    async with desk(tmp_path, three_stages(ship="manual"), clock=clock) as d:
        await d.open("T-1", head=OLD, stage="ship", pr=7)
        o = Office(d, Forge(NEW, answers=False))
        await o.inbox.record("gitea", about("d-1"))
        for _ in range(MAX_TRIES + 3):
            await o.handler.round()
            clock.us += 60_000_000
        assert o.forge.asked == MAX_TRIES
        assert await o.letters() == [(f"given up after {MAX_TRIES} tries; left to polling", 1)]
        assert await d.events("T-1", Kind.HEAD_CHANGED) == []
        o.forge.answers = True
        await reconcile(o)
        assert len(await d.events("T-1", Kind.HEAD_CHANGED)) == 1


@pytest.mark.proves("R69")
async def test_what_was_recorded_is_there_after_the_process_and_nothing_else_was_written(tmp_path: Path) -> None:
    async with desk(tmp_path) as d:
        await d.open("T-1")
        head = await d.journal.log.head()
        inbox = Inbox(d.journal.log, d.journal.clock)
        assert await inbox.record("gitea", about("d-1"))
        assert await d.journal.log.head() == head
    async with desk(tmp_path) as d:
        inbox = Inbox(d.journal.log, d.journal.clock)
        assert not await inbox.record("gitea", about("d-1"))
        (letter,) = await inbox.due(10)
        assert (letter.source, letter.hint) == ("gitea", about("d-1"))
        await inbox.handled([letter.id], "done")
        assert not await inbox.record("gitea", about("d-1"))  # also long after it was handled
        assert await inbox.record("plane", about("d-1"))  # another sender's numbers are its own
        assert len(await inbox.due(10)) == 1


# -- the tracker ----------------------------------------------------------------------------------------------------


@pytest.mark.proves("R74", "R75", "FR-2")
async def test_a_wish_of_the_board_is_followed_once_and_its_echoes_are_a_fixed_point(tmp_path: Path) -> None:
    async with desk(tmp_path, three_stages(work="manual", ship="manual")) as d:
        await d.open("T-1")
        o = Office(d, board=Board({"T-1": "work"}))
        for n in range(3):  # one change, three deliveries
            await o.inbox.record("plane", Hint(f"d-{n}", "issue", task="T-1"))
        await o.handler.round()
        assert (await d.stage("T-1"), d.asked) == ("ship", [("T-1", "plane", "work")])
        before = len(await d.events("T-1"))
        for n in range(3, 6):  # our own write of the new state comes back
            await o.inbox.record("plane", Hint(f"d-{n}", "issue", task="T-1"))
            await o.handler.round()
        await reconcile(o)
        assert (len(await d.events("T-1")), len(d.asked)) == (before, 1)


@dataclass
class Screen(Outside):
    """Shows task, stage and version, while it works."""

    works: bool = True
    shown: list[tuple[str, str, int]] = field(default_factory=list)

    async def publish(self, status: Status) -> bool:
        if self.works:
            self.shown.append((status.subject.task, status.stage, status.version))
        return self.works


@pytest.mark.proves("R75", "R61")
async def test_the_outside_is_shown_what_the_journal_says_again_after_failure_and_crash(tmp_path: Path) -> None:
    clock, screen = StandingClock(), Screen()
    shown = screen.shown

    def publisher(journal: Journal) -> Publisher:
        return Publisher(journal, "plane", screen, again_s=900)

    async with desk(tmp_path, three_stages(work="manual", ship="manual"), clock=clock) as d:
        await d.open("T-1")
        p = publisher(d.journal)
        await p.round()
        await p.round()
        assert shown == [("T-1", "work", 1)]
        screen.works = False
        await d.journal.advance("T-1")
        await p.round()
        screen.works = True
        clock.us += 2_000_000
        await p.round()
        assert shown[1:] == [("T-1", "ship", 4)]
        await d.journal.advance("T-1")  # then the process dies before anybody was told
    async with desk(tmp_path, three_stages(work="manual", ship="manual"), clock=clock) as d:
        await publisher(d.journal).round()
        assert [(task, stage) for task, stage, _ in shown[2:]] == [("T-1", "done")]


@pytest.mark.proves("DC-3", "R75")
async def test_the_end_of_a_task_that_could_not_be_shown_is_shown_by_the_next_process(tmp_path: Path) -> None:
    """It is in no round over open tasks: only the cursor remembers it."""
    screen, clock = Screen(works=False), StandingClock()
    async with desk(tmp_path, three_stages(work="manual", ship="manual"), clock=clock) as d:
        p = Publisher(d.journal, "plane", screen, again_s=900)
        await p.round()  # from here on
        await d.open("T-1")
        for _ in range(2):
            await d.journal.advance("T-1")
        await p.round()
        await d.open("T-2")
        await p.round()  # the cursor does not pass what is untold, whatever follows it; then the process dies
    screen.works = True
    async with desk(tmp_path, three_stages(work="manual", ship="manual"), clock=clock) as d:
        p = Publisher(d.journal, "plane", screen, again_s=900)
        await p.round()
        assert {(task, stage) for task, stage, _ in screen.shown} == {("T-1", "done"), ("T-2", "work")}
        shown = len(screen.shown)
    async with desk(tmp_path, three_stages(work="manual", ship="manual"), clock=clock) as d:
        await d.open("T-3")
        await Publisher(d.journal, "plane", screen, again_s=900).round()
        assert ("T-1", "done") not in {(task, stage) for task, stage, _ in screen.shown[shown:]}, "told once is enough"
