"""What is asked wrongly is answered with what was wrong, what would be right, and a code that a script can read."""

from __future__ import annotations

from pathlib import Path

import pytest

from integrations.cli.app import main
from tests.lived import lived


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lived(tmp_path_factory.mktemp("bad") / "journal.db")


ASKED = [
    (["inspect", "NOBODY"], 1, "task NOBODY is unknown"),
    (["explain", "NOBODY"], 1, "task NOBODY is unknown"),
    (["log", "--task", "NOBODY"], 1, "task NOBODY is unknown"),
    (["inspect", ""], 1, "is unknown"),
    (["inspect", "<script>alert(1)</script>"], 1, "unknown"),
    (["inspect", "T-1\x1b[31m\u202e"], 1, r"T-1\x1b[31m\u202e is unknown"),
    (["inspect", "--", "-rf"], 1, "task -rf is unknown"),
    (["inspect", "--rf"], 2, "No such option: --rf"),
    (["inspect", "T-1", "--at", "2000-01-01"], 1, "T-1 was opened at position 2 and not before"),
    (["inspect", "T-1", "--at", "99999"], 2, "the log ends at position"),
    (["inspect", "T-1", "--at", "soon"], 2, "use a position such as 1234, a time"),
    (["inspect", "T-1", "--epoch", "99"], 2, "T-1 has come to epoch"),
    (["queue", "--at", "99999"], 2, "the log ends at position"),
    (["queue", "--at", "2000-01-01"], 0, "nothing had happened yet"),
    (["queue", "--limit", "10000000"], 2, "100000"),
    (["log", "--since", "soon"], 2, "use a position such as 1234, a time"),
    (["log", "--kind", "exploded"], 2, "known: "),
    (["verify", "--head", "nonsense"], 2, "nonsense"),
    (["export", "--task", "NOBODY"], 1, "NOBODY"),
    (["open", "-rf", "--repo", "a/b", "--branch", "f"], 2, "No such option"),
    (["open", "<b>", "--repo", "a/b", "--branch", "f"], 2, "a letter or digit"),
    (["open", "T-50", "--repo", "a/b", "--branch=--upload-pack=x"], 2, "not a branch name that git accepts"),
]


@pytest.mark.proves("R10", "R96")
@pytest.mark.parametrize(
    ("argv", "code", "words"), ASKED, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_a_wrong_question_gets_a_clear_answer(
    db: Path, argv: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = db.read_bytes()
    with pytest.raises(SystemExit) as ended:
        main(["--db", str(db), *argv])
    said = capsys.readouterr()
    told = " ".join((said.out + said.err).split())
    assert (ended.value.code or 0, words in told) == (code, True), told
    assert "\x1b" not in told and "\u202e" not in told and "Traceback" not in told
    assert db.read_bytes() == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '[steps.rebuild]\nuse = "command"\napply = ["x"]\nprobe = ["y"]\npolicy = "whenever"',
            "steps.rebuild: policy",
        ),
        ('[steps.rebuild]\nuse = "command"\napply = "x; rm -rf /"\nprobe = ["y"]', "steps.rebuild: apply"),
        ('[steps.rebuild]\nuse = "teleport"', "teleport"),
        ('[pipeline]\nreaper_max_running_s = "long"', "pipeline.reaper_max_running_s"),
        ('[journal]\ndbs = "x.db"', "did you mean 'db'"),
        ("[journal", "cannot be read"),
    ],
)
def test_a_malformed_configuration_is_named_by_file_key_and_remedy(
    tmp_path: Path, text: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "journal.toml").write_text(text)
    with pytest.raises(SystemExit) as ended:
        main(["--config", str(tmp_path / "journal.toml"), "serve", "--port", "0"])
    told = " ".join(capsys.readouterr().err.split())
    assert ended.value.code == 2
    assert "journal.toml" in told and words in told, told
    assert [p.name for p in tmp_path.iterdir()] == ["journal.toml"], "nothing was begun"


@pytest.mark.proves("A2")
def test_a_tampered_or_torn_export_is_refused_and_leaves_no_journal(
    db: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = tmp_path / "whole.jsonl"
    with pytest.raises(SystemExit):
        main(["--db", str(db), "export", "--out", str(whole)])
    lines = whole.read_text().splitlines(keepends=True)
    changed = [*lines[:5], lines[5].replace("acme/widgets", "acme/gadgets"), *lines[6:]]
    for name, text in {
        "changed": "".join(changed), "swapped": "".join([*lines[:5], lines[6], lines[5], *lines[7:]]),
        "torn": "".join(lines)[:700], "none": "", "other": "{}\n",
    }.items():  # fmt: skip
        (tmp_path / name).write_text(text)
        new = tmp_path / f"{name}.db"
        with pytest.raises(SystemExit) as ended:
            main(["--db", str(new), "import", str(tmp_path / name)])
        told = capsys.readouterr().err
        assert ended.value.code not in (0, None), name
        assert "line" in told or "export" in told, (name, told)
        assert not new.exists(), name
