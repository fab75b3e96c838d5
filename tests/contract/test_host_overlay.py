"""
The journal in a host's database: additive, in the host's journal mode, and one transaction with the host's stage.

The example host, its triggers and its file are real; other connections interfere with it the way a host's own would.
"""

from __future__ import annotations

import ast
import asyncio
import re
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from integrations.host.config import HostConfig, Scope
from integrations.host.table import HostTable
from integrations.settings import Environment, load
from integrations.wiring import build
from journal.errors import InvalidInputError, StoreUnavailableError
from journal.journal import Journal, NewTask
from journal.log.connection import guest_pragmas, open_writer
from journal.log.ground import wal_reset_bug
from journal.log.unit import Astray, Unit, Written
from journal.pipeline import Edge, Pipeline
from journal.results import Advanced, LostRace, Refused, Unavailable
from journal.results import Parked as ParkedResult
from journal.stream import Stream
from projections import all_views
from tests.builders import acquired
from tests.builders import opened as opened_draft
from tests.example_host.adopted import Orchestrator
from tests.hosting import ON, host_in, journal_of, rows, running, written

REPO = "acme/widgets"
PATH = Path("orchestrator.db")


async def move(host: Orchestrator, task: str, expect: str, to: str, actor: str = "worker") -> object:
    return await host.bridge.advance(task, repo=REPO, expect=expect, to=to, actor=actor)


def past_us(folder: Path, sql: str) -> None:
    """What some other program does to the host's file."""
    with closing(sqlite3.connect(folder / PATH, isolation_level=None)) as db:
        db.execute(sql)


def theirs(folder: Path) -> list[tuple[Any, ...]]:
    """Everything in the file's schema that is not ours, and the file's own settings."""
    schema = rows(folder, "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE tbl_name NOT LIKE 'journal%'")
    pragmas = ("application_id", "user_version", "journal_mode", "auto_vacuum", "page_size", "encoding")
    return sorted(schema, key=str) + [rows(folder, f"PRAGMA {name}")[0] for name in pragmas]


# -- additive ---------------------------------------------------------------------------------------------------------


@pytest.mark.proves("NFR-3")
async def test_adopting_a_database_again_and_again_leaves_the_hosts_objects_as_they_were(tmp_path: Path) -> None:
    before = host_in(tmp_path, ON)
    before.create("T-1", REPO, "feature/1")
    before.db.execute("PRAGMA user_version = 7")
    await before.stop()
    schema, data = theirs(tmp_path), rows(tmp_path, "SELECT * FROM tasks, jobs")
    ours: list[list[tuple[Any, ...]]] = []
    for _ in range(3):
        async with running(tmp_path):
            pass
        assert (theirs(tmp_path), rows(tmp_path, "SELECT * FROM tasks, jobs")) == (schema, data)
        ours.append(rows(tmp_path, "SELECT name, sql FROM sqlite_schema WHERE name LIKE 'journal%' ORDER BY 1"))
    assert ours[0] == ours[1] == ours[2] and ("journal_events" in {name for name, _ in ours[0]})


@pytest.mark.proves("NFR-3")
@pytest.mark.parametrize(
    ("named", "why"),
    [
        ({"table": "todo"}, "has no table todo"),
        ({"stage": "status", "repo": "project"}, "has no column status, project"),
        ({"id": "branch"}, "neither the primary key nor unique"),
    ],
)
async def test_a_table_that_is_not_what_was_named_is_refused_before_anything_is_made(
    tmp_path: Path, named: dict[str, str], why: str
) -> None:
    await host_in(tmp_path, ON).stop()
    config = HostConfig.model_validate({"db": tmp_path / PATH, **named})
    with pytest.raises(StoreUnavailableError, match=why):
        open_writer(config.db, HostTable(config))
    assert rows(tmp_path, "SELECT name FROM sqlite_schema WHERE name LIKE 'journal%'") == []


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    config = HostConfig(db=tmp_path / "none.db")
    with pytest.raises(StoreUnavailableError, match="name the host's database"):
        open_writer(config.db, HostTable(config))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.proves("R101")
@pytest.mark.parametrize(
    "name", ['tasks"; DROP TABLE tasks; --', "tasks x", "", "1st", "täsks", "t" * 65, "main.tasks"]
)
def test_a_name_that_is_no_plain_word_is_refused(name: str) -> None:
    for field in ("table", "id", "stage", "repo", "branch"):
        with pytest.raises(ValidationError):
            HostConfig.model_validate({"db": "x.db", field: name})


# -- the host's journal mode ------------------------------------------------------------------------------------------

FIXED, AFFECTED = ((3, 44, 6), (3, 50, 7), (3, 51, 3), (3, 52, 0)), ((3, 7, 0), (3, 40, 1), (3, 44, 5), (3, 51, 2))


@pytest.mark.proves("S1", "S4", "R86")
@pytest.mark.parametrize("mode", ["wal", "delete", "truncate", "persist", "memory", "off"])
def test_commits_are_made_durable_in_the_hosts_mode_or_the_file_is_refused(mode: str) -> None:
    for version in FIXED + AFFECTED:
        lasts = mode in ("delete", "truncate", "persist") or (mode == "wal" and version in FIXED)
        if not lasts:
            with pytest.raises(StoreUnavailableError, match="can lose"):
                guest_pragmas(PATH, mode, version)
            continue
        asked = {name: expected for name, _, expected in guest_pragmas(PATH, mode, version)}
        assert asked["synchronous"] == (2 if mode == "wal" else 3)
        assert "journal_mode" not in asked


@pytest.mark.proves("S1", "S4", "R86", "TR-9")
@pytest.mark.parametrize("mode", ["wal", "delete", "truncate", "persist"])
async def test_the_hosts_journal_mode_stays_whatever_it_is(tmp_path: Path, mode: str) -> None:
    before = host_in(tmp_path, ON)
    before.create("T-1", REPO, "feature/1")
    before.db.execute(f"PRAGMA journal_mode = {mode}")
    await before.stop()
    async with running(tmp_path) as host:
        found = host.db.execute("PRAGMA journal_mode").fetchone()[0]
        assert found == (mode if mode == "wal" else "delete")  # only WAL is kept in the file; the rest is by connection
        answer = await move(host, "T-1", "analysis", "architecture")
        if found == "wal" and wal_reset_bug():
            assert isinstance(answer, Unavailable) and "WAL mode" in answer.reason
            assert host.task("T-1")["stage"] == "analysis"
            return
        assert isinstance(answer, Advanced)
        writer = journal_of(host).log.writer
        assert writer is not None
        assert writer._db.execute("PRAGMA synchronous").fetchone()[0] == (2 if found == "wal" else 3)
    assert rows(tmp_path, "PRAGMA journal_mode") == [(found,)]


@pytest.mark.proves("S1", "NFR-3")
def test_whoever_forgets_to_say_that_a_file_is_a_hosts_does_not_change_its_mode(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / PATH)) as db:
        db.execute("CREATE TABLE tasks (id TEXT PRIMARY KEY)")
    for _ in range(2):
        with closing(open_writer(tmp_path / PATH)) as db:
            assert db.execute("PRAGMA synchronous").fetchone() == (3,)
    assert rows(tmp_path, "PRAGMA journal_mode") == [("delete",)]
    with closing(open_writer(tmp_path / "own.db")) as db:  # our own file is in WAL
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


# -- one transaction with the host's stage ----------------------------------------------------------------------------


@pytest.mark.proves("FR-2", "L1")
async def test_the_hosts_stage_moves_with_the_journals_and_its_own_trigger_fires_once(tmp_path: Path) -> None:
    async with running(tmp_path) as host:
        host.create("T-1", REPO, "feature/1")
        assert await move(host, "T-1", "analysis", "architecture") == Advanced("T-1", "analysis", "architecture", 1)
        assert rows(tmp_path, "SELECT stage, moves FROM tasks") == [("architecture", 1)]
        assert [k for t, k in written(tmp_path) if t] == ["opened", "acquired", "stage_moved", "released"]


@pytest.mark.proves("FR-2")
async def test_a_trigger_of_the_hosts_that_would_call_itself_does_not(tmp_path: Path) -> None:
    async with running(tmp_path) as host:
        host.create("T-1", REPO, "feature/1")
        past_us(tmp_path, "DROP TRIGGER tasks_count_moves")
        past_us(
            tmp_path,
            "CREATE TRIGGER touched AFTER UPDATE ON tasks "
            "BEGIN UPDATE tasks SET moves = moves + 1 WHERE id = NEW.id; END",
        )
        assert isinstance(await move(host, "T-1", "analysis", "architecture"), Advanced)
        assert rows(tmp_path, "SELECT moves FROM tasks") == [(1,)]


@pytest.mark.proves("FR-2", "TR-4", "TR-5")
async def test_whoever_lost_the_hosts_stage_writes_nothing_and_runs_no_effect(tmp_path: Path) -> None:
    async with running(tmp_path) as host:
        host.create("T-1", REPO, "feature/1", stage="testing")
        assert isinstance(await move(host, "T-1", "testing", "deploy-staging"), Advanced)
        past_us(tmp_path, "UPDATE tasks SET stage = 'review'")  # a hidden path, past everybody
        before = written(tmp_path)
        answer = await move(host, "T-1", "deploy-staging", "deploy")
        assert isinstance(answer, LostRace) and "in stage 'review'" in answer.reason
        assert not (tmp_path / "merged.T-1.1").exists()
        assert rows(tmp_path, "SELECT stage FROM tasks") == [("review",)]
        # Nothing of the loser's; then it is parked, so that a person hears of it.
        assert [k for _, k in written(tmp_path)[len(before) :]] == ["acquired", "parked", "released"]
        # The person's word, and the journal goes on from there.
        reopened = await journal_of(host).reopen("T-1", stage="review", reason="it was me", actor="operator")
        assert not isinstance(reopened, (Refused, Unavailable))
        assert isinstance(await move(host, "T-1", "review", "testing"), Advanced)
        assert rows(tmp_path, "SELECT stage FROM tasks") == [("testing",)]


@pytest.mark.proves("FR-2", "S7")
async def test_one_refused_unit_of_a_batch_hurts_no_other(tmp_path: Path) -> None:
    async with running(tmp_path) as host:
        journal, names = journal_of(host), [f"T-{n}" for n in range(6)]
        for name in names:
            host.create(name, REPO, "feature/1", stage="analysis")
            await journal.open_task(NewTask(name, REPO, "feature/1", stage="analysis"), actor="worker")
        past_us(tmp_path, "UPDATE tasks SET stage = 'review' WHERE id IN ('T-1', 'T-4')")
        past_us(
            tmp_path,
            "CREATE TRIGGER never BEFORE UPDATE ON tasks WHEN NEW.id = 'T-2' AND NEW.stage = 'architecture' "
            "BEGIN SELECT RAISE(ABORT, 'not this one'); END",
        )
        with closing(sqlite3.connect(tmp_path / PATH, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # all six wait behind it, and go into one batch
            runs = [asyncio.create_task(move(host, name, "analysis", "architecture")) for name in names]
            await asyncio.sleep(0.3)
            other.execute("COMMIT")
        answers = dict(zip(names, await asyncio.gather(*runs), strict=True))
        assert {name for name, answer in answers.items() if isinstance(answer, Advanced)} == {"T-0", "T-3", "T-5"}
        assert isinstance(refused := answers["T-2"], LostRace) and "not this one" in refused.reason
        stages = dict(rows(tmp_path, "SELECT id, stage FROM tasks"))
        assert {stages[n] for n in ("T-0", "T-3", "T-5")} == {"architecture"} and stages["T-2"] == "analysis"


@pytest.mark.proves("FR-2", "S7")
async def test_units_of_one_transaction_are_compared_each_by_itself(tmp_path: Path) -> None:
    async with running(tmp_path) as host:
        journal = journal_of(host)
        host.create("T-1", REPO, "feature/1", stage="deploy-staging")
        host.create("T-2", REPO, "feature/1", stage="analysis")
        answers = await asyncio.gather(
            *(journal.log.append(Unit(Stream(task), (opened_draft(),))) for task in ("T-1", "T-2", "T-3"))
        )
        assert [type(answer) for answer in answers] == [Written, Astray, Astray]
        assert {t for t, _ in written(tmp_path)} == {"", "T-1"}


@pytest.mark.proves("FR-2", "TR-3")
async def test_a_stage_that_the_host_moved_during_the_effect_doubles_nothing(tmp_path: Path) -> None:
    sets = (
        "import os, sqlite3, sys; os.mkdir(sys.argv[1]); "
        "sqlite3.connect('orchestrator.db', isolation_level=None).execute(\\\"UPDATE tasks SET stage = 'review'\\\")"
    )
    change = f'[{sys.executable!r}, "-c", "{sets}", "merged.{{task}}.{{generation}}"]'.replace("'", '"', 2)
    async with running(tmp_path, ON, **{'["mkdir", "merged.{task}.{generation}"]': change}) as host:
        host.create("T-1", REPO, "feature/1", stage="deploy-staging")
        answer = await move(host, "T-1", "deploy-staging", "deploy")
        assert isinstance(answer, LostRace)
        assert rows(tmp_path, "SELECT stage FROM tasks") == [("review",)]
        kinds = [k for t, k in written(tmp_path) if t]
        assert "applied" not in kinds and "stage_moved" not in kinds and kinds[-2:] == ["parked", "released"]
        # The row is put right, the task is freed: what is there is found, not made again.
        past_us(tmp_path, "UPDATE tasks SET stage = 'deploy-staging'")
        await journal_of(host).resume("T-1", reason="put right")
        assert isinstance(await move(host, "T-1", "deploy-staging", "deploy"), Advanced)
        kinds = [k for t, k in written(tmp_path) if t]
        assert (kinds.count("intended"), kinds.count("applied")) == (1, 1)
        assert rows(tmp_path, "SELECT stage FROM tasks") == [("deploy",)]


# -- the bridge -------------------------------------------------------------------------------------------------------


@pytest.mark.proves("FR-2", "FR-7")
async def test_only_the_stage_that_the_caller_believes_in_is_left(tmp_path: Path) -> None:
    async with running(tmp_path) as host:
        host.create("T-1", REPO, "feature/1")
        answers = await asyncio.gather(
            *(move(host, "T-1", "analysis", "architecture", a) for a in ("worker", "reaper"))
        )
        assert sum(isinstance(answer, Advanced) for answer in answers) == 1
        assert isinstance(await move(host, "T-1", "analysis", "architecture"), LostRace)
        assert rows(tmp_path, "SELECT stage, moves FROM tasks") == [("architecture", 1)]
        assert isinstance(await move(host, "NONE", "analysis", "architecture"), Refused)
        assert isinstance(await move(host, "../etc", "analysis", "architecture"), Refused)
        assert isinstance(await move(host, "T-1", "architecture", "on-the-moon"), Refused)


@pytest.mark.proves("FR-2", "E8")
async def test_going_back_is_a_new_generation_until_something_irreversible_happened(tmp_path: Path) -> None:
    async with running(tmp_path) as host:
        host.create("T-1", REPO, "feature/1", stage="review")
        assert isinstance(await move(host, "T-1", "review", "development", "webhook"), Advanced)
        assert (await journal_of(host).stream("T-1")).state.generation == 2
        for expect, to in (("development", "review"), ("review", "testing"), ("testing", "deploy-staging")):
            assert isinstance(await move(host, "T-1", expect, to), Advanced)
        assert isinstance(await move(host, "T-1", "deploy-staging", "deploy"), Advanced)
        answer = await move(host, "T-1", "deploy", "review", "webhook")
        assert isinstance(answer, Refused) and "irreversible" in answer.reason
        assert rows(tmp_path, "SELECT stage FROM tasks") == [("deploy",)]


@pytest.mark.proves("FR-3", "FR-4", "TR-3", "TR-8")
async def test_a_host_that_died_in_the_middle_of_its_merge_comes_back_and_finishes_it_once(tmp_path: Path) -> None:
    kills = "import os, signal, sys; os.mkdir(sys.argv[1]); os.kill(os.getppid(), signal.SIGKILL)"
    change = f'["{sys.executable}", "-c", "{kills}", "merged.{{task}}.{{generation}}"]'
    host = host_in(tmp_path, ON, **{'["mkdir", "merged.{task}.{generation}"]': change})
    host.create("T-1", REPO, "feature/1", stage="deploy-staging")
    await host.stop()
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.hosting", str(tmp_path), "T-1", "deploy-staging", "deploy", cwd=Path.cwd()
    )
    assert await asyncio.wait_for(child.wait(), 60) == -signal.SIGKILL
    assert rows(tmp_path, "SELECT stage FROM tasks") == [("deploy-staging",)]

    async with running(tmp_path) as host:
        assert host.bridge.claimable("T-1")  # the kernel dropped the lock with the process
        async with asyncio.timeout(60):
            while host.task("T-1")["stage"] != "deploy":  # noqa: ASYNC110 - recovery tells nobody but the file
                await asyncio.sleep(0.05)
    kinds = [k for t, k in written(tmp_path) if t]
    assert (kinds.count("intended"), kinds.count("applied"), kinds.count("stage_moved")) == (1, 1, 1)
    assert [p.name for p in tmp_path.glob("merged.*")] == ["merged.T-1.1"]


@pytest.mark.proves("TR-9", "NFR-1")
async def test_a_host_that_cannot_take_a_move_in_does_not_end_the_looking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def clumsy(host: Orchestrator, task: str, stage: str) -> None:
        told.append(task)
        raise sqlite3.OperationalError("database is locked")

    monkeypatch.setattr(Orchestrator, "moved", clumsy)
    async with running(tmp_path) as host:
        journal = journal_of(host)
        for task in ("T-1", "T-2"):
            host.create(task, REPO, "feature/1", stage="deploy-staging")
            await journal.open_task(NewTask(task, REPO, "feature/1", stage="deploy-staging"), actor="worker")
            stream = await journal.stream(task)
            edge = journal.pipeline.route(stream.subject).edge("deploy-staging")
            assert edge is not None
            await journal.log.append(Unit(stream, (acquired(edge),)))  # a term without an end
            async with asyncio.timeout(60):
                while told[-1:] != [task]:  # noqa: ASYNC110 - the looking tells nobody else
                    await asyncio.sleep(0.05)
        assert rows(tmp_path, "SELECT stage FROM tasks") == [("deploy",), ("deploy",)]


@pytest.mark.proves("FR-5", "NFR-5")
async def test_while_a_transition_holds_the_task_its_jobs_are_not_claimed(tmp_path: Path) -> None:
    async with running(tmp_path) as host:
        host.create("T-1", REPO, "feature/1")
        lock = journal_of(host).locks.take_task("T-1", "operator", "by hand")
        assert lock is not None
        assert host.bridge.is_alive("T-1") and await host.claim_next() is None
        block = (await host.queue())["transition_ownership"]
        assert block["held"] == []  # the lock alone is no ownership yet
        lock.release()
        assert await host.claim_next() is not None


@pytest.mark.proves("FR-6")
async def test_a_parked_task_of_the_hosts_is_shown_in_its_queue(tmp_path: Path) -> None:
    async with running(tmp_path) as host:
        host.create("T-1", REPO, "feature/1")
        await move(host, "T-1", "analysis", "architecture")
        past_us(tmp_path, "UPDATE tasks SET stage = 'review'")
        await move(host, "T-1", "architecture", "development")
        answer = await host.queue()
        assert [each["task"] for each in answer["transition_ownership"]["parked"]] == ["T-1"]
        assert (await host.metrics())["journal_parked"] == 1
        past_us(tmp_path, "UPDATE tasks SET stage = 'architecture'")
        assert isinstance(await move(host, "T-1", "architecture", "development"), ParkedResult)


async def test_a_host_that_counts_its_tasks_is_adopted_too(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / PATH)) as db:
        db.execute("CREATE TABLE tickets (nr INTEGER PRIMARY KEY, status TEXT, project TEXT, ref TEXT)")
        db.execute("INSERT INTO tickets VALUES (7, 'analysis', 'acme/widgets', 'feature/7')")
        db.commit()
    config = HostConfig(db=tmp_path / PATH, table="tickets", id="nr", stage="status", repo="project", branch="ref")
    table, pipeline = HostTable(config), Pipeline(("analysis", "done"), (Edge("analysis", "done"),), {})
    async with Journal.open(
        config.db, pipeline=pipeline, steps={}, projections=all_views(), companion=table
    ) as journal:
        await journal.open_task(NewTask("7", REPO, "feature/7"), actor="worker")
        assert isinstance(await journal.advance("7", expect="analysis"), Advanced)
        with pytest.raises(InvalidInputError, match="no such task"):
            await journal.open_task(NewTask("8", REPO, "feature/8"), actor="worker")
    assert rows(tmp_path, "SELECT nr, status FROM tickets") == [(7, "done")]


HOW_TO = Path(__file__).resolve().parents[2] / "docs/how-to/adopt-in-your-orchestrator.md"


def test_the_how_to_page_shows_a_configuration_that_works_and_python_that_is_some(tmp_path: Path) -> None:
    blocks = re.findall(r"```(\w+)\n(.*?)```", HOW_TO.read_text(), re.DOTALL)
    toml = [text for language, text in blocks if language == "toml"]
    (tmp_path / "journal.toml").write_text("\n".join(toml))
    parts = build(load(tmp_path / "journal.toml", environment=ON))
    edge = parts.pipeline.edge("deploy-staging")
    assert edge is not None and edge.steps == ("merge_pr",)
    snippets = [text for language, text in blocks if language == "python"]
    assert len(snippets) >= 3
    for snippet in snippets:
        compile(snippet, "how-to", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


# -- scope ------------------------------------------------------------------------------------------------------------


@pytest.mark.proves("FR-7", "NFR-8")
def test_unset_repositories_are_all_when_standing_alone_and_none_in_a_host(tmp_path: Path) -> None:
    alone, hosted = tmp_path / "alone.toml", tmp_path / "hosted.toml"
    alone.write_text('[journal]\ndb = "j.db"\n')
    hosted.write_text('[host]\ndb = "orchestrator.db"\n')
    unset, named = Environment(), Environment(transition_journal_repos=(REPO,))
    assert load(alone, environment=unset).scope.takes(REPO)
    assert load(hosted, environment=unset).scope.empty
    for file in (alone, hosted):
        scope = load(file, environment=named).scope
        assert scope.takes(REPO) and not scope.takes("acme/gears")
    assert load(hosted, environment=unset).db == tmp_path / PATH
    assert not Scope(enabled=False, repos=frozenset({"*"})).takes(REPO)
