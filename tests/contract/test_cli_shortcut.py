"""`journal inspect TASK`, plainly put, takes a short way past the option parser: it must say what the long way says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from integrations import cli
from integrations.cli import app
from integrations.cli.shortcut import plain_inspect
from tests.lived import TASKS, lived


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lived(tmp_path_factory.mktemp("short") / "journal.db")


def said(capsys: pytest.CaptureFixture[str], main: Callable[[list[str]], None], *argv: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(argv))
    out, err = capsys.readouterr()
    return ended.value.code or 0, out, err


@pytest.mark.proves("DC-4")
@pytest.mark.parametrize("options", [(), ("--json",), ("--no-color",)], ids=" ".join)
def test_both_ways_say_the_same_about_every_task(
    db: Path, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    for task in (*TASKS, "nobody-1"):
        argv = ("--db", str(db), *options, "inspect", task)
        assert plain_inspect(argv)
        short, usual = said(capsys, cli.main, *argv), said(capsys, app.main, *argv)
        assert short == usual, task


def test_a_file_that_is_no_journal_is_refused_in_the_same_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.db"
    other.write_text("not a database, but long enough to be looked at as one" * 20)
    for path in (other, tmp_path / "missing.db"):
        argv = ("inspect", "T-1", "--db", str(path))
        assert said(capsys, cli.main, *argv) == said(capsys, app.main, *argv)


@pytest.mark.parametrize(
    "argv",
    [
        "inspect", "inspect --help", "inspect T-1 T-2", "inspect T-1 --epoch 1", "inspect T-1 --at 5",
        "inspect T-1 --events", "explain T-1", "--db", "inspect T-1 --db", "--db --json inspect T-1",
        "--db=x inspect T-1", "-h", "--config x inspect T-1", "inspect -- T-1", "--db a --db b inspect T-1",
    ],
)  # fmt: skip
def test_whatever_else_is_on_the_line_takes_the_usual_way(argv: str) -> None:
    assert plain_inspect(argv.split()) is None


def test_the_short_way_loads_neither_pydantic_nor_the_service(db: Path) -> None:
    code = (
        "import sys; from integrations.cli.shortcut import answered; code = answered(sys.argv[1:]); "
        "print(sorted({'pydantic', 'typer', 'asyncio', 'fastapi', 'aiosqlite'} & set(sys.modules)), code)"
    )
    argv = (sys.executable, "-c", code, "--db", str(db), "--json", "inspect", next(iter(TASKS)))
    told = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert told.splitlines()[-1] == "[] 0"
