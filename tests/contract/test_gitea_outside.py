"""Webhooks and polling over the double: whatever arrives, in whatever order, the same final state (R69-R76)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from integrations.alerts.alert import What, alert_of
from integrations.alerts.outbox import Outbox
from integrations.gitea.poll import GiteaPulls
from integrations.gitea.publish import GiteaPublisher
from integrations.gitea.reports import GiteaReports
from integrations.hooks import Forges, GiteaHooks
from journal.errors import InvalidInputError
from journal.ports import Subject
from journal.results import Waiting
from journal.words import Kind
from recovery.attention import Attention, Looked
from recovery.hints import HintHandler
from recovery.inbox import Inbox
from recovery.outside import Status
from tests.acting import Desk, desk, three_stages
from tests.contract.test_alerts import Chat
from tests.doubles.gitea import ACCOUNT, SECRET, signed
from tests.forge import Forge, forge_with

TASK = "WID-1"


@dataclass
class Office:
    """The actors that listen to this forge and ask it, over one journal whose step is the merge."""

    forge: Forge
    d: Desk
    due: list[str] = field(default_factory=list)  # tasks that the dispatcher was told to look at

    def __post_init__(self) -> None:
        log, clock = self.d.journal.log, self.d.journal.clock
        self.pulls = GiteaPulls(self.forge.client(), self.forge.mirrors().head_of)
        self.inbox = Inbox(log, clock)
        self.attention = Attention(self.d.journal, submit=self.d.submit, hint=self.due.append, forge=self.pulls)
        self.handler = HintHandler(self.d.journal, self.inbox, self.attention)
        self.hooks = GiteaHooks(SECRET)

    async def open(self, stage: str = "ship") -> None:
        feature = self.forge.widgets.feature()
        await self.d.open(TASK, branch=feature.branch, head=feature.head, pr=41, stage=stage)

    async def deliver(self, kinds: str, *, times: int = 1) -> None:
        """Take in what the forge sent of these kinds, the newest first, and act upon it."""
        for headers, body in reversed(self.forge.gitea.deliveries * times):
            if headers["X-Gitea-Event"] in kinds:
                hint = self.hooks.verify(body, {name.lower(): value for name, value in headers.items()})
                assert hint is not None
                await self.inbox.record("gitea", hint)
        self.forge.gitea.deliveries.clear()
        await self.act()

    async def act(self) -> None:
        await self.handler.round()
        while self.due:
            await self.d.submit(self.due.pop(), "webhook", "")

    async def poll(self) -> Looked:
        looked = await self.attention.look(TASK, "reconciler")
        await self.act()
        return looked


@asynccontextmanager
async def office(folder: Path, *, settle_s: float = 0) -> AsyncIterator[Office]:
    async with forge_with(folder) as forge:
        step = forge.merging(settle_s=settle_s)
        pipeline = three_stages(ship="manual", deadline_ms=600_000)
        async with desk(folder, pipeline, clock=forge.clock, step=lambda _: step) as d:
            yield Office(forge, d)


@pytest.mark.proves("R04", "R73", "R76", "R16")
@pytest.mark.parametrize("kinds", ["pull_request", "push", "push pull_request", ""])
async def test_a_merge_that_landed_unseen_is_found_by_any_hook_and_by_none(tmp_path: Path, kinds: str) -> None:
    async with office(tmp_path, settle_s=60) as o:
        await o.open()
        o.forge.gitea.faults.hold, o.forge.gitea.faults.cut = asyncio.Event(), True
        o.forge.gitea.faults.hooks = bool(kinds)
        assert isinstance(await o.d.submit(TASK, "worker", ""), Waiting)
        o.forge.gitea.faults.hold.set()
        await asyncio.gather(*o.forge.gitea.merging)
        if kinds:
            await o.deliver(kinds, times=2)
        else:
            await o.d.submit(TASK, "worker", "")  # the next look of a waiting task is due by itself
        assert await o.d.stage(TASK) == "done"
        assert len(await o.d.events(TASK, Kind.APPLIED)) == 1
        assert len(o.forge.gitea.merge_calls()) == o.forge.merges() == 1
        assert not [e for e in await o.d.events(TASK) if alert_of(e)], "its record caught up before anybody looked"


@pytest.mark.proves("R04", "R05", "FR-6")
@pytest.mark.parametrize("drop", ["ref", ""])
async def test_a_record_that_stays_open_behind_a_merge_is_converged_and_a_person_is_told_once(
    tmp_path: Path, drop: str
) -> None:
    """The post-receive hook never ran. A confirmed merge whose record lags a moment is nobody's business."""
    async with office(tmp_path, settle_s=60) as o:
        await o.open()
        o.forge.gitea.faults.drop, o.forge.gitea.faults.record, o.forge.gitea.faults.hooks = drop, False, False
        for _ in range(3):
            await o.d.submit(TASK, "worker", "")
        assert await o.d.stage(TASK) == "done"
        assert len(o.forge.gitea.merge_calls()) == o.forge.merges() == 1 and not o.forge.gitea.pulls[41].merged
        chat = Chat()
        for _ in range(2):
            await Outbox("alerts", o.d.journal.log, chat, o.forge.clock).round()
        told = chat.told
        assert [alert.what for alert in told] == ([What.RECORD] if drop else [])
        assert all("#41 open" in alert.reason and o.forge.widgets.main() in alert.reason for alert in told)


@pytest.mark.proves("R70", "V2")
async def test_a_hook_that_is_earlier_than_its_merge_is_believed_by_nobody(tmp_path: Path) -> None:
    """It says merged while the call is still at work; the owner is deferred to, and git says what is the case."""
    async with office(tmp_path) as o:
        await o.open()
        gitea = o.forge.gitea
        gitea.faults.hold = asyncio.Event()
        run = asyncio.create_task(o.d.submit(TASK, "worker", ""))
        await gitea.reached.wait()
        gitea._hook(
            "pull_request", gitea._pull_event(41, "closed") | {"pull_request": gitea.pull_json(41) | {"merged": True}}
        )
        await o.deliver("pull_request")
        assert await o.d.stage(TASK) == "ship" and not await o.d.events(TASK, Kind.APPLIED)
        gitea.faults.hold.set()
        await run
        assert await o.d.stage(TASK) == "done" and len(gitea.merge_calls()) == o.forge.merges() == 1


@pytest.mark.proves("R08", "R25")
@pytest.mark.parametrize("by", ["hook", "poll"])
async def test_a_push_after_the_review_is_a_new_generation(tmp_path: Path, by: str) -> None:
    async with office(tmp_path) as o:
        await o.open()
        newer = o.forge.widgets.branch_file(1, "later.txt", "not reviewed\n").head
        o.forge.gitea.follow(41)
        o.forge.gitea._hook("pull_request", o.forge.gitea._pull_event(41, "synchronized"))
        if by == "hook":
            await o.deliver("pull_request", times=3)
        else:
            assert await o.poll() is Looked.NEW_HEAD
        stream = await o.d.journal.stream(TASK)
        assert stream.subject.head == newer and stream.state.generation == 2
        assert len(await o.d.events(TASK, Kind.HEAD_CHANGED)) == 1


@pytest.mark.proves("R09")
async def test_a_head_on_which_api_and_git_differ_changes_nothing(tmp_path: Path) -> None:
    async with office(tmp_path) as o:
        await o.open()
        o.forge.gitea.faults.api_head[41] = "ab" * 20
        assert await o.poll() is Looked.UNKNOWN
        o.forge.gitea.faults.api_head.clear()
        o.forge.gitea.faults.git_down = True
        assert await o.poll() is Looked.UNKNOWN
        o.forge.gitea.faults.git_down = False
        assert await o.poll() is Looked.NOTHING
        assert (await o.d.journal.stream(TASK)).state.generation == 1


@pytest.mark.proves("R70")
async def test_an_older_notice_that_comes_last_does_not_win(tmp_path: Path) -> None:
    """Closed, then opened again: both notices arrive afterwards, the older one last."""
    async with office(tmp_path) as o:
        await o.open()
        gitea = o.forge.gitea
        gitea.pulls[41].state = "closed"
        gitea._hook("pull_request", gitea._pull_event(41, "closed"))
        gitea.pulls[41].state = "open"
        gitea._hook("pull_request", gitea._pull_event(41, "reopened"))
        await o.deliver("pull_request")
        assert await o.d.stage(TASK) == "done" and o.forge.merges() == 1


@pytest.mark.proves("R71")
async def test_a_notice_that_is_not_authentic_leaves_nothing(tmp_path: Path) -> None:
    async with office(tmp_path) as o:
        headers, body = o.forge.gitea.deliveries[0]
        lowered = {name.lower(): value for name, value in headers.items()}
        assert o.hooks.verify(body + b" ", lowered) is None
        assert GiteaHooks("").verify(body, lowered) is None
        with pytest.raises(InvalidInputError):
            o.hooks.verify(b"[]", {n.lower(): v for n, v in signed("push", b"[]").items()})


@pytest.mark.proves("R73")
async def test_each_repository_is_asked_where_it_is(tmp_path: Path) -> None:
    class Nobody:
        async def pull(self, subject: Subject) -> None:
            return None

    async with forge_with(tmp_path) as forge:
        pulls = GiteaPulls(forge.client(), forge.mirrors().head_of)
        subject = forge.call().subject
        found = await Forges(Nobody(), frozenset({"other/one"}), pulls).pull(subject)
        assert found is not None and (found.head, found.merged, found.closed) == (subject.head, False, False)
        assert await Forges(Nobody(), frozenset({subject.repo}), pulls).pull(subject) is None
        forge.gitea.merge(41)
        forge.gitea.delete_branch("feature%2F1")
        found = await pulls.pull(subject)
        assert found is not None and (found.head, found.merged, found.closed) == (subject.head, True, True)


# -- what is shown -----------------------------------------------------------------------------------------------------


def status_of(forge: Forge, hold: str = "", reason: str = "", epoch: int = 1) -> Status:
    return Status(forge.call().subject, "deploy-staging", hold, reason, epoch, 5)


@pytest.mark.proves("R75")
async def test_showing_the_same_again_writes_nothing(tmp_path: Path) -> None:
    async with forge_with(tmp_path) as forge:
        parked = status_of(forge, "parked", "the base was force-pushed")
        for status in (status_of(forge), status_of(forge), parked, parked):
            assert await GiteaPublisher(GiteaReports(forge.client())).publish(status)
        assert [(s["context"], s["status"]) for s in forge.gitea.statuses] == [
            ("transition-journal/WID-1", "success"),
            ("transition-journal/WID-1", "failure"),
        ]
        (comment,) = [c for c in forge.gitea.comments if c["user"]["login"] == ACCOUNT]
        assert "the base was force-pushed" in comment["body"]
        assert await GiteaPublisher(GiteaReports(forge.client())).publish(replace(parked, epoch=2))
        assert len(forge.gitea.comments) == 2


@pytest.mark.proves("R75")
async def test_our_own_status_coming_back_as_a_notice_is_a_fixed_point(tmp_path: Path) -> None:
    async with office(tmp_path) as o:
        await o.open(stage="work")
        before = len(await o.d.events(TASK))
        assert await GiteaPublisher(GiteaReports(o.forge.client())).publish(status_of(o.forge))
        await o.handler.round()
        writes = [call for call in o.forge.gitea.calls if call[0] != "GET"]
        for headers, body in o.forge.gitea.deliveries:
            hint = o.hooks.verify(body, {name.lower(): value for name, value in headers.items()})
            assert hint
            await o.inbox.record("gitea", hint)
        await o.handler.round()
        assert await GiteaPublisher(GiteaReports(o.forge.client())).publish(status_of(o.forge))
        assert [call for call in o.forge.gitea.calls if call[0] != "GET"] == writes
        assert len(await o.d.events(TASK)) == before


async def test_what_cannot_be_shown_now_is_tried_again_and_what_never_can_is_not(tmp_path: Path) -> None:
    async with forge_with(tmp_path) as forge:
        publisher = GiteaPublisher(GiteaReports(forge.client()), frozenset({"local/only"}))
        forge.gitea.faults.deaf = True
        assert not await publisher.publish(status_of(forge))
        subject = forge.call().subject
        for odd in (replace(subject, repo="local/only"), replace(subject, repo="odd"), replace(subject, head="")):
            assert await publisher.publish(replace(status_of(forge), subject=odd))
