"""Every command that a page tells a reader to type is typed, on a journal that has lived, and does what it says."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from integrations.cli.app import main
from tests.conftest import need_tool
from tests.lived import ROOT, lived
from tests.unit.test_reference import blocks, calls

ELSEWHERE = frozenset({"serve", "demo", "prove", "init"})
"""Commands that tests of their own run whole: test_tutorial, test_demo, test_prove, test_cli_writes."""

NAMED = (["inspect"], ["restore"], ["cancel"])
"""Commands that pages speak of, without what they need."""

MAY_REFUSE = {
    "doctor": {0, 1},  # it may find something about this machine
    "release": {0, 1},  # nobody holds the task here
    "recover": {0, 1},  # nothing is left to apply, or the plan is another one by now
}
VERBS = frozenset({"retry", "settle", "cancel", "reopen", "release"})
WHOLE = ("docs/reference", "docs/tutorial", "docs/how-to/postgresql.md")
TYPED = sorted({page for page, _ in calls() if not page.startswith(WHOLE)})
"""Tutorial and the page about a server are typed as a whole by tests of their own."""


class Reader:
    """Somebody who types what a page says, in a folder with a journal whose task T-3 is parked."""

    def __init__(self, folder: Path, source: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder, self._source, self._capsys = folder, source, capsys
        self.anew()

    def anew(self) -> None:
        for path in self._source.iterdir():
            if path.is_file():
                shutil.copyfile(path, self._folder / path.name)

    def run(self, *argv: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(list(argv))
        said = self._capsys.readouterr()
        return int(ended.value.code or 0), said.out + said.err

    def head(self) -> str:
        return str(json.loads(self.run("verify", "--json")[1])["head"])

    def typed(self, call: str) -> list[str]:
        """The call with a reader's own names in place of the page's."""
        text = re.sub(r"\s\d?>.*|\s#.*", "", call)
        text = re.sub(r"\b(ORCH-114|DEMO-1|TASK)\b", "T-3", text)
        for told, typed in {
            "DIR/": f"{self._folder}/", "/backups/": f"{self._folder}/", "--db orchestrator.db": "--db journal.db",
            "SHA": "b" * 40, "--at 1200": "--at 30", "1200 1450": "9 30", "--stage STAGE": "--stage review",
            "open T-3 --repo": "open T-99 --repo",
        }.items():  # fmt: skip
            text = text.replace(told, typed)
        if "POSITION:HASH" in text:
            text = text.replace("POSITION:HASH", self.head())
        if "TOKEN" in text:
            text = text.replace("TOKEN", json.loads(self.run("recover", "--plan", "--json")[1])["token"])
        return shlex.split(text)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lived")
    lived(folder / "journal.db")
    return folder


@pytest.mark.parametrize("page", TYPED)
def test_what_a_page_says_to_type_works(
    page: str, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reader = Reader(tmp_path, source, capsys)
    for call in [call for where, call in calls() if where == page]:
        argv = reader.typed(call)
        words = [w for i, w in enumerate(argv) if not w.startswith("-") and argv[i - 1] not in ("--config", "--db")]
        if not words or words[0] in ELSEWHERE or argv in NAMED:
            continue
        if "T-3" in argv and words[0] in VERBS:
            reader.anew()
            if words[0] == "reopen":
                reader.run("cancel", "T-3", "--reason", "no longer wanted")
        if "--config" in argv:
            (tmp_path / "journal.toml").touch()
        code, said = reader.run(*argv)
        assert code in MAY_REFUSE.get(words[0], {0}), (call, argv, said)
        assert "Traceback" not in said


@pytest.mark.proves("A2")
def test_the_script_of_the_how_to_verifies_what_the_page_exports_and_refuses_a_changed_line(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reader = Reader(tmp_path, source, capsys)
    assert reader.run("export", "--out", "journal.jsonl")[0] == 0
    told = reader.head()
    script = ROOT / "docs" / "how-to" / "verify_export.py"
    (lines,) = [text for page, text in blocks("text") if page.endswith("verify-an-export.md")]
    for line in lines.splitlines():
        argv = shlex.split(line.split(" #")[0].replace("41207:9f2c...", told))
        assert argv[:2] == ["python3", "verify_export.py"]
        subprocess.run([sys.executable, script, *argv[2:]], check=True, capture_output=True, timeout=60)
    exported = tmp_path / "journal.jsonl"
    exported.write_text(exported.read_text().replace("acme/widgets", "acme/gadgets", 1))
    changed = subprocess.run([sys.executable, script, "journal.jsonl"], check=False, capture_output=True, timeout=60)
    assert changed.returncode == 1


def test_what_is_to_be_put_into_prometheus_is_accepted_by_it(tmp_path: Path) -> None:
    promtool = need_tool("promtool")
    (text,) = [text for page, text in blocks("yaml") if page.endswith("watch-and-alert.md")]
    (tmp_path / "prometheus.yml").write_text(text)
    argv = [str(promtool), "check", "config", "prometheus.yml"]
    done = subprocess.run(argv, cwd=tmp_path, check=False, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
