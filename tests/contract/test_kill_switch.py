"""
The switch, held to a recording: what the example host did before us, statement for statement and byte for byte (NFR-2).

Each version lives its day in a process of its own, where every connection's statements are heard.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from integrations.host.config import Scope
from integrations.host.earlier import AsBefore
from integrations.host.observe import ACTOR
from integrations.serve import serve
from integrations.settings import load
from journal.clock import this_process
from journal.errors import InvalidInputError
from journal.events import Reopened, Switched
from journal.journal import Journal, NewTask, Pending
from journal.ownership import Locks, lock_folder
from journal.pipeline import Edge, Pipeline
from journal.results import Advanced, Parked, Refused, Unavailable
from journal.words import Hold, Kind
from projections import all_views
from tests.contract.test_cli_writes import service
from tests.example_host import scenario
from tests.example_host.adopted import Orchestrator
from tests.example_host.before import create_app
from tests.example_host.record import RECORDED
from tests.hosting import OFF, ON, journal_of, rows, running, written

ROOT = Path(__file__).resolve().parents[2]
Recording = dict[str, list[str]]


def lived(version: str, folder: Path, **environment: str) -> Recording:
    """What a version did all day, started as a host is: with its environment."""
    folder.mkdir()
    given = {k: v for k, v in os.environ.items() if not k.startswith("ORCH_")} | environment
    command = [sys.executable, "-m", "tests.example_host.record", version, str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    seen: Recording = json.loads(done.stdout)
    return seen


def recorded() -> Recording:
    seen: Recording = json.loads(RECORDED.read_text())
    return seen


@pytest.mark.proves("NFR-2")
def test_the_recording_is_what_the_earlier_program_still_does(tmp_path: Path) -> None:
    assert lived("before", tmp_path / "before") == recorded()


@pytest.mark.proves("NFR-2", "FR-7", "TR-8")
@pytest.mark.parametrize(
    "environment",
    [
        {"ORCH_TRANSITION_JOURNAL_ENABLED": "false"},
        {"ORCH_TRANSITION_JOURNAL_ENABLED": "false", "ORCH_TRANSITION_JOURNAL_REPOS": "*"},
        {"ORCH_TRANSITION_JOURNAL_ENABLED": "true"},
        {"ORCH_TRANSITION_JOURNAL_REPOS": ""},
    ],
    ids=["off", "off-wins-over-repositories", "no-repository-is-named", "an-empty-list"],
)
def test_with_the_switch_off_statements_answers_and_files_are_the_recorded_ones(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    assert lived("adopted", tmp_path / "off", **environment) == recorded()


@pytest.mark.proves("FR-6", "FR-7")
async def test_with_the_switch_on_the_day_ends_the_same_and_answers_only_grow(tmp_path: Path) -> None:
    async with running(tmp_path, ON) as host:
        answers = await scenario.live(host, create_app(host))
    assert len(answers) == len(recorded()["answers"])
    for ours, theirs in zip(answers, recorded()["answers"], strict=True):
        said, was = (json.loads(answer.partition("] ")[2]) for answer in (ours, theirs))
        assert {name: said[name] for name in was} == was
    assert json.loads(answers[0].partition("] ")[2])["transition_ownership"]["enabled"] is True
    assert (tmp_path / "merged.ORCH-2.1").is_dir()


@pytest.mark.proves("FR-7")
async def test_a_repository_that_is_not_named_is_written_as_before_beside_one_that_is(tmp_path: Path) -> None:
    async with running(tmp_path, ON.model_copy(update={"transition_journal_repos": ("acme/widgets",)})) as host:
        host.create("IN-1", "acme/widgets", "feature/1")
        host.create("OUT-1", "acme/gears", "feature/2")
        moves = [
            await host.bridge.advance(task, repo=repo, expect="analysis", to="architecture", actor="worker")
            for task, repo in (("IN-1", "acme/widgets"), ("OUT-1", "acme/gears"))
        ]
        assert moves == [Advanced("IN-1", "analysis", "architecture", 1), AsBefore("OUT-1", "architecture")]
    assert rows(tmp_path, "SELECT id, stage FROM tasks") == [("IN-1", "architecture"), ("OUT-1", "architecture")]
    assert {task for (task,) in rows(tmp_path, "SELECT task FROM journal_events WHERE task <> ''")} == {"IN-1"}


@pytest.mark.proves("TR-8")
async def test_with_the_switch_off_the_reaper_goes_by_the_registry_in_memory_alone(tmp_path: Path) -> None:
    async with running(tmp_path, OFF) as host:
        host.create("T-1", "acme/widgets", "feature/1")
        # A lock of the days with the switch on, held by whoever: it is not consulted.
        left = Locks(host.path, this_process("a" * 32)).take_task("T-1", "worker", "left")
        assert left is not None
        assert host.bridge.claimable("T-1")
        job = await host.claim_next()
        assert job is not None
        assert host.bridge.is_alive("T-1") and await host.reap() == 0
        host.alive.clear()
        assert not host.bridge.is_alive("T-1") and await host.reap() == 1
        left.release()


# -- fails open where it may, closed where it must --------------------------------------------------------------------


@pytest.mark.proves("TR-9", "FR-7", "NFR-1")
async def test_a_journal_that_cannot_be_opened_stops_transitions_and_not_the_queue(tmp_path: Path) -> None:
    taken = Locks(tmp_path / "orchestrator.db", this_process("a" * 32)).take_writer("another process")
    assert taken is not None
    async with running(tmp_path, ON) as host:  # starting does not raise
        host.create("T-1", "acme/widgets", "feature/1")
        job = await host.claim_next()  # fails open
        assert job is not None and job["task"] == "T-1"
        answer = await host.bridge.advance(
            "T-1", repo="acme/widgets", expect="analysis", to="architecture", actor="worker"
        )
        assert isinstance(answer, Unavailable) and "another process" in answer.reason
        await host.finish(job)
        assert host.task("T-1")["stage"] == "analysis"  # fails closed: no plain UPDATE in its place
        assert await host.claim_next() is not None  # and nothing is forgotten
        block = (await host.queue())["transition_ownership"]
        assert block["enabled"] and "another process" in block["unavailable"]
        figures = await host.metrics()
        assert (figures["schema_version"], figures["journal_up"]) == (3, 0)
    taken.release()


# -- on again ---------------------------------------------------------------------------------------------------------


async def lives_with_the_switch_off(folder: Path, *statements: str) -> None:
    """A day without us: what the host writes meanwhile."""
    async with running(folder, OFF) as host:
        for statement in statements:
            host.db.execute(statement)


async def moved(host: Orchestrator, task: str, *stages: str) -> None:
    """Move a task from stage to stage through the bridge."""
    for to in stages:
        row = host.task(task)
        answer = await host.bridge.advance(task, repo=row["repo"], expect=row["stage"], to=to, actor="worker")
        assert isinstance(answer, Advanced), answer


@pytest.mark.proves("O7", "NFR-2")
async def test_switching_on_again_is_recorded_and_open_tasks_follow_where_the_host_went(tmp_path: Path) -> None:
    async with running(tmp_path, ON) as host:
        for task in ("STAYS", "MOVED", "ENDED", "GONE", "ODD"):
            host.create(task, "acme/widgets", "feature/1")
            await moved(host, task, "architecture")
    await lives_with_the_switch_off(
        tmp_path,
        "UPDATE tasks SET stage = 'review' WHERE id = 'MOVED'",
        "UPDATE tasks SET stage = 'done' WHERE id = 'ENDED'",
        "DELETE FROM jobs WHERE task = 'GONE'",
        "DELETE FROM tasks WHERE id = 'GONE'",
        "UPDATE tasks SET stage = 'on-the-moon' WHERE id = 'ODD'",
    )
    before = len(written(tmp_path))
    async with running(tmp_path, ON) as host:
        journal = journal_of(host)
        switched = [e for e in await journal.log.events(task="") if e.kind is Kind.SWITCHED]
        assert [e.draft.body for e in switched] == [Switched(True, "the switch is on again")]
        assert switched[0].position == before + 1  # before anything else

        states = {task: (await journal.stream(task)).state for task in ("STAYS", "MOVED", "ENDED", "GONE", "ODD")}
        assert (states["STAYS"].stage, states["STAYS"].hold) == ("architecture", Hold.NONE)
        assert (states["MOVED"].stage, states["MOVED"].generation, states["MOVED"].hold) == ("review", 2, Hold.NONE)
        assert states["ENDED"].hold is Hold.CANCELED
        assert (states["GONE"].hold, states["ODD"].hold) == (Hold.PARKED, Hold.PARKED)
        last = [e for e in await journal.events("MOVED") if isinstance(e.draft.body, Reopened)][-1]
        assert last.draft.actor == ACTOR
        await moved(host, "MOVED", "testing")

    async with running(tmp_path, ON) as host:  # no switch in between: nothing is recorded or observed again
        journal = journal_of(host)
        assert len([e for e in await journal.log.events(task="") if e.kind is Kind.SWITCHED]) == 1
        assert (await journal.stream("MOVED")).state.stage == "testing"


@pytest.mark.proves("O7")
async def test_an_effect_that_vanished_while_the_switch_was_off_is_left_to_a_person(tmp_path: Path) -> None:
    async with running(tmp_path, ON) as host:
        host.create("T-1", "acme/widgets", "feature/1", stage="deploy-staging")
        await moved(host, "T-1", "deploy")
    await lives_with_the_switch_off(tmp_path)
    (tmp_path / "merged.T-1.1").rmdir()
    async with running(tmp_path, ON) as host:
        journal = journal_of(host)
        assert (await journal.stream("T-1")).state.hold is Hold.PARKED
        answer = await host.bridge.advance("T-1", repo="acme/widgets", expect="deploy", to="done", actor="worker")
        assert isinstance(answer, Parked) and "merge_pr: absent" in answer.reason


@pytest.mark.proves("O7", "FR-7")
async def test_a_service_over_the_hosts_file_observes_it_before_it_drives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, ON) as host:
        for task in ("STAYS", "MOVED", "ODD"):
            host.create(task, "acme/widgets", "feature/1")
            await moved(host, task, "architecture")
    config = tmp_path / "journal.toml"
    monkeypatch.setenv("ORCH_TRANSITION_JOURNAL_ENABLED", "false")
    with pytest.raises(InvalidInputError, match="the host goes on by itself"):
        await serve(load(config), port=0)
    with closing(sqlite3.connect(tmp_path / "orchestrator.db", isolation_level=None)) as db:
        db.execute("UPDATE tasks SET stage = 'review' WHERE id = 'MOVED'")
        db.execute("UPDATE tasks SET stage = 'on-the-moon' WHERE id = 'ODD'")
    before = len(written(tmp_path))
    monkeypatch.setenv("ORCH_TRANSITION_JOURNAL_ENABLED", "true")
    monkeypatch.setenv("ORCH_TRANSITION_JOURNAL_REPOS", "*")
    with service(config):
        told = [("", "switched"), ("MOVED", "reopened")]
        told += [("ODD", kind) for kind in ("acquired", "parked", "released")]
        assert written(tmp_path)[before:] == told
    with service(config):
        assert written(tmp_path)[before:] == told, "no switch in between: nothing is recorded or observed again"


@pytest.mark.proves("NFR-2")
async def test_the_switch_off_leaves_no_trace_where_no_journal_was(tmp_path: Path) -> None:
    await lives_with_the_switch_off(tmp_path)
    assert not lock_folder(tmp_path / "orchestrator.db").exists()
    with closing(sqlite3.connect(tmp_path / "orchestrator.db")) as db:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE name LIKE 'journal%'")]
    assert names == []


@pytest.mark.proves("FR-7")
async def test_standing_alone_the_list_of_repositories_limits_who_is_opened_and_driven(tmp_path: Path) -> None:
    pipeline = Pipeline(("analysis", "done"), (Edge("analysis", "done"),), {})

    def opening(*repos: str) -> Pending[Journal]:
        takes = Scope(repos=frozenset(repos)).takes
        return Journal.open(tmp_path / "j.db", pipeline=pipeline, steps={}, projections=all_views(), takes=takes)

    async with opening("*") as journal:
        for task, repo in (("IN-1", "acme/widgets"), ("OUT-1", "acme/gears")):
            await journal.open_task(NewTask(task, repo, "feature/1"), actor="operator")
    async with opening("acme/widgets") as journal:
        answer = await journal.advance("OUT-1")
        assert isinstance(answer, Refused) and "ORCH_TRANSITION_JOURNAL_REPOS" in answer.reason
        assert isinstance(await journal.advance("IN-1"), Advanced)
        with pytest.raises(InvalidInputError, match="takes no part"):
            await journal.open_task(NewTask("OUT-2", "acme/gears", "feature/2"), actor="operator")
