"""Old files and new ones: every released schema is read and continued, a newer version's is left to it (L4)."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from integrations.cli.app import main
from integrations.worker import Dispatcher
from journal import Journal, advance_stage
from journal.chain import hash_body, header, link
from journal.codec import SCHEMAS, UPCASTERS
from journal.errors import InadmissibleError, NewerSchemaError
from journal.events import Draft, Resumed, Unread
from journal.log.connection import open_writer
from journal.log.offline import open_evidence
from journal.log.rows import INSERT
from journal.log.schema import SCHEMA_NUMBER
from journal.log.unit import Unit
from journal.results import Advanced, Parked
from journal.words import Hold, Kind
from projections import all_views
from projections.base import ask
from projections.lookup import place_of
from recovery.plan import make_plan
from recovery.verify import verify
from tests.acting import desk, three_stages
from tests.contract.test_cli_writes import service
from tests.lived import ROOT, STEPS, World, pipeline

GOLDEN = sorted((ROOT / "tests" / "golden").glob("schema-*.sqlite"))
TRACED = ROOT / "tests" / "golden" / "traced.sqlite"


def copied(golden: Path, folder: Path) -> Path:
    return Path(shutil.copyfile(golden, folder / "j.db"))


def rows(path: Path) -> list[Any]:
    with open_evidence(path) as db:
        return db.execute("SELECT * FROM journal_events ORDER BY position").fetchall()


def findings(path: Path) -> list[str]:
    with open_evidence(path) as db:
        return [f"{v.invariant} {v.detail}" for v in verify(db, projections=all_views(), deep=True).violations]


@pytest.mark.proves("L4", "NFR-3")
def test_every_schema_that_was_ever_written_has_its_golden_journal() -> None:
    assert [path.name for path in GOLDEN] == [f"schema-{n}.sqlite" for n in range(1, SCHEMA_NUMBER + 1)]


@pytest.mark.proves("L4", "NFR-3", "A3")
@pytest.mark.parametrize("golden", [*GOLDEN, TRACED], ids=lambda path: path.stem)
async def test_a_journal_of_an_older_version_is_read_verified_and_continued(golden: Path, tmp_path: Path) -> None:
    path = copied(golden, tmp_path)
    before, bytes_before = rows(path), path.read_bytes()
    assert findings(path) == [] and path.read_bytes() == bytes_before  # looking at it migrates nothing
    shapes = {row[6] for row in before if row[5] == "acquired"}  # kind and schema
    assert shapes == {2 if golden == TRACED else 1}
    world = World()
    world.fates = {}  # the forge is back
    steps = dict.fromkeys(STEPS, world)
    async with Journal.open(path, pipeline=pipeline(), steps=steps, projections=all_views()) as journal:
        assert (await journal.stream("T-1")).state.stage == "deploy"
        assert (await journal.stream("T-3")).state.hold is Hold.PARKED
        assert isinstance(await advance_stage(journal, "T-5"), Advanced)
        assert (await journal.stream("T-5")).state.stage == "deploy"
    after = rows(path)
    assert after[: len(before)] == before and len(after) > len(before)
    assert findings(path) == []


@pytest.mark.proves("L4", "R66")
def test_a_file_of_a_newer_schema_is_read_and_not_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = copied(GOLDEN[-1], tmp_path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE journal_of_tomorrow (x)")
        db.execute("INSERT INTO journal_migrations VALUES (?, 'tomorrow')", (SCHEMA_NUMBER + 1,))
        db.commit()
    before = path.read_bytes()

    def cli(*argv: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["--db", str(path), *argv])
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out + said.err

    for reads in (("inspect", "T-1"), ("explain", "T-3"), ("log",), ("verify",), ("queue",)):
        code, said = cli(*reads)
        assert code == 0, (reads, said)
    code, said = cli("doctor")
    assert code == 1 and f"{SCHEMA_NUMBER + 1}, this program knows {SCHEMA_NUMBER}" in " ".join(said.split())
    code, said = cli("pause", "T-7", "--reason", "x")
    assert code == 4 and "install the newer version" in said
    with pytest.raises(NewerSchemaError):
        open_writer(path)
    assert path.read_bytes() == before


@pytest.mark.proves("L4", "R66", "O1")
def test_an_upgrade_that_migrated_and_was_rolled_back_leaves_a_working_service_once_the_backup_is_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The backup that the how-to begins with, a deploy of tomorrow that migrates, its rollback, and the way back."""
    config, backup = tmp_path / "journal.toml", tmp_path / "before.db"

    def cli(*argv: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["--config", str(config), *argv])
        said = capsys.readouterr()
        return int(ended.value.code or 0), said.out + said.err

    with pytest.raises(SystemExit):
        main(["init", str(tmp_path)])
    assert cli("open", "T-1", "--repo", "acme/widgets", "--branch", "f")[0] == 0
    assert cli("backup", str(backup), "--verify")[0] == 0
    with closing(
        sqlite3.connect(tmp_path / "journal.db")
    ) as db:  # what tomorrow's service did before it was called back
        db.execute("CREATE TABLE journal_of_tomorrow (x)")
        db.execute("INSERT INTO journal_migrations VALUES (?, 'tomorrow')", (SCHEMA_NUMBER + 1,))
        db.commit()
    code, said = cli("serve", "--port", "0")
    assert code == 4 and "install the newer version" in said, said
    assert cli("queue")[0] == 0, "audits go on meanwhile"
    code, said = cli("restore", str(backup))
    assert code == 0, said
    with service(config):
        assert cli("advance", "T-1")[0] == 0
        assert cli("verify")[0] == 0


# -- events of tomorrow ----------------------------------------------------------------------------------------------


def foreign(path: Path, task: str, kind: str, schema: int, body: dict[str, Any]) -> None:
    """Append what a newer version would, past this program's writer and within the table's own rules."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        position, prev = db.execute(
            "SELECT position + 1, hash FROM journal_events ORDER BY position DESC LIMIT 1"
        ).fetchone()
        version, generation, epoch = db.execute(
            "SELECT version + 1, generation, epoch FROM journal_events WHERE task = ? ORDER BY version DESC LIMIT 1",
            (task,),
        ).fetchone()
        text = json.dumps(body, sort_keys=True, separators=(",", ":"))
        digest = hash_body(text)
        head = header(position, task, version, generation, epoch, kind, schema, "", 0, "", "tomorrow", 1)
        row = (position, task, version, generation, epoch, kind, schema, "", 0, "", "tomorrow", text, digest, 1, prev)
        db.execute(INSERT, (*row, link(prev, digest, head)))


@pytest.mark.proves("L4")
@pytest.mark.parametrize("folded", [False, True], ids=["views behind", "views of tomorrow"])
async def test_an_event_kind_of_tomorrow_parks_its_task_and_harms_no_other(tmp_path: Path, folded: bool) -> None:
    db = tmp_path / "j.db"
    async with desk(tmp_path, three_stages("auto", lane="merge:{repo}")) as at:
        for task in ("T-1", "T-2"):
            await at.open(task, stage="ship")
    foreign(db, "T-1", "blessed", 1, {"by": "tomorrow"})
    if folded:  # the newer version kept the views too: here the task looks free
        with closing(sqlite3.connect(db, isolation_level=None)) as opened:
            opened.execute(
                "UPDATE journal_projections SET (position, hash) = "
                "(SELECT position, hash FROM journal_events ORDER BY position DESC LIMIT 1)"
            )
    stored = rows(db)
    async with desk(tmp_path, three_stages("auto", lane="merge:{repo}")) as at:
        stream = await at.journal.stream("T-1")
        assert stream.state.hold is Hold.PARKED and "blessed" in stream.reason
        assert isinstance((await at.events("T-1"))[-1].draft.body, Unread)
        place = await ask(at.journal.log, place_of("T-1"))
        assert place is not None and (folded or place.hold == "parked")  # the queue shows it, with the reason
        assert (await make_plan(at.journal)).forecasts == ()
        # The older one of the lane stands still; the other one is driven all the same.
        dispatcher = Dispatcher(at.journal)
        await dispatcher._start_due()
        assert dispatcher.running == {"T-2"}
        for run in list(dispatcher._runs.values()):
            assert isinstance(await run, Advanced)
        answer = await at.journal.advance("T-1")
        assert isinstance(answer, Parked) and "install the newer version" in answer.reason
        # Nobody writes on: no verb of a person either.
        with pytest.raises(InadmissibleError, match="newer version"):
            await at.journal.log.append(Unit(stream, (Draft(Resumed("x"), generation=1, actor="operator"),)))
        resumed = await at.journal.resume("T-1", reason="x")
        assert "newer version" in getattr(resumed, "reason", "")
    assert rows(db)[: len(stored)] == stored
    assert [f for f in findings(db) if "I3" in f and "blessed" in f]


@pytest.mark.proves("L4", "L1")
async def test_the_version_that_knows_it_finds_everything_as_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rolled-back upgrade, and then the upgrade: what the older version could not read, it did not fold either."""
    db = tmp_path / "j.db"
    async with desk(tmp_path, three_stages("auto")) as at:
        await at.open("T-1", stage="ship")
    foreign(db, "T-1", "paused", 2, {"why": "of tomorrow"})
    async with desk(tmp_path, three_stages("auto")) as at:
        assert (await at.journal.stream("T-1")).state.hold is Hold.PARKED
        await at.open("T-2", stage="ship")
    with monkeypatch.context() as tomorrow:
        tomorrow.setitem(SCHEMAS, Kind.PAUSED, 3)
        tomorrow.setitem(UPCASTERS, (Kind.PAUSED, 1), lambda data: {"why": data["reason"]})
        tomorrow.setitem(UPCASTERS, (Kind.PAUSED, 2), lambda data: {"reason": data["why"]})
        async with desk(tmp_path, three_stages("auto")) as at:
            stream = await at.journal.stream("T-1")
            assert (stream.state.hold, stream.state.unread) == (Hold.PAUSED, False)
            place = await ask(at.journal.log, place_of("T-1"))
            assert place is not None and place.hold == "paused"
            await at.journal.resume("T-1", reason="read again")
            assert isinstance(await at.journal.advance("T-1"), Advanced)
