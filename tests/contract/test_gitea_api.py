"""The client, gates, reports and branch deletion against the double; and the double against the documented shapes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from integrations.git.fresh import FreshGate, FreshStep
from integrations.git.verified import MergeVerified, MergeVerifiedConfig
from integrations.gitea.branch import GiteaDeleteBranch, GiteaDeleteBranchConfig
from integrations.gitea.client import GiteaClient, Response
from integrations.gitea.gates import GiteaApprovedConfig, GiteaApprovedGate, GiteaChecksConfig, GiteaChecksGate
from integrations.gitea.hooks import Change, is_signed, read
from integrations.gitea.pulls import UnansweredError
from integrations.gitea.reports import GiteaReports, StatusReport
from journal.ports import Answer, Call
from journal.words import Fact, Guard, Opening, Outcome, evidence
from tests.doubles.gitea import ACCOUNT, SECRET
from tests.doubles.serving import hang_up, served
from tests.doubles.shapes import faults_of
from tests.forge import Forge, forge_with

REPO = "acme/widgets"


@pytest.fixture
async def forge(tmp_path: Path) -> AsyncIterator[Forge]:
    async with forge_with(tmp_path) as world:
        yield world


def push(forge: Forge) -> str:
    head = forge.widgets.branch_file(1, "later.txt", "later\n").head
    forge.gitea.follow(41)
    return head


# -- the client --------------------------------------------------------------------------------------------------------


class Rude:
    """A server that does one rude thing."""

    def __init__(self, deed: str) -> None:
        self.deed, self.asked = deed, 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked += 1
        if self.deed == "hangs up":
            hang_up(send)
            return
        if self.deed == "is silent":
            await asyncio.Event().wait()
        status = 307 if self.deed == "redirects" else 200
        headers = [(b"content-type", b"application/json"), (b"location", b"/api/v1/elsewhere")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        if self.deed == "breaks off":
            await send({"type": "http.response.body", "body": b'{"a"', "more_body": True})
            hang_up(send)
            return
        body = {"floods": b" " * (9 << 20), "babbles": b"<html>"}.get(self.deed, b"[" * 200_000)
        await send({"type": "http.response.body", "body": body})


@pytest.mark.proves("E6", "R03", "V2")
@pytest.mark.parametrize("deed", ["hangs up", "breaks off", "is silent"])
async def test_a_request_that_got_no_answer_was_sent_once_and_is_not_sent_again(deed: str) -> None:
    server = Rude(deed)
    async with served(server) as url:
        answer = await GiteaClient(url, "t").send("POST", "/x", {}, timeout_s=0.5)
    assert answer.status == 0 and answer.sent and answer.text and server.asked == 1


@pytest.mark.proves("V2")
@pytest.mark.parametrize("deed", ["floods", "babbles", "nests"])
async def test_an_answer_that_cannot_be_read_has_no_data(deed: str) -> None:
    async with served(Rude(deed)) as url:
        answer = await GiteaClient(url, "t").get("/x")
    assert answer.status == 200 and answer.data is None


async def test_a_redirect_is_not_followed_with_the_token(forge: Forge) -> None:
    server = Rude("redirects")
    async with served(server) as url:
        answer = await GiteaClient(url, "t").send("POST", "/x", {})
    assert answer.status == 307 and server.asked == 1


@pytest.mark.proves("V2")
async def test_a_list_is_read_to_its_end_or_not_at_all(forge: Forge) -> None:
    sha = forge.widgets.main()
    for n in range(120):
        forge.gitea.add_status(sha, f"ci/{n}", "success")
    listed = await forge.client().list(f"/repos/{REPO}/commits/{sha}/statuses")
    assert isinstance(listed, list) and len(listed) == 120
    endless = await forge.client().list("/user")
    assert isinstance(endless, Response)


# -- gates -------------------------------------------------------------------------------------------------------------


async def checks(forge: Forge, *required: str) -> Answer:
    gate = GiteaChecksGate(GiteaChecksConfig(required=required), forge.client(), forge.mirrors())
    return await gate.ask(forge.call())


async def approved(forge: Forge, call: Call | None = None) -> Answer:
    gate = GiteaApprovedGate(GiteaApprovedConfig(), forge.client(), forge.mirrors())
    return await gate.ask(call or forge.call())


@pytest.mark.proves("E12")
async def test_checks_are_open_only_when_every_one_of_this_head_is_green(forge: Forge) -> None:
    head = forge.call().subject.head
    assert (await checks(forge)).opening is Opening.CLOSED  # nothing has reported
    forge.gitea.add_status(forge.widgets.main(), "ci/tests", "success")
    assert (await checks(forge)).opening is Opening.CLOSED  # that was another commit
    forge.gitea.add_status(head, "ci/tests", "pending")
    assert (await checks(forge)).opening is Opening.CLOSED
    forge.gitea.add_status(head, "ci/tests", "success")
    assert (await checks(forge)).opening is Opening.OPEN
    forge.gitea.add_status(head, "transition-journal/WID-1", "failure")
    assert (await checks(forge)).opening is Opening.OPEN  # ours: waiting for ourselves would never end
    assert (await checks(forge, "ci/tests", "ci/lint")).opening is Opening.CLOSED
    forge.gitea.add_status(head, "ci/lint", "failure")
    red = await checks(forge)
    assert red.opening is Opening.CLOSED and "ci/lint" in red.reason


@pytest.mark.proves("E12")
async def test_a_red_check_beyond_the_first_page_closes_the_gate(forge: Forge) -> None:
    """The forge's own sum covers one page (gitea.md 5)."""
    head = forge.call().subject.head
    forge.gitea.add_status(head, "ci/red", "failure")
    for n in range(60):
        forge.gitea.add_status(head, f"ci/{n}", "success")
    assert (await checks(forge)).opening is Opening.CLOSED


@pytest.mark.proves("E12", "R09")
async def test_what_cannot_be_read_or_is_contradicted_is_unknown(forge: Forge) -> None:
    head = forge.call().subject.head
    forge.gitea.add_status(head, "ci/tests", "success")
    forge.gitea.add_review("ann", "APPROVED", head)
    forge.gitea.faults.api_head[41] = "ab" * 20
    assert (await checks(forge)).opening is (await approved(forge)).opening is Opening.UNKNOWN
    forge.gitea.faults.api_head.clear()
    forge.gitea.faults.git_down = True
    assert (await checks(forge)).opening is (await approved(forge)).opening is Opening.UNKNOWN
    forge.gitea.faults.git_down, forge.gitea.faults.deaf = False, True
    assert (await checks(forge)).opening is (await approved(forge)).opening is Opening.UNKNOWN
    forge.gitea.faults.deaf = False
    assert (await checks(forge)).opening is (await approved(forge)).opening is Opening.OPEN


@pytest.mark.proves("E12", "R08", "R25")
async def test_checks_and_approvals_of_an_older_head_open_nothing(forge: Forge) -> None:
    head = forge.call().subject.head
    forge.gitea.add_status(head, "ci/tests", "success")
    forge.gitea.add_review("ann", "APPROVED", head)
    newer = push(forge)
    moved = replace(forge.call(), subject=replace(forge.call().subject, head=newer))
    assert (await approved(forge, moved)).opening is Opening.CLOSED
    # Nor do those of the newer head open anything for a task that is still about the older one.
    forge.gitea.add_status(newer, "ci/tests", "success")
    forge.gitea.add_review("ann", "APPROVED", newer)
    assert (await approved(forge, moved)).opening is Opening.OPEN
    for answer in (await checks(forge), await approved(forge)):
        assert answer.opening is Opening.CLOSED and dict(answer.seen)["reason"] == "head_moved"


# -- reports -----------------------------------------------------------------------------------------------------------


@pytest.mark.proves("R75")
async def test_a_status_is_posted_once_and_again_only_when_it_changes(forge: Forge) -> None:
    reports, sha = GiteaReports(forge.client()), forge.call().subject.head
    report = StatusReport(sha, "journal/WID-1", "pending", "merging")
    assert await reports.status(REPO, report) and not await reports.status(REPO, report)
    assert await reports.status(REPO, replace(report, state="success"))
    assert not await GiteaReports(forge.client()).status(REPO, replace(report, state="success"))
    assert await reports.status(REPO, report)  # back again: the newest entry counts, not any
    assert [entry["status"] for entry in forge.gitea.statuses] == ["pending", "success", "pending"]


@pytest.mark.proves("R75")
async def test_a_comment_is_written_once_per_mark_and_then_edited_in_place(forge: Forge) -> None:
    reports = GiteaReports(forge.client())
    forge.gitea.add_comment(41, "somebody", "hello")
    assert await reports.comment(REPO, 41, "WID-1.1", "Merging")
    assert not await GiteaReports(forge.client()).comment(REPO, 41, "WID-1.1", "Merging")
    assert await reports.comment(REPO, 41, "WID-1.1", "Merged")
    assert await reports.comment(REPO, 41, "WID-1.2", "Another generation")
    ours = [comment["body"] for comment in forge.gitea.comments if comment["user"]["login"] == ACCOUNT]
    assert [body.splitlines()[0] for body in ours] == ["Merged", "Another generation"]


async def test_a_mark_that_somebody_copied_silences_nothing(forge: Forge) -> None:
    forge.gitea.add_comment(41, "somebody", "Merging\n\n<!-- transition-journal: WID-1.1 -->")
    assert await GiteaReports(forge.client()).comment(REPO, 41, "WID-1.1", "Merging")
    assert forge.gitea.comments[0]["body"].startswith("Merging") and len(forge.gitea.comments) == 2


async def test_a_report_that_was_not_taken_says_so(forge: Forge) -> None:
    forge.gitea.faults.deaf = True
    with pytest.raises(UnansweredError, match="502"):
        await GiteaReports(forge.client()).comment(REPO, 41, "WID-1.1", "Merging")


# -- the branch --------------------------------------------------------------------------------------------------------


def deleting(forge: Forge) -> GiteaDeleteBranch:
    return GiteaDeleteBranch(GiteaDeleteBranchConfig(), forge.client(), forge.mirrors())


@pytest.mark.proves("E7")
async def test_a_merged_branch_is_deleted_once_and_a_second_time_changes_nothing(forge: Forge) -> None:
    step, call = deleting(forge), forge.call(step="delete_branch")
    forge.gitea.merge(41)
    assert (await step.probe(call)).fact is Fact.ABSENT
    assert (await step.apply(call)).outcome is Outcome.APPLIED
    assert (await step.probe(call)).fact is Fact.OURS
    assert (await step.apply(call)).outcome is Outcome.UNKNOWN  # 404: gone, or no access; git says which
    assert (await step.probe(replace(call, attempt=0))).fact is Fact.OTHERS
    assert step.traits.guard is Guard.REPEATABLE and not step.traits.irreversible
    assert (await forge.merging().probe(forge.call())).fact is Fact.OTHERS  # the merge stays provable


@pytest.mark.proves("E7")
async def test_newer_work_on_the_branch_is_left_to_a_person(forge: Forge) -> None:
    forge.gitea.merge(41)
    push(forge)
    assert (await deleting(forge).probe(forge.call())).fact is Fact.CONFLICT


async def test_the_base_branch_is_never_deleted(forge: Forge) -> None:
    call = forge.call()
    reply = await deleting(forge).apply(replace(call, subject=replace(call.subject, branch="main")))
    assert reply.outcome is Outcome.REJECTED and forge.widgets.main()


# -- steps and gates of other rooms, on the forge's clone --------------------------------------------------------------


@pytest.mark.proves("R22", "R24")
async def test_a_merge_is_verified_on_a_fresh_clone_and_not_on_an_old_one(forge: Forge) -> None:
    step = FreshStep(lambda clones: MergeVerified(MergeVerifiedConfig(), clones), forge.mirrors())
    landed = forge.gitea.merge(41)
    call = replace(forge.call(step="merge_verified"), outcomes={"merge_pr": evidence(landed=landed)})
    assert (await step.probe(call)).fact is Fact.OURS and step.traits.guard is Guard.AWAITED
    assert (await step.apply(call)).outcome is Outcome.REJECTED
    forge.gitea.faults.git_down = True
    assert (await step.probe(call)).fact is Fact.UNKNOWN
    forge.gitea.faults.git_down = False
    forge.widgets.by_hand(f"revert --no-edit -m 1 {landed}")
    assert (await step.probe(call)).fact is Fact.CONFLICT


@pytest.mark.proves("E12", "R24")
async def test_a_gate_on_a_clone_that_cannot_be_refreshed_is_unknown(forge: Forge) -> None:
    class Open:
        async def ask(self, call: Call) -> Answer:
            return Answer(Opening.OPEN)

    gate = FreshGate(lambda clones: Open(), forge.mirrors())
    assert (await gate.ask(forge.call())).opening is Opening.OPEN
    forge.gitea.faults.git_down = True
    assert (await gate.ask(forge.call())).opening is Opening.UNKNOWN


@pytest.mark.proves("R24")
async def test_tasks_that_ask_at_once_take_turns_at_one_clone(tmp_path: Path) -> None:
    async with forge_with(tmp_path, 4) as forge:
        mirrors = forge.mirrors()
        found = await asyncio.gather(*(mirrors.landed(forge.call(n)) for n in (1, 2, 3, 4, 1, 2)))
        assert {finding.fact for finding in found} == {Fact.ABSENT}
        assert forge.gitea.most_fetches == 1


async def test_a_lock_that_a_killed_fetch_left_behind_is_cleared(forge: Forge) -> None:
    mirrors = forge.mirrors()
    assert (await mirrors.landed(forge.call())).fact is Fact.ABSENT
    forge.gitea.merge(41)
    lock = mirrors.clone(REPO).path / "refs" / "heads" / "main.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    assert (await mirrors.landed(forge.call())).fact is Fact.UNKNOWN  # young: somebody may be at work
    os.utime(lock, (1_000_000_000, 1_000_000_000))
    assert (await mirrors.landed(forge.call())).fact is Fact.OTHERS


# -- webhooks ----------------------------------------------------------------------------------------------------------


@pytest.mark.proves("R04", "R76")
async def test_the_hooks_of_one_life_are_signed_and_hint_at_what_changed(forge: Forge) -> None:
    forge.gitea.add_status(forge.call().subject.head, "ci/tests", "success")
    await forge.merging().apply(forge.call())
    hints = [read(headers, body).hint for headers, body in forge.gitea.deliveries if is_signed(headers, body, SECRET)]
    assert [hint.change for hint in hints if hint] == [
        Change.PULL_REQUEST,
        Change.STATUS,
        Change.PUSH,
        Change.MERGED,
    ]
    assert {hint.repo for hint in hints if hint} == {REPO}


# -- the double itself -------------------------------------------------------------------------------------------------


async def test_the_double_answers_in_the_documented_shapes(forge: Forge) -> None:
    sha, client, repo = forge.call().subject.head, forge.client(), f"/repos/{REPO}"
    forge.gitea.add_review("ann", "APPROVED", sha)
    await GiteaReports(client).status(REPO, StatusReport(sha, "journal", "pending"))
    await GiteaReports(client).comment(REPO, 41, "WID-1.1", "Merging")
    await forge.merging().apply(forge.call())
    shapes = {
        f"{repo}/pulls": "PullRequest",
        f"{repo}/pulls/41": "PullRequest",
        f"{repo}/pulls/main/feature%2F1": "PullRequest",
        f"{repo}/pulls/41/reviews": "PullReview",
        f"{repo}/commits/{sha}/statuses": "CommitStatus",
        f"{repo}/issues/41/comments": "Comment",
        f"{repo}/pulls/99": "Error",
        "/user": "User",
    }
    for path, shape in shapes.items():
        data = (await client.get(path)).data
        values = data if isinstance(data, list) else [data]
        assert values and not [fault for value in values for fault in faults_of(value, shape)], path
