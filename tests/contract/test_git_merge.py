"""`git-merge` against real repositories: what reaches main, how often, and what the probe says about it afterwards."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from integrations.demo.scenery import REPO
from integrations.git.facts import in_main
from integrations.git.merge import GitMerge, GitMergeConfig, key_ref
from integrations.git.repository import LeftoverLockError, RefUpdate, Repository, ref_part
from integrations.git.verified import MergeVerified, MergeVerifiedConfig
from journal.ports import Call, Finding, Reply, StepAdapter
from journal.words import Fact, Guard, Outcome, Scalar
from tests.widgets import JOURNAL, FreeTerm, Widgets, build_widgets, call_about, run_git

STYLES = ("merge", "squash", "fast-forward")


@pytest.fixture
def widgets(tmp_path: Path) -> Widgets:
    return build_widgets(tmp_path, 2)


def merging(widgets: Widgets, style: str = "merge") -> GitMerge:
    return GitMerge(GitMergeConfig.model_validate({"style": style}), widgets.repositories)


async def merge(step: StepAdapter, call: Call) -> Reply:
    """Probe, then apply with what the probe saw: what the engine does around an intent."""
    return await step.apply(replace(call, expected=(await step.probe(call)).seen))


def seen(answer: Finding | Reply) -> dict[str, Scalar]:
    return dict(answer.seen)


@pytest.mark.proves("E3", "F3", "A4", "R17", "DC-1")
@pytest.mark.parametrize("style", STYLES)
async def test_a_merge_lands_once_and_is_recognized_as_ours_in_every_style(widgets: Widgets, style: str) -> None:
    step, call, before = merging(widgets, style), call_about(widgets), widgets.main()
    absent = await step.probe(call)
    assert absent.fact is Fact.ABSENT and seen(absent)["base_sha"] == before

    reply = await step.apply(replace(call, expected=absent.seen))

    found = await step.probe(call)
    assert reply.outcome is Outcome.APPLIED and found.fact is Fact.OURS
    assert seen(found)["landed"] == seen(reply)["landed"] == widgets.main() != before
    assert seen(found)["cites"] == f"7:{'ab' * 32}" and seen(found)["fence"] == "1.1"
    assert widgets.git("show", "main:widgets/part_1.py").count("polished") == 1
    assert step.traits.guard is Guard.EXCLUSIVE and step.traits.irreversible


@pytest.mark.proves("E5", "R17", "FR-4")
@pytest.mark.parametrize("style", STYLES)
async def test_the_same_key_applied_again_moves_nothing(widgets: Widgets, style: str) -> None:
    """The guard `exclusive`: a late request of an older attempt, and one with today's base, change nothing."""
    step, call = merging(widgets, style), call_about(widgets)
    late = replace(call, expected=(await step.probe(call)).seen)
    await step.apply(late)
    refs = widgets.git("for-each-ref")

    again = await step.apply(late)
    renewed = await step.apply(replace(call, attempt=2, expected=(await step.probe(call)).seen))

    assert again.outcome is renewed.outcome is Outcome.UNKNOWN
    assert widgets.git("for-each-ref") == refs
    assert widgets.landed() == (0 if style == "fast-forward" else 1)


@pytest.mark.proves("E5")
async def test_git_itself_refuses_the_key_and_the_old_base(widgets: Widgets) -> None:
    """Without our look before: the transaction alone is the guard, so a request in flight needs no other."""
    step, call, base = merging(widgets), call_about(widgets), widgets.main()
    await merge(step, call)
    refs, head = widgets.git("for-each-ref"), widgets.feature().head
    for new_base, old_key in ((base, "0" * 40), (widgets.main(), "0" * 40), (base, widgets.main())):
        updates = (RefUpdate("refs/heads/main", head, new_base), RefUpdate(key_ref(call), head, old_key))
        with pytest.raises(Exception, match="cannot lock ref"):
            await widgets.repository.transact(updates, "late")
    assert widgets.git("for-each-ref") == refs


@pytest.mark.proves("E5", "E13")
async def test_of_two_merges_at_once_exactly_one_moves_main(widgets: Widgets) -> None:
    step = merging(widgets)
    calls = [call_about(widgets, n) for n in (1, 2)]
    armed = [replace(call, expected=(await step.probe(call)).seen) for call in calls]

    replies = await asyncio.gather(*(step.apply(call) for call in armed))

    outcomes = sorted(reply.outcome for reply in replies)
    assert outcomes == [Outcome.APPLIED, Outcome.UNKNOWN]
    assert widgets.landed(1) + widgets.landed(2) == 1
    facts = sorted([(await step.probe(call)).fact for call in calls])
    assert facts == [Fact.ABSENT, Fact.OURS]


@pytest.mark.proves("E5", "E2")
async def test_many_racers_with_one_key_land_once(widgets: Widgets) -> None:
    step, call = merging(widgets), call_about(widgets)
    armed = replace(call, expected=(await step.probe(call)).seen)
    replies = await asyncio.gather(*(step.apply(replace(armed, attempt=n)) for n in range(1, 7)))
    assert [reply.outcome for reply in replies].count(Outcome.APPLIED) == 1
    assert widgets.landed() == 1 and widgets.git("rev-list", "--count", "--first-parent", "main") == "2"


@pytest.mark.proves("R24", "R25")
async def test_a_branch_that_moved_after_the_review_is_not_merged(widgets: Widgets) -> None:
    step, call, before = merging(widgets), call_about(widgets), widgets.main()
    widgets.branch_file(1, "later.txt", "not reviewed\n")
    reply = await merge(step, call)
    assert reply.outcome is Outcome.REJECTED and seen(reply)["reason"] == "head_moved"
    assert widgets.main() == before


@pytest.mark.proves("E5", "R24")
async def test_a_base_that_moved_since_the_probe_leaves_the_merge_in_doubt(widgets: Widgets) -> None:
    step, call = merging(widgets), call_about(widgets)
    armed = replace(call, expected=(await step.probe(call)).seen)
    moved = widgets.edit("other.txt", "x\n")
    reply = await step.apply(armed)
    assert reply.outcome is Outcome.UNKNOWN and seen(reply)["reason"] == "ref_moved"
    assert seen(reply)["ref"] == "refs/heads/main" and widgets.main() == moved


class Overtaken(Repository):
    """A repository in which somebody moves a ref right before each of our transactions."""

    __slots__ = ()
    ref = ""
    value = ""

    async def transact(self, updates: Sequence[RefUpdate], reason: str) -> None:
        run_git(self.path, "update-ref", self.ref, self.value)
        await Repository.transact(self, updates, reason)


@pytest.mark.proves("E5", "R25")
@pytest.mark.parametrize("ref", ["refs/heads/main", "refs/heads/feature/1", "refs/journal/WID-1/1/merge_pr"])
async def test_git_compares_base_branch_and_key_while_it_moves_them(widgets: Widgets, ref: str) -> None:
    """Overtaken between our last look and the transaction: nothing of ours moves."""
    step, call, before = merging(widgets), call_about(widgets), widgets.main()
    late = type("Late", (Overtaken,), {"__slots__": (), "ref": ref, "value": widgets.feature(2).head})
    overtaken = GitMerge(GitMergeConfig(), lambda _: late(widgets.scenery.repository))
    reply = await overtaken.apply(replace(call, expected=(await step.probe(call)).seen))
    assert reply.outcome is Outcome.UNKNOWN and seen(reply)["ref"] == ref
    assert widgets.landed() == 0 and widgets.main() in {before, widgets.feature(2).head}
    assert widgets.git("rev-parse", ref) == widgets.feature(2).head


class Torn(Repository):
    """A repository whose refs are read while a transaction is half visible: the key ref is there, main still old."""

    __slots__ = ()
    old = ""

    async def refs(self, *wanted: str) -> tuple[str, ...]:
        read = await Repository.refs(self, *wanted)
        return (self.old, *read[1:]) if len(wanted) > 1 else read


@pytest.mark.proves("V2")
async def test_a_transaction_seen_half_way_is_no_force_push(widgets: Widgets) -> None:
    step, call = merging(widgets), call_about(widgets)
    torn = type("TornNow", (Torn,), {"__slots__": (), "old": widgets.main()})
    await merge(step, call)
    found = await GitMerge(GitMergeConfig(), lambda _: torn(widgets.scenery.repository)).probe(call)
    assert found.fact is Fact.OURS


@pytest.mark.proves("E3", "V2")
async def test_our_key_on_another_head_is_a_conflict(widgets: Widgets) -> None:
    """The head belongs to the generation: one key for two heads means that somebody's record is wrong."""
    step, call = merging(widgets), call_about(widgets)
    await merge(step, call)
    other = replace(call, subject=replace(call.subject, head=widgets.feature(2).head))
    found = await step.probe(other)
    assert found.fact is Fact.CONFLICT and seen(found)["reason"] == "other_head"


@pytest.mark.proves("E6")
async def test_a_conflict_is_refused_and_moves_nothing(widgets: Widgets) -> None:
    step, call = merging(widgets), call_about(widgets)
    before = widgets.edit("widgets/part_1.py", "something else\n")
    reply = await merge(step, call)
    assert reply.outcome is Outcome.REJECTED and seen(reply)["reason"] == "conflict"
    assert widgets.main() == before and (await step.probe(call)).fact is Fact.ABSENT


@pytest.mark.proves("E6")
async def test_fast_forward_is_refused_when_main_went_on(widgets: Widgets) -> None:
    widgets.edit("other.txt", "x\n")
    reply = await merge(merging(widgets, "fast-forward"), call_about(widgets))
    assert reply.outcome is Outcome.REJECTED and seen(reply)["reason"] == "not_fast_forward"


@pytest.mark.proves("E1", "E5")
async def test_an_order_without_the_base_that_was_probed_is_refused(widgets: Widgets) -> None:
    before = widgets.main()
    reply = await merging(widgets).apply(call_about(widgets))
    assert reply.outcome is Outcome.REJECTED and widgets.main() == before


@pytest.mark.proves("E3")
async def test_the_same_attempt_makes_the_same_commit(widgets: Widgets, tmp_path: Path) -> None:
    twin = build_widgets(tmp_path / "twin", 2)
    for world in (widgets, twin):
        await merge(merging(world), call_about(world))
    assert widgets.main() == twin.main()
    assert widgets.git("log", "-1", "--format=%ct", "main") == widgets.git("log", "-1", "--format=%ct", "feature/1")


@pytest.mark.proves("E5", "E9")
async def test_every_git_command_of_a_merge_carries_the_tasks_lock(widgets: Widgets, tmp_path: Path) -> None:
    """Seen from inside: a wrapper around git on PATH looks whether the descriptor is open in it."""
    lock = os.open(tmp_path / "task.lock", os.O_CREAT | os.O_RDWR)
    wrapper = tmp_path / "bin/git"
    wrapper.parent.mkdir()
    seen_by = tmp_path / "seen"
    script = f"#!/bin/sh\n[ -e /proc/self/fd/{lock} ] && echo held >>{seen_by} || echo free >>{seen_by}\n"
    wrapper.write_text(script + f'exec {shutil.which("git")} "$@"\n')
    wrapper.chmod(0o755)
    term = FreeTerm(fd=lock)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
            reply = await merge(merging(widgets), replace(call_about(widgets), term=term))
    finally:
        os.close(lock)
    assert reply.outcome is Outcome.APPLIED
    lines = seen_by.read_text().split()
    assert set(lines) == {"held"} and len(lines) == len(term.groups) > 5


# -- brought to main by others -----------------------------------------------------------------------------------------


@pytest.mark.proves("R17", "R18", "R19", "R20", "V2", "E10")
@pytest.mark.parametrize(
    ("ways", "fact", "said"),
    [
        ("merge --quiet --no-ff origin/feature/1", Fact.OTHERS, "ancestor"),
        ("merge --quiet --ff-only origin/feature/1", Fact.OTHERS, "ancestor"),
        ("merge --quiet --squash origin/feature/1;commit --quiet -m squashed", Fact.UNKNOWN, "equal_patch"),
        ("commit --quiet --allow-empty -m first;cherry-pick origin/feature/1", Fact.UNKNOWN, "equal_patch"),
        (
            "commit --quiet --allow-empty -m first;checkout --quiet -b moved origin/feature/1;rebase --quiet main;"
            "checkout --quiet main;merge --quiet --ff-only moved",
            Fact.UNKNOWN,
            "equal_patch",
        ),
    ],
    ids=["merge", "fast-forward", "squash", "cherry-pick", "rebase"],
)
async def test_what_people_did_by_hand_is_never_taken_for_absent(
    widgets: Widgets, ways: str, fact: Fact, said: str
) -> None:
    """Ancestry is proof and is adopted; equal content alone is unknown, and nothing is merged on top of it."""
    landed = widgets.by_hand(*ways.split(";"))
    widgets.edit("later.txt", "main went on\n")
    found = await merging(widgets).probe(call_about(widgets))
    assert found.fact is fact
    assert said in {seen(found).get("via"), seen(found).get("reason")}
    assert seen(found).get("landed") == (landed if fact is Fact.OTHERS else None)


@pytest.mark.proves("R17", "V2")
async def test_a_squash_of_many_commits_is_found_although_main_changed_the_same_files_later(widgets: Widgets) -> None:
    subject = widgets.branch_file(1, "widgets/part_1.py", "rewritten\n")
    widgets.by_hand("merge --quiet --squash origin/feature/1", "commit --quiet -m squashed")
    widgets.edit("widgets/part_1.py", "and rewritten again\n")
    found = await merging(widgets).probe(replace(call_about(widgets), subject=subject))
    assert found.fact is Fact.UNKNOWN and seen(found)["reason"] == "equal_patch"


@pytest.mark.proves("V2")
async def test_a_branch_without_changes_is_not_mistaken_for_a_merged_one(widgets: Widgets) -> None:
    tree = widgets.git("rev-parse", "main^{tree}")
    env = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    command = ["git", f"--git-dir={widgets.scenery.repository}", "commit-tree", tree, "-p", "main", "-m", "empty"]
    empty = subprocess.run(command, capture_output=True, check=True, env=env | {"PATH": os.environ["PATH"]})
    head = empty.stdout.decode().strip()
    widgets.git("update-ref", "refs/heads/feature/1", head)
    call = call_about(widgets)
    found = await merging(widgets).probe(replace(call, subject=replace(call.subject, head=head)))
    assert found.fact is Fact.ABSENT


@pytest.mark.proves("V8", "F3")
@pytest.mark.parametrize("key_ref_kept", [True, False], ids=["by key ref", "by trailer"])
async def test_another_journals_merge_of_the_same_key_is_another_s(widgets: Widgets, key_ref_kept: bool) -> None:
    step, call = merging(widgets, "squash"), call_about(widgets)
    await merge(step, replace(call, journal_id="f" * 32))
    if not key_ref_kept:
        widgets.git("update-ref", "-d", key_ref(call))
    found = await step.probe(call)
    assert found.fact is Fact.OTHERS and seen(found)["journal"] == "f" * 32


# -- afterwards --------------------------------------------------------------------------------------------------------


@pytest.mark.proves("R17", "R18", "FR-4")
async def test_without_its_key_ref_a_squash_is_found_by_its_trailer(widgets: Widgets) -> None:
    """Also what a kill between the two renames of the transaction leaves behind."""
    step, call = merging(widgets, "squash"), call_about(widgets)
    await merge(step, call)
    landed = widgets.main()
    widgets.git("update-ref", "-d", key_ref(call))
    widgets.edit("later.txt", "main went on\n")
    found = await step.probe(call)
    assert found.fact is Fact.OURS and seen(found)["via"] == "trailer" and seen(found)["landed"] == landed


@pytest.mark.proves("E3")
async def test_a_trailer_of_a_longer_key_is_not_ours(widgets: Widgets) -> None:
    step, call = merging(widgets, "squash"), call_about(widgets)
    await merge(step, replace(call, step="merge_pr_2"))
    widgets.git("update-ref", "-d", key_ref(replace(call, step="merge_pr_2")))
    assert (await step.probe(call)).fact is Fact.UNKNOWN  # the content is there, the key is not


@pytest.mark.proves("R22", "R23", "TR-3")
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("key_ref_kept", [True, False])
async def test_a_reverted_merge_is_a_conflict_and_never_merged_again(
    widgets: Widgets, style: str, key_ref_kept: bool
) -> None:
    step, call = merging(widgets, style), call_about(widgets)
    await merge(step, call)
    parent = "-m 1 " if style == "merge" else ""
    revert = widgets.by_hand(f"revert --no-edit {parent}{widgets.main()}")
    if not key_ref_kept:
        widgets.git("update-ref", "-d", key_ref(call))
    found = await step.probe(call)
    assert found.fact is Fact.CONFLICT
    assert seen(found)["reason"] == "reverted" and seen(found)["reverted"] == revert


@pytest.mark.proves("R22")
async def test_a_revert_that_was_reverted_leaves_the_merge_in_effect(widgets: Widgets) -> None:
    step, call = merging(widgets), call_about(widgets)
    await merge(step, call)
    revert = widgets.by_hand(f"revert --no-edit -m 1 {widgets.main()}")
    widgets.by_hand(f"revert --no-edit {revert}")
    assert (await step.probe(call)).fact is Fact.OURS


@pytest.mark.proves("R23")
async def test_a_squash_by_hand_that_was_reverted_is_not_absent(widgets: Widgets) -> None:
    squashed = widgets.by_hand("merge --quiet --squash origin/feature/1", "commit --quiet -m squashed")
    widgets.by_hand(f"revert --no-edit {squashed}")
    assert (await merging(widgets).probe(call_about(widgets))).fact is Fact.UNKNOWN


@pytest.mark.proves("V5")
@pytest.mark.parametrize("style", STYLES)
async def test_a_force_push_that_drops_the_merge_is_a_conflict(widgets: Widgets, style: str) -> None:
    step, call, before = merging(widgets, style), call_about(widgets), widgets.main()
    await merge(step, call)
    widgets.by_hand(f"reset --quiet --hard {before}")
    found = await step.probe(call)
    assert found.fact is Fact.CONFLICT and seen(found)["reason"] == "not_in_base"


@pytest.mark.proves("R26", "V2")
async def test_collected_objects_are_unknown_and_not_absent(widgets: Widgets) -> None:
    step, call = merging(widgets), call_about(widgets)
    widgets.git("update-ref", "-d", "refs/heads/feature/1")
    widgets.git("gc", "--quiet", "--prune=now")
    found = await step.probe(call)
    assert found.fact is Fact.UNKNOWN and seen(found)["reason"] == "head_missing"


@pytest.mark.proves("R26", "V2")
async def test_a_damaged_history_is_unknown_and_not_absent(widgets: Widgets) -> None:
    """Git exits 128: the parent of main's tip is gone."""
    widgets.edit("a.txt", "1\n")
    gone = widgets.main()
    widgets.edit("a.txt", "2\n")
    (widgets.scenery.repository / "objects" / gone[:2] / gone[2:]).unlink()
    found = await merging(widgets).probe(call_about(widgets))
    assert found.fact is Fact.UNKNOWN and seen(found)["reason"] == "cannot_ask"


@pytest.mark.proves("R26", "V2")
async def test_a_broken_ref_is_unknown_and_not_absent(widgets: Widgets) -> None:
    step, call = merging(widgets), call_about(widgets)
    place = widgets.scenery.repository / key_ref(call)
    place.parent.mkdir(parents=True)
    place.write_text("not an id\n")
    assert (await step.probe(call)).fact is Fact.UNKNOWN


@pytest.mark.proves("V2", "R100")
@pytest.mark.parametrize("branch", ["--upload-pack=x", "../../x", "a b;c", "x.lock", "a..b", "@", "q'%\"", "-rf"])
async def test_hostile_branches_and_bases_reach_no_ref(widgets: Widgets, branch: str) -> None:
    step, call, refs = merging(widgets), call_about(widgets), widgets.git("for-each-ref")
    for subject in (replace(call.subject, branch=branch), replace(call.subject, base=branch)):
        found = await step.probe(replace(call, subject=subject))
        armed = replace(call, subject=subject, expected=(("base_sha", widgets.main()),))
        reply = await step.apply(armed)
        assert reply.outcome is not Outcome.APPLIED and found.fact in {Fact.UNKNOWN, Fact.ABSENT}
    assert widgets.git("for-each-ref") == refs
    assert {path.name for path in widgets.scenery.repository.parent.parent.iterdir()} == {"acme"}


@pytest.mark.proves("R100")
@pytest.mark.parametrize("text", ["../x", "a/b", ".hidden", "x.lock", "a~b", "ü" * 90, "-rf", "a%2Fb", "@", "a\nb"])
def test_any_text_makes_one_component_of_a_ref(tmp_path: Path, text: str) -> None:
    part = ref_part(text)
    assert "/" not in part and part != ref_part(text + "x") and len(part) <= 200
    assert run_git(None, "check-ref-format", f"refs/journal/{part}/1/merge_pr") == ""


@pytest.mark.proves("V2")
async def test_an_unknown_repository_is_unknown_and_nothing_is_merged(widgets: Widgets) -> None:
    call = call_about(widgets)
    call = replace(call, subject=replace(call.subject, repo="acme/other"))
    assert (await merging(widgets).probe(call)).fact is Fact.UNKNOWN
    assert (await merging(widgets).apply(call)).outcome is Outcome.REJECTED


@pytest.mark.proves("V2", "E9")
async def test_a_spent_budget_is_unknown_and_a_merge_that_never_began_is_refused(widgets: Widgets) -> None:
    call = replace(call_about(widgets), budget_s=0.0, expected=(("base_sha", widgets.main()),))
    assert (await merging(widgets).probe(call)).fact is Fact.UNKNOWN
    assert (await merging(widgets).apply(call)).outcome is Outcome.REJECTED
    assert widgets.landed() == 0


# -- clones ------------------------------------------------------------------------------------------------------------


async def fact_in(clone: Path, widgets: Widgets) -> Finding:
    call = call_about(widgets)
    return await in_main(Repository(clone), key=call.key, journal_id=JOURNAL, head=call.subject.head, base="main")


@pytest.mark.proves("R24", "V2")
async def test_a_clone_is_asked_after_a_fetch_and_a_failed_fetch_is_unknown(widgets: Widgets, tmp_path: Path) -> None:
    clone = tmp_path / "stale.git"
    run_git(None, "clone", "--quiet", "--mirror", str(widgets.scenery.repository), str(clone))
    assert (await fact_in(clone, widgets)).fact is Fact.ABSENT
    await merge(merging(widgets), call_about(widgets))
    assert (await fact_in(clone, widgets)).fact is Fact.OURS
    run_git(clone, "remote", "set-url", "origin", str(tmp_path / "gone"))
    assert (await fact_in(clone, widgets)).fact is Fact.UNKNOWN


@pytest.mark.proves("R26", "V2")
async def test_a_shallow_clone_knows_no_no(widgets: Widgets, tmp_path: Path) -> None:
    await merge(merging(widgets), call_about(widgets))
    widgets.edit("later.txt", "main went on\n")
    clone, source = tmp_path / "shallow.git", f"file://{widgets.scenery.repository}"
    run_git(None, "clone", "--quiet", "--bare", "--depth=1", "--no-single-branch", source, str(clone))
    found = await fact_in(clone, widgets)
    assert found.fact is Fact.UNKNOWN and seen(found)["reason"] == "shallow"


# -- crashes -----------------------------------------------------------------------------------------------------------

KILLED = """
import asyncio, os, signal, sys
from dataclasses import replace
from pathlib import Path
from integrations.git.merge import GitMerge, GitMergeConfig
from integrations.git.repository import Repository
from integrations.demo.scenery import Feature, Scenery
from tests.widgets import Widgets, call_about

class Dying(Repository):
    __slots__ = ()
    async def transact(self, updates, reason):
        print(updates[0].new, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

place, head = Path(sys.argv[1]), sys.argv[2]
widgets = Widgets(Scenery(place, "", (Feature("feature/1", head, "", (0, 0), (0, 0)),)), place)
step = GitMerge(GitMergeConfig(), lambda name: Dying(place))
call = call_about(widgets)

async def run():
    await step.apply(replace(call, expected=(await step.probe(call)).seen))

asyncio.run(run())
"""


@pytest.mark.proves("TR-3", "FR-4", "E6")
async def test_killed_between_the_objects_and_the_refs_nothing_has_happened(widgets: Widgets) -> None:
    before = widgets.git("for-each-ref")
    argv = [sys.executable, "-c", KILLED, str(widgets.scenery.repository), widgets.feature().head]
    died = await asyncio.to_thread(subprocess.run, argv, capture_output=True, cwd=Path(__file__).parents[2])
    assert died.returncode == -signal.SIGKILL, died.stderr
    made = died.stdout.decode().strip()
    assert widgets.git("cat-file", "-t", made) == "commit"  # the objects were there already
    assert widgets.git("for-each-ref") == before

    step, call = merging(widgets), call_about(widgets)
    assert (await step.probe(call)).fact is Fact.ABSENT
    assert seen(await merge(step, call))["landed"] == made == widgets.main()
    assert widgets.landed() == 1


@pytest.mark.proves("E6", "TR-1")
async def test_a_young_lock_file_leaves_the_merge_in_doubt_and_an_old_one_is_removed(widgets: Widgets) -> None:
    step, call, before = merging(widgets), call_about(widgets), widgets.main()
    names = ("HEAD", "refs/heads/main", "refs/heads/feature/1", key_ref(call))
    left = [widgets.scenery.repository / f"{name}.lock" for name in names]  # what a killed transaction leaves behind
    for lock in left:
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.touch()
    reply = await merge(step, call)
    assert reply.outcome is Outcome.UNKNOWN and seen(reply)["reason"] == "lock_left"
    assert all(lock.exists() for lock in left) and widgets.main() == before
    assert (await step.probe(call)).fact is Fact.ABSENT

    hours_ago = time.time() - 7200
    for lock in left:
        os.utime(lock, (hours_ago, hours_ago))
    assert (await merge(step, call)).outcome is Outcome.APPLIED
    assert not any(lock.exists() for lock in left) and widgets.landed() == 1


@pytest.mark.proves("E6")
async def test_an_old_lock_file_stays_while_a_git_process_lives(widgets: Widgets) -> None:
    """A stopped git may still hold it; only when no git works on the repository is it a leftover."""
    lock = widgets.scenery.repository / "refs/heads/main.lock"
    lock.touch()
    os.utime(lock, (0, 0))
    argv = ["git", f"--git-dir={widgets.scenery.repository}", "cat-file", "--batch"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as working:
        assert working.stdin and working.stdout
        working.stdin.write(b"HEAD\n")
        working.stdin.flush()
        working.stdout.readline()  # it answers, so it runs
        update = RefUpdate("refs/heads/main", widgets.feature().head, widgets.main())
        with pytest.raises(LeftoverLockError):
            await widgets.repository.transact((update,), "x")
        assert lock.exists()
        working.stdin.close()


# -- merge_verified ----------------------------------------------------------------------------------------------------


@pytest.mark.proves("R22", "R17", "FR-4")
@pytest.mark.parametrize("style", STYLES)
async def test_a_deploy_waits_for_a_merge_that_is_in_main_and_in_effect(widgets: Widgets, style: str) -> None:
    step, call, before = merging(widgets, style), call_about(widgets), widgets.main()
    reply = await merge(step, call)
    verified = MergeVerified(MergeVerifiedConfig(), widgets.repositories)
    asked = replace(call, step="merge_verified", outcomes={"merge_pr": reply.seen})
    assert (await verified.probe(asked)).fact is Fact.OURS
    assert verified.traits.guard is Guard.AWAITED
    assert (await verified.probe(replace(asked, outcomes={}))).fact is Fact.UNKNOWN

    parent = "-m 1 " if style == "merge" else ""
    widgets.by_hand(f"revert --no-edit {parent}{widgets.main()}")
    assert seen(await verified.probe(asked))["reason"] == "reverted"
    widgets.by_hand(f"reset --quiet --hard {before}")
    gone = await verified.probe(asked)
    assert gone.fact is Fact.CONFLICT and seen(gone)["reason"] == "not_in_base"


@pytest.mark.parametrize("style", ["merge", "squash"])
async def test_all_branches_of_the_scenery_merge_one_after_the_other(tmp_path: Path, style: str) -> None:
    widgets = build_widgets(tmp_path, 7)
    step = merging(widgets, style)
    for n in range(7, 0, -1):
        assert (await merge(step, call_about(widgets, n))).outcome is Outcome.APPLIED
    assert [widgets.landed(n) for n in range(1, 8)] == [1] * 7
    assert build_widgets(tmp_path / "again", 7).scenery.features == widgets.scenery.features


def test_the_repository_of_the_scenery_is_named_like_a_real_one(widgets: Widgets) -> None:
    assert widgets.scenery.repository.name == "widgets.git" and widgets.scenery.paths.keys() == {REPO}
    assert widgets.git("fsck", "--strict") == ""
