"""The coverage ratchet and its gate against a real repository: how often the baseline rises, counted from git log."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from integrations.coverage.baseline import ref_of
from integrations.coverage.gate import CoverageGate, CoverageGateConfig
from integrations.coverage.ratchet import Ratchet, RatchetConfig
from integrations.coverage.source import ReportConfig
from integrations.demo.scenery import REPORTS
from journal.ports import Answer, Call, Finding, Reply
from journal.words import Fact, Guard, Opening, Outcome, Scalar
from tests.widgets import Widgets, build_widgets, call_about


@pytest.fixture
def widgets(tmp_path: Path) -> Widgets:
    return build_widgets(tmp_path, 3)


def ratchet(widgets: Widgets, *reports: str) -> Ratchet:
    return Ratchet(RatchetConfig(reports=reports or ("coverage.json",)), widgets.repositories)


def raising(widgets: Widgets, n: int = 1, **changes: int) -> Call:
    return call_about(widgets, n, "ratchet", **changes)


def seen(answer: Finding | Reply | Answer) -> dict[str, Scalar]:
    return dict(answer.seen)


def ref(widgets: Widgets) -> str:
    return ref_of(raising(widgets).subject)


def raises(widgets: Widgets, n: int) -> int:
    """How often task n raised the baseline: counted in the world."""
    return widgets.git("log", "--format=%B", ref(widgets)).splitlines().count(f"Transition: WID-{n}/1/ratchet")


def baseline(widgets: Widgets) -> dict[str, dict[str, list[int]]]:
    files = json.loads(widgets.git("show", f"{ref(widgets)}:baseline.json"))["files"]
    assert isinstance(files, dict)
    return files


def lowered(widgets: Widgets, n: int, **counts: int) -> str:
    """The branch's coverage.json with other numbers for its own module."""
    document = json.loads(widgets.git("show", f"feature/{n}:coverage.json"))
    document["files"][widgets.feature(n).module]["summary"] |= counts
    return json.dumps(document, indent=1) + "\n"


@pytest.mark.proves("R97", "E3", "F3", "A4", "DC-1")
@pytest.mark.parametrize("reports", [("coverage.json",), REPORTS], ids=["json", "mixed formats"])
async def test_each_task_raises_the_baseline_once_and_stays_recognizable(
    widgets: Widgets, reports: tuple[str, ...]
) -> None:
    """A probe by key stays decidable after later raises by other tasks."""
    step = ratchet(widgets, *reports)
    for n in (1, 2, 3):
        assert (await step.probe(raising(widgets, n))).fact is Fact.ABSENT
        assert (await step.apply(raising(widgets, n))).outcome is Outcome.APPLIED
    for n in (1, 2, 3):
        found = await step.probe(raising(widgets, n))
        assert found.fact is Fact.OURS and raises(widgets, n) == 1
        assert seen(found)["cites"] == f"7:{'ab' * 32}" and seen(found)["fence"] == "1.1"
        feature = widgets.feature(n)
        measured = {"lines": list(feature.lines), "branches": list(feature.branches)}
        assert baseline(widgets)[feature.module] == measured
    assert step.traits.guard is Guard.EXCLUSIVE and step.traits.irreversible


@pytest.mark.proves("E5", "R97")
async def test_the_same_key_applied_again_raises_nothing(widgets: Widgets) -> None:
    step = ratchet(widgets)
    await step.apply(raising(widgets))
    before = widgets.git("rev-parse", ref(widgets))
    again = await step.apply(raising(widgets, epoch=2, attempt=2))
    assert again.outcome is Outcome.UNKNOWN and seen(again)["reason"] == "key_exists"
    assert widgets.git("rev-parse", ref(widgets)) == before


@pytest.mark.proves("E5", "R97")
async def test_racers_with_one_key_raise_once_and_other_keys_all_get_through(widgets: Widgets) -> None:
    step = ratchet(widgets)
    calls = [raising(widgets, n, attempt=attempt) for n in (1, 2, 3) for attempt in (1, 2)]
    replies = await asyncio.gather(*(step.apply(call) for call in calls))
    assert [reply.outcome for reply in replies].count(Outcome.APPLIED) == 3
    assert [raises(widgets, n) for n in (1, 2, 3)] == [1, 1, 1]


@pytest.mark.proves("E3")
async def test_a_longer_key_is_not_ours(widgets: Widgets) -> None:
    step = ratchet(widgets)
    await step.apply(replace(raising(widgets), step="ratchet_2"))
    assert (await step.probe(raising(widgets))).fact is Fact.OTHERS


@pytest.mark.proves("R97")
async def test_only_the_higher_numbers_move(widgets: Widgets) -> None:
    """Measured below the floor on one number, above on another: only the second moves."""
    step, module = ratchet(widgets), widgets.feature().module
    await step.apply(raising(widgets))
    subject = widgets.branch_file(1, "coverage.json", lowered(widgets, 1, covered_lines=1, covered_branches=4))
    later = replace(raising(widgets), subject=subject, generation=2)
    assert (await step.probe(later)).fact is Fact.ABSENT
    assert (await step.apply(later)).outcome is Outcome.APPLIED
    assert baseline(widgets)[module] == {"lines": list(widgets.feature().lines), "branches": [4, 4]}
    assert (await step.probe(later)).fact is Fact.OURS


@pytest.mark.proves("E10")
async def test_a_baseline_that_holds_ours_already_is_adopted_and_not_raised(widgets: Widgets) -> None:
    step = ratchet(widgets)
    await step.apply(replace(raising(widgets), journal_id="f" * 32))
    found = await step.probe(raising(widgets))
    assert found.fact is Fact.OTHERS and step.traits.adopts
    reply = await step.apply(raising(widgets))
    assert reply.outcome is Outcome.REJECTED and seen(reply)["reason"] == "nothing_to_raise"
    assert raises(widgets, 1) == 1


@pytest.mark.proves("V5", "V2")
async def test_a_baseline_lowered_behind_our_back_is_a_conflict(widgets: Widgets) -> None:
    step = ratchet(widgets)
    await step.apply(raising(widgets))
    files = {"schema": 1, "files": {widgets.feature().module: {"lines": [1, 10], "branches": [0, 4]}}}
    tip = widgets.git("rev-parse", ref(widgets))
    lower = await widgets.repository.append(ref(widgets), tip, "baseline.json", json.dumps(files).encode(), "lower", 0)
    found = await step.probe(raising(widgets))
    assert lower and found.fact is Fact.CONFLICT and seen(found)["reason"] == "lowered_since"


@pytest.mark.proves("V2", "V3")
@pytest.mark.parametrize("content", [b"{}", b"not json", b'{"schema": 2, "files": {}}', b'{"schema": 1, "files": [3]}'])
async def test_an_unreadable_baseline_is_unknown_and_is_not_written_over(widgets: Widgets, content: bytes) -> None:
    made = await widgets.repository.append(ref(widgets), "", "baseline.json", content, "odd", 0)
    assert (await ratchet(widgets).probe(raising(widgets))).fact is Fact.UNKNOWN
    assert (await ratchet(widgets).apply(raising(widgets))).outcome is Outcome.UNKNOWN
    gate = CoverageGate(CoverageGateConfig(), widgets.repositories)
    assert (await gate.ask(raising(widgets))).opening is Opening.UNKNOWN
    assert widgets.git("rev-parse", ref(widgets)) == made


@pytest.mark.proves("V2", "R101")
async def test_a_missing_or_hostile_report_is_unknown_and_raises_nothing(widgets: Widgets) -> None:
    for step in (ratchet(widgets, "nowhere.json"), ratchet(widgets, "widgets/__init__.py")):
        assert (await step.probe(raising(widgets))).fact is Fact.UNKNOWN
        assert (await step.apply(raising(widgets))).outcome is Outcome.REJECTED
    assert widgets.git("for-each-ref", "refs/journal") == ""


@pytest.mark.proves("R100")
async def test_no_task_name_reaches_the_ref_of_a_baseline(widgets: Widgets) -> None:
    """A task may be called `coverage`; its key refs and the baselines live side by side."""
    call = raising(widgets)
    odd = replace(call, subject=replace(call.subject, task="coverage", repo="acme/widgets"))
    assert (await ratchet(widgets).apply(odd)).outcome is Outcome.APPLIED
    tip = widgets.git("rev-parse", ref(widgets))
    widgets.git("update-ref", "refs/journal/coverage/1/merge_pr", tip)
    assert widgets.git("rev-parse", ref(widgets)) == tip
    assert "/" not in ref_of(replace(odd.subject, repo="1", base="merge_pr")).removeprefix("refs/journal/coverage/")


@pytest.mark.proves("R100")
@pytest.mark.parametrize("path", ["/etc/passwd", "../x.json", "a/../../x", ""])
def test_a_report_path_outside_the_tree_is_refused_at_load(path: str) -> None:
    with pytest.raises(ValidationError):
        ReportConfig(reports=(path,))


async def test_a_report_on_disk_is_found_by_its_head(widgets: Widgets, tmp_path: Path) -> None:
    call = raising(widgets)
    config = RatchetConfig(file=f"{tmp_path}/{{task}}-{{head}}.json")
    step = Ratchet(config, widgets.repositories)
    assert (await step.probe(call)).fact is Fact.UNKNOWN
    content = widgets.git("show", "feature/1:coverage.json")
    (tmp_path / f"WID-1-{call.subject.head}.json").write_text(content)
    assert (await step.apply(call)).outcome is Outcome.APPLIED
    assert (await step.probe(call)).fact is Fact.OURS


# -- the gate ----------------------------------------------------------------------------------------------------------


def gate(widgets: Widgets, **config: object) -> CoverageGate:
    return CoverageGate(CoverageGateConfig.model_validate(config), widgets.repositories)


@pytest.mark.proves("E12")
async def test_the_gate_is_open_without_a_baseline_and_without_a_drop(widgets: Widgets) -> None:
    assert (await gate(widgets).ask(raising(widgets))).opening is Opening.OPEN
    await ratchet(widgets).apply(raising(widgets))
    assert (await gate(widgets).ask(raising(widgets))).opening is Opening.OPEN


@pytest.mark.proves("E12", "R97")
async def test_the_gate_looks_only_at_files_that_the_branch_touches(widgets: Widgets) -> None:
    """Task 1 raised its own module; the branch of task 2 still measures the old value there and is not to blame."""
    await ratchet(widgets).apply(raising(widgets, 1))
    assert (await gate(widgets).ask(raising(widgets, 2))).opening is Opening.OPEN


@pytest.mark.proves("E12")
async def test_a_drop_closes_the_gate_with_the_file_and_the_counts(widgets: Widgets) -> None:
    await ratchet(widgets).apply(raising(widgets))
    subject = widgets.branch_file(1, "coverage.json", lowered(widgets, 1, covered_lines=7))
    call = replace(raising(widgets), subject=subject)
    closed = await gate(widgets).ask(call)
    assert closed.opening is Opening.CLOSED
    assert closed.reason == "coverage of widgets/part_1.py falls from 8/10 to 7/10 lines"
    assert (await gate(widgets, tolerance_lines=1).ask(call)).opening is Opening.OPEN


@pytest.mark.proves("E12")
async def test_a_touched_file_that_left_the_report_closes_the_gate_unless_it_is_deleted(widgets: Widgets) -> None:
    await ratchet(widgets).apply(raising(widgets))
    document = json.loads(lowered(widgets, 1))
    del document["files"]["widgets/part_1.py"]
    subject = widgets.branch_file(1, "coverage.json", json.dumps(document))
    closed = await gate(widgets).ask(replace(raising(widgets), subject=subject))
    assert closed.opening is Opening.CLOSED and "widgets/part_1.py is not in" in closed.reason

    widgets.branch_file(1, "x", "x")
    widgets._in_clone("rm", "--quiet", "widgets/part_1.py")
    widgets._in_clone("commit", "--quiet", "-m", "delete")
    widgets._in_clone("push", "--quiet", "origin", subject.branch)
    subject = replace(subject, head=widgets.git("rev-parse", "refs/heads/feature/1"))
    assert (await gate(widgets).ask(replace(raising(widgets), subject=subject))).opening is Opening.OPEN


@pytest.mark.proves("E12", "V2")
async def test_a_missing_report_closes_the_gate_and_an_unreadable_repository_is_unknown(widgets: Widgets) -> None:
    closed = await gate(widgets, reports=("nowhere.json",)).ask(raising(widgets))
    assert closed.opening is Opening.CLOSED and "nowhere.json" in closed.reason
    widgets.scenery.repository.rename(widgets.scenery.repository.with_name("away.git"))
    assert (await gate(widgets).ask(raising(widgets))).opening is Opening.UNKNOWN
