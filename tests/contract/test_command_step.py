"""`command` steps with real programs: what their exit codes claim, and what they never can (E4, E6, V2, R100)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from pydantic import ValidationError

from integrations.command import CommandConfig, CommandStep, FenceNotInstalledError
from journal.errors import PipelineError
from journal.ports import Anchor, Call, Subject
from journal.words import Fact, Guard, Outcome, evidence

SHA = "a" * 40


@dataclass
class Term:
    fd: int

    def child_started(self, group: int) -> None: ...
    def child_ended(self, group: int) -> None: ...


class Waits:
    """A clock that records its waits; no time passes."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now_us(self) -> int:
        return 0

    def monotonic_s(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.fixture
def call(tmp_path: Path) -> Iterator[Call]:
    fd = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    yield Call(
        journal_id="j" * 32,
        subject=Subject(task="ORCH-1", repo="acme/widgets", branch="feature/x", head=SHA),
        generation=2,
        step="publish",
        epoch=3,
        attempt=1,
        budget_s=30,
        term=Term(fd),
        outcomes=MappingProxyType({"merge_pr": evidence(landed="b" * 40)}),
    )
    os.close(fd)


def step(clock: Waits | None = None, **config: Any) -> CommandStep:
    base: dict[str, Any] = {"apply": ("true",), "probe": ("true",), "guard": "exclusive"}
    return CommandStep("publish", CommandConfig.model_validate(base | config), clock or Waits())


def python(code: str, *args: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code, *args)


@pytest.mark.proves("V2", "V3")
@pytest.mark.parametrize(
    ("code", "fact"),
    [(0, Fact.OURS), (10, Fact.ABSENT), (11, Fact.OTHERS), (12, Fact.CONFLICT)]
    + [(code, Fact.UNKNOWN) for code in (1, 2, 9, 13, 126, 127, 128, 255)],
)
async def test_only_the_probes_own_codes_are_answers(call: Call, code: int, fact: Fact) -> None:
    assert (await step(probe=python(f"raise SystemExit({code})")).probe(call)).fact is fact


@pytest.mark.proves("V3")
async def test_a_probe_that_hangs_dies_or_is_missing_says_unknown(call: Call) -> None:
    hanging = step(probe=("sleep", "600"), probe_budget_s=0.3)
    killed = step(probe=python("import os; os.kill(os.getpid(), 9)"))
    missing = step(probe=("/nonexistent/probe",))
    for asked in (hanging, killed, missing):
        assert (await asked.probe(call)).fact is Fact.UNKNOWN


@pytest.mark.proves("E4")
async def test_a_blind_step_without_a_probe_knows_nothing(call: Call) -> None:
    assert (await step(guard="blind", probe=(), policy="at-most-once").probe(call)).fact is Fact.UNKNOWN


@pytest.mark.proves("E6")
@pytest.mark.parametrize(
    ("argv", "outcome"),
    [
        (("true",), Outcome.APPLIED),
        (python("raise SystemExit(75)"), Outcome.REJECTED),
        (python("raise SystemExit(1)"), Outcome.UNKNOWN),
        (python("import os; os.kill(os.getpid(), 15)"), Outcome.UNKNOWN),
        (("/nonexistent/program",), Outcome.REJECTED),
    ],
)
async def test_everything_but_success_a_listed_refusal_and_a_failed_start_is_unknown(
    call: Call, argv: tuple[str, ...], outcome: Outcome
) -> None:
    assert (await step(apply=argv, rejected_exit=[75]).apply(call)).outcome is outcome


@pytest.mark.proves("E6", "E9")
async def test_a_command_killed_by_its_budget_is_in_doubt_whatever_it_did(call: Call, tmp_path: Path) -> None:
    acts = python("import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(600)", str(tmp_path / "it"))
    reply = await step(apply=acts, rejected_exit=[75]).apply(replace(call, budget_s=1.5))
    assert reply.outcome is Outcome.UNKNOWN and ("timed_out", True) in reply.seen
    assert (tmp_path / "it").exists()


FLED = "import subprocess, sys; subprocess.Popen(['sleep', '5'], start_new_session=True); sys.exit(75)"


@pytest.mark.proves("E6")
async def test_a_refusal_is_no_promise_while_a_descendant_lives_on(call: Call) -> None:
    reply = await step(apply=python(FLED), rejected_exit=[75]).apply(call)
    assert reply.outcome is Outcome.UNKNOWN and ("left_behind", True) in reply.seen


TELL = """
import json, os, sys
names = ["KEY", "FENCE", "JOURNAL", "TASK", "CITES"]
print(json.dumps({n: os.environ["TRANSITION_" + n] for n in names} | {"args": " ".join(sys.argv[1:])}))
print(json.dumps(sorted(os.environ)), file=sys.stderr)
"""


@pytest.mark.proves("F3", "A4")
async def test_key_fence_journal_and_citation_travel_to_the_command(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNASKED_SECRET", "hunter2")
    told = step(
        apply=python(TELL + "assert 'UNASKED_SECRET' not in os.environ", "{key}", "to={landed}", "{merge_pr.landed}")
    )
    reply = await told.apply(replace(call, anchor=Anchor(7, "c" * 64)))
    assert reply.outcome is Outcome.APPLIED
    assert dict(reply.seen) | {"args": "", "source": ""} == {
        "KEY": "ORCH-1/2/publish",
        "FENCE": "3.1",
        "JOURNAL": "j" * 32,
        "TASK": "ORCH-1",
        "CITES": f"7:{'c' * 64}",
        "args": "",
        "exit": 0,
        "source": "",
    }
    assert dict(reply.seen)["args"] == f"ORCH-1/2/publish to={'b' * 40} {'b' * 40}"


@pytest.mark.proves("R100")
@pytest.mark.parametrize("branch", ["--upload-pack=x", "-rf", "; touch it", "$(touch it)", "a b"])
async def test_a_value_never_becomes_an_option_nor_code(call: Call, branch: str, tmp_path: Path) -> None:
    hostile = replace(call, subject=replace(call.subject, branch=branch))
    echo = step(apply=python("import sys; print(sys.argv[1:])", "{branch}"), cwd=str(tmp_path))
    reply = await echo.apply(hostile)
    if branch.startswith("-"):
        assert reply.outcome is Outcome.REJECTED
    else:
        assert dict(reply.seen)["said"] == f"[{branch!r}]"
    assert not (tmp_path / "it").exists()


@pytest.mark.proves("R100")
async def test_a_missing_value_stops_the_command_before_it_starts(call: Call, tmp_path: Path) -> None:
    touching = step(apply=("touch", str(tmp_path / "it"), "{digest}"), probe=("echo", "{digest}"))
    assert (await touching.apply(call)).outcome is Outcome.REJECTED
    assert (await touching.probe(call)).fact is Fact.UNKNOWN
    assert not (tmp_path / "it").exists()


@pytest.mark.proves("R101", "R102", "L6")
@pytest.mark.parametrize(
    ("printed", "seen"),
    [
        ('{"n": 1, "ratio": 0.5, "ok": true, "none": null}', {"n": 1, "ratio": "0.5", "ok": True, "none": None}),
        ('{"big": 9223372036854775808}', {"big": "9223372036854775808"}),
        ('{"s": "\\ud800\\u0000x"}', {"s": "? x"}),
        ('{"exit": 5, "source": "me"}', {}),
        ('{"nested": {}}', {"said": '{"nested": {}}'}),
        ("first\nsecond", {"said": "first"}),
        ("[" * 100_000, {"said": "[" * 500}),
    ],
)
async def test_what_a_probe_prints_becomes_storable_evidence(call: Call, printed: str, seen: dict[str, Any]) -> None:
    found = await step(probe=("printf", "%s", printed)).probe(call)
    assert dict(found.seen) == seen | {"source": "command", "exit": 0}


@pytest.mark.proves("V4")
async def test_a_fence_that_could_not_be_installed_ends_the_run(call: Call, tmp_path: Path) -> None:
    await step(guard="fenced", quiesce=("touch", str(tmp_path / "fence-{epoch}.{attempt}"))).quiesce(call)
    assert (tmp_path / "fence-3.1").exists()
    for failing in (("false",), ("/nonexistent/fence",), ("sleep", "600")):
        with pytest.raises(FenceNotInstalledError):
            await step(guard="fenced", quiesce=failing).quiesce(replace(call, budget_s=0.5))


@pytest.mark.proves("V4")
async def test_a_probed_step_waits_for_its_drain(call: Call) -> None:
    clock = Waits()
    await step(clock, guard="probed", drain_s=45).quiesce(call)
    assert clock.slept == [45]


@pytest.mark.proves("E4", "E8")
@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"guard": "blind", "probe": ()}, "at-most-once"),
        ({"guard": "exclusive", "probe": ()}, "needs a `probe`"),
        ({"guard": "fenced"}, "needs `quiesce`"),
        ({"guard": "probed"}, "drain_s"),
        ({"guard": "awaited"}, "only asks"),
        ({"apply": ()}, "`apply` is missing"),
        ({"apply": ("{task}",)}, "program"),
        ({"absent_exit": 11}, "absent_exit"),
        ({"absent_exit": 127}, "absent_exit"),
        ({"rejected_exit": [0]}, "rejected_exit"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_definition_that_cannot_work_is_refused_with_its_reason(config: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        step(**config)


def test_a_placeholder_that_nothing_can_fill_is_refused_and_foreign_braces_are_left_alone() -> None:
    with pytest.raises(PipelineError, match=r"unknown placeholder \{taks\}"):
        step(apply=("echo", "{taks}"))
    step(apply=("awk", "{print $1}", '{"json": 1}'))


def test_undeclared_is_blind_and_irreversible() -> None:
    traits = CommandStep("x", CommandConfig(apply=("true",), probe=("true",)), Waits()).traits
    assert traits.guard is Guard.BLIND and traits.irreversible and not traits.adopts


def test_an_absent_exit_of_one_is_allowed_with_a_warning() -> None:
    assert CommandConfig(apply=("true",), probe=("true",), absent_exit=1).warnings()
    assert not CommandConfig(apply=("true",), probe=("true",)).warnings()
