"""`gitea-merge` against the double: merges are counted in git log, calls at the forge."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from integrations.gitea.client import GiteaClient
from integrations.gitea.merge import GiteaMerge
from integrations.gitea.replies import Claim, Verdict, classify
from journal.ports import Finding, Reply
from journal.results import Advanced, Parked, Waiting
from journal.words import Fact, Guard, Kind, Outcome, Scalar
from tests.doubles.gitea import TOKEN
from tests.forge import Forge, forge_with

STYLES = ("merge", "squash")
HINTED = (503, {"message": ""}, [(b"retry-after", b"3")])


@pytest.fixture
async def forge(tmp_path: Path) -> AsyncIterator[Forge]:
    async with forge_with(tmp_path) as world:
        yield world


def seen(answer: Finding | Reply) -> dict[str, Scalar]:
    return dict(answer.seen)


async def merged_once(forge: Forge, step: GiteaMerge, calls: int = 1) -> None:
    """Open, drive to the end, and see one merge in git and so many calls at the forge."""
    async with forge.journal(step) as driver:
        await driver.open()
        assert isinstance(await driver.settle(), Advanced), await driver.bodies(Kind.OBSERVED)
        assert await driver.count(Kind.APPLIED) == 1
    assert forge.merges() == forge.changes() == 1
    assert len(forge.gitea.merge_calls()) == calls


# -- the plain case ----------------------------------------------------------------------------------------------------


@pytest.mark.proves("E3", "F3", "E7", "R17", "R08", "DC-1")
@pytest.mark.parametrize("style", STYLES)
async def test_a_merge_carries_key_fence_and_head_and_is_recognized_as_ours(forge: Forge, style: str) -> None:
    step, call = forge.merging(style), forge.call()
    assert (await step.probe(replace(call, anchor=None))).fact is Fact.ABSENT

    reply = await step.apply(call)

    found = await step.probe(call)
    assert reply.outcome is Outcome.APPLIED and found.fact is Fact.OURS
    assert seen(found)["landed"] == forge.widgets.main() and seen(found)["fence"] == "1.1"
    assert seen(found)["cites"] == f"7:{'ab' * 32}" and forge.widgets.landed() == 1
    (body,) = forge.gitea.merge_calls()
    assert body["Do"] == style and body["head_commit_id"] == call.subject.head
    assert body["merge_when_checks_succeed"] is False and body["delete_branch_after_merge"] is False
    assert "Transition: WID-1/1/merge_pr\nTransition-Fence: 1.1\nTransition-Journal: " in body["MergeMessageField"]
    traits = step.traits
    assert traits.guard is Guard.EXCLUSIVE and traits.irreversible and traits.adopts
    assert traits.lane == "merge:{repo}/{base}"


@pytest.mark.proves("E5", "FR-4")
@pytest.mark.parametrize("style", STYLES)
async def test_the_same_attempt_applied_again_moves_nothing_and_makes_no_call(forge: Forge, style: str) -> None:
    step, call = forge.merging(style), forge.call()
    await step.apply(call)
    refs = forge.widgets.git("for-each-ref")
    again = await forge.merging(style).apply(call)
    assert again.outcome is Outcome.UNKNOWN and seen(again)["reason"] == "already_ours"
    assert forge.widgets.git("for-each-ref") == refs and len(forge.gitea.merge_calls()) == 1


@pytest.mark.proves("E5", "R11")
@pytest.mark.parametrize("style", STYLES)
async def test_the_forge_itself_refuses_a_second_merge(forge: Forge, style: str) -> None:
    """The guard `exclusive` without our looks: the same request twice, its record never written."""
    step, call = forge.merging(style), forge.call()
    forge.gitea.faults.record = False
    await step.apply(call)
    main = forge.widgets.main()
    reply = await forge.client().send("POST", "/repos/acme/widgets/pulls/41/merge", forge.gitea.merge_calls()[0])
    assert reply.status in (405, 500) and forge.widgets.main() == main


@pytest.mark.proves("E10")
async def test_what_a_person_merged_beforehand_is_taken_without_a_call(forge: Forge) -> None:
    forge.gitea.merge(41)
    await merged_once(forge, forge.merging(), calls=0)


async def test_a_pull_request_is_found_by_its_branch_when_the_task_names_none(forge: Forge) -> None:
    call = forge.call()
    call = replace(call, subject=replace(call.subject, pr=0))
    reply = await forge.merging().apply(call)
    assert reply.outcome is Outcome.APPLIED and forge.merges() == 1


async def test_of_several_pull_requests_of_one_branch_the_open_one_is_merged(forge: Forge) -> None:
    """The forge names any of them, in practice the oldest, perhaps a closed one (gitea.md 3.1)."""
    forge.gitea.pulls[41].state = "closed"
    assert forge.gitea.open_pull(forge.widgets.feature().branch) == 42
    call = forge.call()
    reply = await forge.merging().apply(replace(call, subject=replace(call.subject, pr=0)))
    assert reply.outcome is Outcome.APPLIED and forge.gitea.pulls[42].merged


async def test_a_number_that_belongs_to_another_branch_is_unknown_and_nothing_is_called(tmp_path: Path) -> None:
    async with forge_with(tmp_path, 2) as forge:
        call = forge.call()
        wrong = replace(call, subject=replace(call.subject, pr=42), budget_s=6.0)
        assert (await forge.merging().probe(wrong)).fact is Fact.UNKNOWN
        assert (await forge.merging().apply(wrong)).outcome is Outcome.REJECTED
        assert not forge.gitea.merge_calls()


# -- try again later ---------------------------------------------------------------------------------------------------


@pytest.mark.proves("R01", "E11")
async def test_three_times_not_yet_then_yes_is_one_intent_and_one_merge(forge: Forge) -> None:
    forge.gitea.faults.checking = 3
    async with forge.journal(forge.merging()) as driver:
        await driver.open()
        assert isinstance(await driver.settle(), Advanced)
        assert await driver.count(Kind.INTENDED) == await driver.count(Kind.APPLIED) == 1
    assert len(forge.gitea.merge_calls()) == 4 and forge.merges() == 1
    assert [s for s in forge.clock.slept if s >= 1][:3] == [1.0, 2.0, 4.0]


@pytest.mark.proves("R02", "E11")
async def test_not_yet_for_ever_parks_and_merges_nothing(forge: Forge) -> None:
    forge.gitea.faults.checking = -1
    async with forge.journal(forge.merging()) as driver:
        await driver.open()
        assert isinstance(await driver.settle(), Parked)
        assert await driver.count(Kind.INTENDED) == 2 and await driver.count(Kind.PARKED) == 1
        assert await driver.stage() == "analysis"
    assert forge.merges() == 0 and len(forge.gitea.merge_calls()) < 20


@pytest.mark.proves("E11")
@pytest.mark.parametrize("busy", [HINTED, (429, {"message": ""}), (409, {"message": "merge push out of date"})])
async def test_a_busy_forge_is_asked_again_inside_the_attempt(forge: Forge, busy: Any) -> None:
    forge.gitea.faults.instead = [busy]
    async with forge.journal(forge.merging()) as driver:
        await driver.open()
        assert isinstance(await driver.settle(), Advanced)
        assert await driver.count(Kind.INTENDED) == 1
    assert forge.clock.slept[0] == (3.0 if busy is HINTED else 1.0)
    assert len(forge.gitea.merge_calls()) == 2 and forge.merges() == 1


@pytest.mark.proves("R14", "E11")
async def test_a_merge_by_hand_between_two_calls_is_seen_before_the_second(forge: Forge) -> None:
    """The base moved, says the forge; meanwhile somebody merged: looked at first, so there is no second call."""
    forge.gitea.faults.before_merge = lambda: forge.gitea.merge(41)
    forge.gitea.faults.instead = [(409, {"message": "merge push out of date"})]
    await merged_once(forge, forge.merging(), calls=1)


# -- replies that lie --------------------------------------------------------------------------------------------------


@pytest.mark.proves("E6", "R03", "R06", "NFR-2")
@pytest.mark.parametrize(
    ("status", "style"),
    [(status, "merge") for status in (201, 403, 404, 405, 409, 422, 423, 502, 503)]
    + [(405, "squash"), (500, "squash")],
)
async def test_whatever_is_answered_after_a_merge_it_counts_once(forge: Forge, status: int, style: str) -> None:
    forge.gitea.faults.answer = (status, {"message": "" if status == 405 else "no"})
    await merged_once(forge, forge.merging(style))


@pytest.mark.proves("R03", "R04", "E6")
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("drop", ["ref", "after"])
async def test_a_dropped_connection_after_the_branch_moved_is_one_merge(forge: Forge, drop: str, style: str) -> None:
    forge.gitea.faults.drop = drop
    await merged_once(forge, forge.merging(style, settle_s=60))
    assert forge.gitea.pulls[41].merged is (drop == "after")


@pytest.mark.proves("R13")
async def test_a_connection_dropped_before_the_merge_is_driven_again_once(forge: Forge) -> None:
    forge.gitea.faults.drop = "before"
    step = forge.merging(settle_s=30)
    async with forge.journal(step) as driver:
        await driver.open()
        assert isinstance(await driver.advance(), Waiting)
        assert len(forge.gitea.merge_calls()) == 1 and forge.merges() == 0
        forge.gitea.faults.drop = ""
        forge.clock.us += 31_000_000
        assert isinstance(await driver.settle(), Advanced)
        assert await driver.count(Kind.INTENDED) == 2
    assert len(forge.gitea.merge_calls()) == 2 and forge.merges() == forge.changes() == 1


@pytest.mark.proves("R03", "R16", "E6", "V9")
@pytest.mark.parametrize("style", STYLES)
async def test_a_call_that_lands_after_its_owner_died_is_one_merge(forge: Forge, style: str) -> None:
    """The run is cut off in the middle of the call, the forge finishes it, and a new process finds the branch moved."""
    forge.gitea.faults.hold, forge.gitea.faults.record = asyncio.Event(), False
    async with forge.journal(forge.merging(style, settle_s=60)) as driver:
        await driver.open()
        run = asyncio.create_task(driver.advance())
        await forge.gitea.reached.wait()
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
    async with forge.journal(forge.merging(style, settle_s=60)) as driver:
        # Not landed yet, and nobody knows whether it will: no second call, whatever the probe sees.
        assert isinstance(await driver.advance(), Waiting)
        forge.gitea.faults.hold.set()
        await asyncio.gather(*forge.gitea.merging)
        assert isinstance(await driver.settle(), Advanced)
        assert await driver.count(Kind.INTENDED) == await driver.count(Kind.APPLIED) == 1
    assert len(forge.gitea.merge_calls()) == forge.merges() == forge.changes() == 1


@pytest.mark.proves("R16", "E6")
async def test_a_merge_that_outlasts_our_patience_is_not_sent_again_before_it_settled(forge: Forge) -> None:
    forge.gitea.faults.hold = asyncio.Event()
    step = forge.merging(settle_s=60, reply_s=3)
    async with forge.journal(step) as driver:
        await driver.open()
        assert isinstance(await driver.advance(), Waiting)
        assert "may_still_land" in await driver.bodies(Kind.OBSERVED)
        assert len(forge.gitea.merge_calls()) == 1
        forge.gitea.faults.hold.set()
        await asyncio.gather(*forge.gitea.merging)
        assert isinstance(await driver.settle(), Advanced)
    assert len(forge.gitea.merge_calls()) == forge.merges() == 1


@pytest.mark.proves("V4")
async def test_a_new_process_waits_out_what_an_old_one_may_have_sent(forge: Forge) -> None:
    """It cannot know when the call was made, so the settle time begins with its first look."""
    step, call = forge.merging(settle_s=60), forge.call()
    waiting = await step.probe(call)
    assert waiting.fact is Fact.UNKNOWN and seen(waiting)["reason"] == "may_still_land" and seen(waiting)["for_s"] == 60
    forge.clock.us += 59_000_000
    assert (await step.probe(call)).fact is Fact.UNKNOWN
    forge.clock.us += 1_000_000
    assert (await step.probe(call)).fact is Fact.ABSENT
    assert (await step.probe(replace(call, anchor=None))).fact is Fact.ABSENT  # no open intent


@pytest.mark.proves("R05")
async def test_a_record_that_follows_late_causes_no_second_merge(forge: Forge) -> None:
    forge.gitea.faults.record = False
    await merged_once(forge, forge.merging())
    async with forge.journal(forge.merging()) as driver:
        await driver.advance()
        forge.gitea.catch_up(41, forge.widgets.main())
        await driver.advance(actor="reconciler")
    assert forge.merges() == len(forge.gitea.merge_calls()) == 1


@pytest.mark.proves("R06", "E6")
async def test_already_merged_by_somebody_with_our_head_is_done(forge: Forge) -> None:
    """A 405 without a word (before 1.25, and Forgejo)."""
    forge.gitea.faults.before_merge = lambda: forge.gitea.merge(41)
    await merged_once(forge, forge.merging())


def push(forge: Forge, n: int = 1) -> str:
    """Somebody pushes to the head branch; says the new head."""
    head = forge.widgets.branch_file(n, "later.txt", "not reviewed\n").head
    forge.gitea.follow(40 + n)
    return head


@pytest.mark.proves("R06", "R08")
@pytest.mark.parametrize("style", STYLES)
async def test_merged_by_somebody_with_another_head_parks(forge: Forge, style: str) -> None:
    """Also with a merge commit, where our head is an ancestor: what came with it was never reviewed."""
    reviewed = forge.call()
    push(forge)
    forge.gitea.merge(41, style)
    found = await forge.merging().probe(reviewed)
    assert found.fact is Fact.CONFLICT and seen(found)["reason"] == "other_head"
    async with forge.journal(forge.merging()) as driver:
        await driver.open()
        assert isinstance(await driver.settle(), Parked) and await driver.stage() == "analysis"
    assert not forge.gitea.merge_calls()


@pytest.mark.proves("R07", "E7")
async def test_a_promise_to_merge_later_is_no_merge_until_the_branch_moves(forge: Forge) -> None:
    forge.gitea.faults.always = (201, None)
    async with forge.journal(forge.merging()) as driver:
        await driver.open()
        assert isinstance(await driver.advance(), Waiting) and await driver.stage() == "analysis"
        forge.clock.us += 60_000_000
        assert isinstance(await driver.advance(), Waiting)
        assert len(forge.gitea.merge_calls()) == 1 and "scheduled" in await driver.bodies(Kind.OBSERVED)
        forge.gitea.merge(41)
        assert isinstance(await driver.settle(), Advanced)
        assert await driver.count(Kind.APPLIED) == 1
    assert len(forge.gitea.merge_calls()) == forge.merges() == 1


@pytest.mark.proves("R15")
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"Style": "merge", "StdOut": "", "StdErr": "CONFLICT", "Err": {}}, "conflict"),
        ({"message": "head out of date"}, "head_out_of_date"),
        ({"message": "PushRejected without remote error message"}, "push_rejected"),
        ({"message": "frobnicated"}, "unknown_conflict"),
    ],
)
async def test_each_conflict_is_kept_with_its_own_reason(forge: Forge, body: Any, reason: str) -> None:
    forge.gitea.faults.always = (409, body)
    reply = await forge.merging().apply(forge.call())
    assert seen(reply)["reason"] == reason and seen(reply)["status"] == 409
    expected = Outcome.UNKNOWN if reason == "unknown_conflict" else Outcome.REJECTED
    assert reply.outcome is expected and forge.merges() == 0


# -- heads -------------------------------------------------------------------------------------------------------------


@pytest.mark.proves("R08", "R25")
async def test_a_push_after_the_review_is_refused_before_any_call(forge: Forge) -> None:
    call = forge.call()
    newer = push(forge)
    reply = await forge.merging().apply(call)
    assert reply.outcome is Outcome.REJECTED and seen(reply)["reason"] == "head_moved"
    assert newer != call.subject.head and not forge.gitea.merge_calls() and forge.merges() == 0


@pytest.mark.proves("R08")
async def test_a_push_between_our_look_and_our_call_is_refused_by_the_forge(forge: Forge) -> None:
    forge.gitea.faults.before_merge = lambda: push(forge)
    async with forge.journal(forge.merging()) as driver:
        await driver.open()
        assert isinstance(await driver.settle(), Parked)
        assert "head_out_of_date" in await driver.bodies(Kind.REJECTED)
    assert len(forge.gitea.merge_calls()) == 1 and forge.merges() == 0


@pytest.mark.proves("R09")
@pytest.mark.parametrize("ahead", ["git", "api"])
async def test_a_head_on_which_api_and_git_differ_is_never_merged(forge: Forge, ahead: str) -> None:
    call = replace(forge.call(), budget_s=20.0)
    if ahead == "git":
        push(forge)
        forge.gitea.faults.api_head[41] = call.subject.head
    else:
        forge.gitea.faults.api_head[41] = "ab" * 20
    reply = await forge.merging().apply(call)
    assert reply.outcome is Outcome.REJECTED and not forge.gitea.merge_calls()
    assert seen(reply)["reason"] == ("head_moved" if ahead == "git" else "api_head_lags")


# -- facts that are hard to read ---------------------------------------------------------------------------------------


@pytest.mark.proves("R17", "R18", "R19", "R20")
@pytest.mark.parametrize("style", ["merge", "squash", "rebase", "fast-forward-only"])
async def test_every_style_of_a_merge_by_hand_is_recognized_without_our_mark(forge: Forge, style: str) -> None:
    forge.gitea.merge(41, style)
    found = await forge.merging().probe(forge.call())
    assert found.fact is Fact.OTHERS and seen(found)["landed"] == forge.widgets.main()


@pytest.mark.proves("R18", "R21", "V3")
@pytest.mark.parametrize("style", ["squash", "rebase"])
async def test_a_merge_whose_landed_id_nobody_knows_is_unknown_and_not_repeated(forge: Forge, style: str) -> None:
    forge.gitea.faults.names_landed = False
    forge.gitea.merge(41, style)
    async with forge.journal(forge.merging(), deadline_ms=5_000) as driver:
        await driver.open()
        assert isinstance(await driver.settle(), Parked) and await driver.stage() == "analysis"
    assert not forge.gitea.merge_calls() and forge.merges() == 1


@pytest.mark.proves("R21", "V3")
async def test_a_merged_record_without_an_id_outweighs_that_git_shows_nothing(forge: Forge) -> None:
    """A person told the forge that it is merged, or resolved a conflict on the way: git alone would say "absent"."""
    forge.gitea.pulls[41].merged, forge.gitea.pulls[41].state = True, "closed"
    found = await forge.merging().probe(forge.call())
    assert found.fact is Fact.UNKNOWN and seen(found)["reason"] == "landed_id_missing"


@pytest.mark.proves("R22", "R23")
@pytest.mark.parametrize("style", STYLES)
async def test_a_merge_that_was_reverted_stays_reverted(forge: Forge, style: str) -> None:
    forge.gitea.faults.drop = "ref"
    step = forge.merging(style, settle_s=60)
    reply = await step.apply(forge.call())
    assert reply.outcome is Outcome.UNKNOWN
    forge.gitea.faults.drop = ""
    mainline = ["-m", "1"] if style == "merge" else []
    reverted = forge.widgets.by_hand(" ".join(["revert", "--no-edit", *mainline, forge.widgets.main()]))
    found = await forge.merging(style).probe(forge.call())
    again = await forge.merging(style).apply(forge.call())
    assert found.fact is Fact.CONFLICT and seen(found)["reason"] == "reverted"
    assert again.outcome is Outcome.UNKNOWN and forge.widgets.main() == reverted
    assert len(forge.gitea.merge_calls()) == 1


@pytest.mark.proves("R24", "V2")
async def test_a_clone_that_cannot_be_refreshed_answers_nothing(forge: Forge) -> None:
    step, call = forge.merging(), replace(forge.call(), anchor=None)
    assert (await step.probe(call)).fact is Fact.ABSENT
    forge.gitea.faults.git_down = True
    found = await step.probe(call)
    assert found.fact is Fact.UNKNOWN and seen(found)["reason"] == "cannot_ask"
    forge.gitea.faults.git_down = False
    forge.gitea.merge(41)
    assert (await step.probe(call)).fact is Fact.OTHERS


@pytest.mark.proves("V2", "R18")
async def test_git_alone_may_say_yes_but_not_no(forge: Forge) -> None:
    """With the API down a mark in main still proves the merge; its absence proves nothing without the record."""
    step, call = forge.merging(), forge.call()
    forge.gitea.faults.deaf = True
    assert (await step.probe(call)).fact is Fact.UNKNOWN
    forge.gitea.faults.deaf = False
    await step.apply(call)
    forge.gitea.faults.deaf = True
    assert (await step.probe(call)).fact is Fact.OURS


@pytest.mark.proves("V5")
async def test_a_recorded_merge_that_is_not_in_main_is_a_contradiction(forge: Forge) -> None:
    before = forge.widgets.main()
    forge.gitea.merge(41, "squash")
    forge.widgets.git("update-ref", "refs/heads/main", before)
    found = await forge.merging().probe(forge.call())
    assert found.fact is Fact.CONFLICT and seen(found)["reason"] == "not_in_base"


@pytest.mark.proves("E6")
async def test_a_forge_that_is_not_there_is_refused_and_never_in_doubt(forge: Forge) -> None:
    answer = await GiteaClient("http://127.0.0.1:9", TOKEN).send("POST", "/repos/acme/widgets/pulls/41/merge", {})
    assert not answer.sent and classify(answer) == Verdict(Claim.REFUSED, "never_sent")


@pytest.mark.proves("R12", "E13")
async def test_two_stacked_tasks_land_each_change_once(tmp_path: Path) -> None:
    """The second branch contains the first; both are merged at once, into one branch."""
    async with forge_with(tmp_path, 2) as forge:
        forge.widgets.by_hand()
        branch = forge.widgets.feature(2).branch
        forge.widgets._in_clone("checkout", "--quiet", "-B", branch, f"origin/{branch}")
        forge.widgets._in_clone("reset", "--quiet", "--hard", f"origin/{forge.widgets.feature(1).branch}")
        (forge.widgets.clone / "second.txt").write_text("on top\n")
        forge.widgets._in_clone("add", "second.txt")
        forge.widgets._in_clone("commit", "--quiet", "-m", "on top of the first")
        forge.widgets._in_clone("push", "--quiet", "--force", "origin", branch)
        forge.gitea.follow(42)
        head = forge.widgets.git("rev-parse", f"refs/heads/{branch}")
        async with forge.journal(forge.merging()) as driver:
            await driver.open(1)
            await driver.open(2, head=head)
            results = await asyncio.gather(driver.settle(1), driver.settle(2))
        assert all(isinstance(result, Advanced) for result in results)
        lines = forge.widgets.git("log", "--format=%s", "main").splitlines()
        assert lines.count("on top of the first") == lines.count("Polish widget 1") == 1
        assert len(forge.gitea.merge_calls()) <= 2 and forge.merges() <= 2


@pytest.mark.proves("R11")
async def test_a_person_who_presses_merge_again_gets_the_merge_that_is_there(forge: Forge) -> None:
    forge.gitea.faults.drop, forge.gitea.faults.deaf = "ref", False
    async with forge.journal(forge.merging(settle_s=60)) as driver:
        await driver.open()
        run = asyncio.create_task(driver.advance())
        await forge.gitea.reached.wait()
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        await asyncio.gather(*forge.gitea.merging)
        assert isinstance(await driver.advance(actor="operator"), Advanced)
    assert forge.merges() == len(forge.gitea.merge_calls()) == 1


# -- secrets -----------------------------------------------------------------------------------------------------------


@pytest.mark.proves("L6")
async def test_the_token_reaches_the_forge_and_nothing_else(forge: Forge) -> None:
    mirrors = forge.mirrors()
    step = forge.merging()
    await step.apply(forge.call())
    said = [repr(mirrors), repr(mirrors.clone("acme/widgets")), repr(await step.probe(forge.call()))]
    forge.gitea.faults.git_down = True
    said.append(repr(await step.probe(forge.call())))
    config = (forge.folder / "clones" / "acme" / "widgets.git" / "config").read_text()
    assert forge.merges() == 1 and not any(TOKEN in text for text in (*said, config))


async def test_a_wrong_token_is_refused_and_settles_nothing(forge: Forge) -> None:
    answer = await forge.client("wrong").get("/user")
    assert answer.status == 401 and "wrong" not in answer.message
