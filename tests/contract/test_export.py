"""Exports and the way back, on a journal that lived: real runs, the command line, and the script that is shipped."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from journal.journal import Journal
from projections import all_views
from tests.browser.scenes import Scripted, populate
from tests.contract.http_service import PIPELINE, FileStep, a_service

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "verify_export.py"
Lines = list[str]


def run(*argv: object, code: int = 0) -> str:
    done = subprocess.run([*map(str, argv)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def journal(db: Path, *argv: object, code: int = 0) -> str:
    return run(sys.executable, "-m", "integrations.cli", "--db", db, *argv, code=code)


def queue(db: Path) -> tuple[object, ...]:
    shown = json.loads(journal(db, "queue", "--json"))
    return shown["position"], shown["counts"], shown["tasks"]


def checked(file: Path, *argv: object, code: int = 0) -> str:
    """The shipped script, in an interpreter that sees no package."""
    return run(sys.executable, "-I", "-S", SCRIPT, file, *argv, code=code)


def rows(db: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True)) as opened:
        return opened.execute("SELECT * FROM journal_events ORDER BY position").fetchall()


@pytest.fixture
async def db(tmp_path: Path) -> Path:
    """A journal with tasks done, parked, in doubt and canceled, at rest."""
    folder = tmp_path / "lived"
    folder.mkdir()
    async with a_service(folder, make=Scripted) as service:
        await populate(service, tasks=18)
    return folder / "journal.db"


@pytest.mark.proves("A1", "A2")
def test_an_export_verifies_by_itself_and_comes_back_with_the_same_hashes(db: Path, tmp_path: Path) -> None:
    file, copy = tmp_path / "all.jsonl", tmp_path / "copy.db"
    journal(db, "export", "--out", file)
    head = json.loads(file.read_text("utf-8").splitlines()[0])["head"]
    assert f"head {head['position']}:{head['hash']}" in checked(file)
    checked(file, f"{head['position']}:{head['hash']}")
    checked(file, f"{head['position']}:{'0' * 64}", code=1)
    journal(copy, "import", file)
    assert rows(copy) == rows(db)
    journal(copy, "verify", "--head", f"{head['position']}:{head['hash']}")
    assert queue(copy) == queue(db)
    assert journal(copy, "export") == file.read_text("utf-8")


async def test_an_imported_journal_goes_on_where_the_exported_one_stood(db: Path, tmp_path: Path) -> None:
    file, copy = tmp_path / "all.jsonl", tmp_path / "copy.db"
    journal(db, "export", "--out", file)
    journal(copy, "import", file)
    folder = db.parent / "effects"
    step = FileStep(folder)
    steps = dict.fromkeys(PIPELINE.steps, step)
    async with Journal.open(copy, pipeline=PIPELINE, steps=steps, projections=all_views()) as opened:
        result = await opened.advance("ORCH-105", actor="worker")
        assert type(result).__name__ == "Advanced"
        assert (await opened.stream("ORCH-105")).state.stage == "done"


def test_one_tasks_export_verifies_by_itself_and_cannot_be_imported(db: Path, tmp_path: Path) -> None:
    file = tmp_path / "one.jsonl"
    journal(db, "export", "--task", "ORCH-109", "--out", file)
    assert "verified: 6 events" in checked(file)
    assert "only a whole log can be imported" in journal(tmp_path / "copy.db", "import", file, code=2)
    assert not (tmp_path / "copy.db").exists()


def changed_body(lines: Lines) -> Lines:
    return [line.replace("feature/change-5", "feature/change-6") for line in lines]


def changed_time(lines: Lines) -> Lines:
    event = json.loads(lines[7])
    event["at"] += 1
    return [*lines[:7], json.dumps(event), *lines[8:]]


def cut_inside(lines: Lines) -> Lines:
    return [*lines[:9], *lines[10:]]


def cut_end(lines: Lines) -> Lines:
    return lines[:-1]


def swapped(lines: Lines) -> Lines:
    return [*lines[:4], lines[5], lines[4], *lines[6:]]


def doubled(lines: Lines) -> Lines:
    return [*lines[:5], lines[4], *lines[5:]]


def torn(lines: Lines) -> Lines:
    return [*lines[:-1], lines[-1][:40]]


def typed(lines: Lines) -> Lines:
    event = json.loads(lines[3])
    event["position"] = str(event["position"])
    return [*lines[:3], json.dumps(event), *lines[4:]]


@pytest.mark.proves("A1")
@pytest.mark.parametrize("tamper", [changed_body, changed_time, cut_inside, cut_end, swapped, doubled, torn, typed])
def test_whatever_was_done_to_an_export_is_found_and_nothing_is_imported(
    db: Path, tmp_path: Path, tamper: Callable[[Lines], Lines]
) -> None:
    file, copy = tmp_path / "all.jsonl", tmp_path / "copy.db"
    lines = journal(db, "export").splitlines()
    file.write_text("\n".join(tamper(lines)) + "\n", "utf-8")
    checked(file, code=1)
    assert "line " in journal(copy, "import", file, code=4)
    assert not copy.exists()
    assert not list(tmp_path.glob("*.importing*"))


def test_a_rehashed_event_is_found_by_a_head_that_was_written_down(db: Path, tmp_path: Path) -> None:
    """Whoever can write the whole file can hash it anew; only a head kept elsewhere tells (A2)."""
    import hashlib

    lines = journal(db, "export").splitlines()
    preamble, before = json.loads(lines[0]), "0" * 64
    names = "position task version generation epoch kind schema step attempt key actor at".split()  # noqa: SIM905
    forged = []
    for line in lines[1:]:
        event = json.loads(line)
        event["body"] = event["body"].replace("release freeze", "nobody knows")
        event["body_hash"] = hashlib.sha256(event["body"].encode()).hexdigest()
        event["prev_hash"] = before
        header = "\n".join(str(event[name]) for name in names).encode()
        before = hashlib.sha256(bytes.fromhex(before) + bytes.fromhex(event["body_hash"]) + header).hexdigest()
        forged.append(json.dumps(event | {"hash": before}, ensure_ascii=False))
    written_down = f"{preamble['head']['position']}:{preamble['head']['hash']}"
    preamble["head"]["hash"] = before
    file = tmp_path / "forged.jsonl"
    file.write_text("\n".join([json.dumps(preamble), *forged]) + "\n", "utf-8")
    checked(file)
    assert "written down" in checked(file, written_down, code=1)


@pytest.mark.parametrize("content", ["", "{}\n", "[1]\n", "not json\n", "\u00e9\n", '{"format":"other"}\n'])
def test_what_is_no_export_is_said_to_be_none(tmp_path: Path, content: str) -> None:
    file = tmp_path / "file.jsonl"
    file.write_text(content, "utf-8")
    message = journal(tmp_path / "copy.db", "import", file, code=2 if not content else 4)
    assert message.startswith("journal: ")
    assert message.count("\n") == 1
    assert not (tmp_path / "copy.db").exists()


def test_events_that_are_there_are_never_imported_over(db: Path, tmp_path: Path) -> None:
    file, copy = tmp_path / "all.jsonl", tmp_path / "copy.db"
    journal(db, "export", "--out", file)
    shutil.copy(db, copy)
    before = rows(copy)
    assert "holds events already" in journal(copy, "import", file, code=2)
    assert "is there already" in journal(db, "export", "--out", file, code=2)
    assert rows(copy) == before


@pytest.mark.proves("A5", "R101")
def test_a_page_for_a_ticket_needs_nothing_and_runs_nothing(db: Path, tmp_path: Path) -> None:
    before = db.read_bytes()
    everything = journal(db, "export", "--format", "html")
    page = journal(db, "export", "--task", "ORCH-109", "--format", "html")
    for text in (everything, page):
        assert not re.search(r"<script|<link|<img|<iframe|\ssrc=|\son\w+=|url\((?!#)|@import", text)
        assert re.findall(r"https?://[^\s\"'<]+", text.replace("http://www.w3.org/2000/svg", "")) == []
        assert "default-src 'none'" in text
    assert "&lt;script&gt;alert(1)" in everything
    head = json.loads(journal(db, "export").splitlines()[0])["head"]
    assert head["hash"] in page
    assert "sources contradict each other" in page
    assert "Verified when this was made" in page
    assert page.count('<svg class="timeline"') == 1
    assert db.read_bytes() == before


def test_a_page_of_a_log_that_was_changed_says_so(db: Path) -> None:
    with closing(sqlite3.connect(db)) as opened:
        opened.execute("DROP TRIGGER journal_events_no_update")
        opened.execute("UPDATE journal_events SET actor = 'nobody' WHERE task = 'ORCH-109' AND version = 3")
        opened.commit()
    page = journal(db, "export", "--task", "ORCH-109", "--format", "html")
    assert "does not verify" in page
    assert "Verified when" not in page


def test_an_unknown_task_is_no_export(db: Path, tmp_path: Path) -> None:
    for form in ("jsonl", "html"):
        out = tmp_path / "none"
        assert "unknown" in journal(db, "export", "--task", "<b>", "--format", form, "--out", out, code=1)
        assert not out.exists()
