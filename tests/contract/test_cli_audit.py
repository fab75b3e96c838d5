"""The reading half of the command line: what people and scripts get, and with which exit code (CONTRACT "CLI")."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from integrations.cli.app import main
from journal.events import NOBODY
from journal.locks import LockFile
from journal.ownership import Locks
from tests.lived import HOSTILE, ROOT, TASKS, lived

INSPECT = {
    "task",
    "repo",
    "stage",
    "epoch",
    "version",
    "owner",
    "status",
    "verified",
    "events",
    "steps",
    "epochs",
    "decisions",
}
EVENT = {"position", "version", "epoch", "kind", "step", "attempt", "key", "actor", "at", "body", "hash"}
STEP = {"epoch", "step", "key", "attempts", "intended_at", "settled_at", "outcome", "via", "evidence"}


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Left behind by a SIGKILL, so that everything here also reads a WAL nobody owns."""
    return lived(tmp_path_factory.mktemp("cli") / "journal.db", kill=True)


class Cli:
    """The command line in this process."""

    def __init__(self, db: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._db, self._capsys = db, capsys
        self.err = ""

    def __call__(self, *argv: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["--db", str(self._db), *argv])
        out, self.err = self._capsys.readouterr()
        assert (ended.value.code or 0) == code, (out, self.err)
        return out

    def json(self, *argv: str, code: int = 0) -> Any:
        return json.loads(self(*argv, "--json", code=code))


@pytest.fixture
def cli(db: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(db, capsys)


def spawn(*argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "integrations.cli", *argv], cwd=ROOT, env=os.environ | environment, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.proves("DC-4")
@pytest.mark.parametrize("task", TASKS)
def test_inspect_has_the_promised_keys_and_verifies_each_task(cli: Cli, task: str) -> None:
    found = cli.json("inspect", task)
    assert found.keys() >= INSPECT
    assert found["verified"] is True
    assert found["task"] == task
    assert all(event.keys() >= EVENT for event in found["events"])
    assert all(step.keys() >= STEP for step in found["steps"])
    assert [event["version"] for event in found["events"]] == list(range(1, found["version"] + 1))
    assert all(isinstance(event["at"], int) and isinstance(event["body"], dict) for event in found["events"])


@pytest.mark.proves("DC-4", "FR-6")
def test_inspect_tells_what_was_in_doubt_and_how_it_was_settled(cli: Cli) -> None:
    lost = cli.json("inspect", "T-2")
    (decision,) = lost["decisions"]
    told = {name: decision[name] for name in ("step", "attempt", "row", "fact", "verdict", "reply")}
    assert told == {
        "step": "merge_pr", "attempt": 1, "row": "open", "fact": "ours", "verdict": "converge",
        "reply": {"error": "timeout"},
    }  # fmt: skip
    merged = next(step for step in lost["steps"] if step["step"] == "merge_pr")
    assert (merged["outcome"], merged["via"], merged["attempts"], merged["key"]) == (
        "applied", "probe", 1, "T-2/1/merge_pr",
    )  # fmt: skip
    interrupted = cli.json("inspect", "T-4")
    assert interrupted["reclaims"] == {"gone": 1}
    assert [epoch["ending"] for epoch in interrupted["epochs"]] == ["advanced", "reclaimed", "advanced"]
    assert [epoch["owner"]["actor"] for epoch in interrupted["epochs"]] == ["worker", "worker", "reconciler"]
    assert "took over in epoch 3 and asked world: the effect is not there" in interrupted["doubts"][0]
    assert interrupted["doubts"][0] in cli("inspect", "T-4")
    assert interrupted["doubts"][0] in cli("explain", "T-4")
    assert interrupted["doubts"] == cli.json("explain", "T-4")["doubts"]
    parked = cli.json("inspect", "T-3")
    assert (parked["status"], parked["owner"]) == ("parked", None)
    assert cli.json("inspect", "T-1")["deferrals"] == {"reaper": 1}


def test_inspect_for_a_person_names_terms_steps_doubts_and_people(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "240")
    told = cli("inspect", "T-4", "--events")
    for word in ("Terms of ownership (3)", "took over from a term that was over: gone", "merge_pr", "verified: "):
        assert word in told
    assert "release freeze" in cli("inspect", "T-7")
    assert "ratchet: 2 attempts are used up" in cli("inspect", "T-3")


def test_one_epoch_and_an_earlier_point_can_be_asked_for(cli: Cli) -> None:
    whole = cli.json("inspect", "T-4")
    second = cli.json("inspect", "T-4", "--epoch", "2")
    assert {event["epoch"] for event in second["events"]} == {2}
    assert [epoch["epoch"] for epoch in second["epochs"]] == [2]
    place = whole["events"][3]["position"]
    early = cli.json("inspect", "T-4", "--at", str(place))
    assert (early["version"], early["position"]) == (4, place)
    assert early["events"] == whole["events"][:4]
    cli("inspect", "T-4", "--at", "1", code=1)
    cli("inspect", "T-4", "--at", "999999", code=2)
    cli("inspect", "T-4", "--at", "2000-01-01", code=1)
    assert cli.json("inspect", "T-4", "--at", "2999-01-01")["version"] > early["version"]


@pytest.mark.parametrize("columns", ["40", "60", "100", "200"])
def test_text_from_outside_reaches_no_terminal_as_it_came(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    for name, value in {"COLUMNS": columns, "FORCE_COLOR": "1", "TERM": "xterm-256color"}.items():
        monkeypatch.setenv(name, value)
    told = cli("inspect", "T-6", "--events")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", told)
    assert "\x1b" not in plain, "only colours of our own"
    assert "\u202e" not in told
    assert "\\u001b[31m" in re.sub(r"\s", "", plain) or int(columns) < 200
    assert "[bold]x[/bold]" in re.sub(r"\s", "", plain) or int(columns) < 200
    assert max(len(line) for line in plain.splitlines()) <= int(columns)


def test_a_script_gets_the_text_as_it_was_written(cli: Cli) -> None:
    replies = [decision["reply"].get("error") for decision in cli.json("inspect", "T-6")["decisions"]]
    assert HOSTILE in replies


def test_nothing_is_coloured_when_nobody_looks(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in cli("inspect", "T-3")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert re.search(r"\x1b\[3[0-9]m", cli("inspect", "T-3"))
    assert not re.search(r"\x1b\[3[0-9]m", cli("--no-color", "inspect", "T-3"))


def test_global_options_stand_before_or_after_the_command(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for argv in (
        ["--json", "--db", str(db), "queue"],
        ["queue", "--json", "--db", str(db)],
        ["--db", str(db), "queue", "--json"],
    ):
        with pytest.raises(SystemExit):
            main(argv)
        texts.append(json.loads(capsys.readouterr().out)["position"])
    assert len(set(texts)) == 1


def test_a_task_nobody_opened_is_a_no_in_one_line(cli: Cli) -> None:
    for verb in ("inspect", "explain"):
        assert cli(verb, "T-99", code=1) == ""
        assert cli.err.count("\n") == 1
        assert "task T-99 is unknown" in cli.err
    cli("inspect", "T-\x1b[31m\n9", code=1)
    assert "\x1b" not in cli.err
    assert cli.err.count("\n") == 1
    cli("verify", "--task", "T-99", code=1)


def test_explain_says_what_it_waits_for_and_why_no_other_row_fired(cli: Cli) -> None:
    parked = cli.json("explain", "T-3")
    assert parked["status"] == "parked"
    assert "ratchet: 2 attempts are used up" in parked["stands"]
    assert any("retry" in verb for verb in parked["verbs"])
    assert (parked["fired"]["row"], parked["fired"]["fact"], parked["fired"]["verdict"]) == ("retry", "absent", "park")
    assert {(cell["row"], cell["fact"]) for cell in parked["others"]} == {
        ("retry", "ours"), ("retry", "others"), ("retry", "unknown"), ("retry", "conflict"),
        ("fresh", "any"), ("open", "any"),
    }  # fmt: skip
    waiting = cli.json("explain", "T-5")
    assert "merge_pr: unknown" in waiting["waits_for"]
    assert "by itself" in waiting["by_itself"]
    told = cli("explain", "T-5")
    assert "Rows that did not fire" in told
    assert "You may: journal advance T-5" in told
    assert "is done" in cli("explain", "T-1")


def test_log_filters_and_prints_one_object_a_line(cli: Cli) -> None:
    lines = [json.loads(line) for line in cli("log", "--json").splitlines()]
    assert [line["position"] for line in lines] == list(range(1, len(lines) + 1))
    parked = [json.loads(line) for line in cli("log", "--json", "--kind", "parked", "--task", "T-3").splitlines()]
    assert [line["task"] for line in parked] == ["T-3"]
    assert cli("log", "--since", str(len(lines) - 2)).count("\n") == 2
    assert cli("log", "--since", "1h").count("\n") == len(lines)
    assert cli("log", "--since", "2999-01-01") == ""
    cli("log", "--since", "yesterday", code=2)
    cli("log", "--kind", "exploded", code=2)
    assert "known: acquired" in cli.err


def test_log_follows_a_journal_that_grows(tmp_path: Path) -> None:
    config = tmp_path / "journal.toml"
    assert spawn("init", str(tmp_path)).returncode == 0
    argv = [sys.executable, "-m", "integrations.cli", "--config", str(config), "log", "--follow", "--json"]
    asked = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it, and so would it
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as follower:
        signal.signal(signal.SIGINT, asked)
        assert follower.stdout is not None
        assert json.loads(follower.stdout.readline())["kind"] == "journal_created"
        opened = spawn("--config", str(config), "open", "T-1", "--repo", "a/b", "--branch", "f/1")
        assert opened.returncode == 0, opened.stderr
        assert json.loads(follower.stdout.readline())["task"] == "T-1"
        follower.send_signal(signal.SIGINT)
        assert follower.wait(30) == 130


def at_a_terminal(width: int, *argv: str) -> list[str]:
    """What a terminal of that many columns shows, colours aside."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    with subprocess.Popen(
        [sys.executable, "-m", "integrations.cli", *argv], cwd=ROOT, stdin=theirs, stdout=theirs,
        env=environment | {"TERM": "xterm-256color"},
    ) as process:  # fmt: skip
        os.close(theirs)
        said = b""
        with suppress(OSError):  # how the end of a terminal is told
            while part := os.read(ours, 65536):
                said += part
        os.close(ours)
        assert process.wait(60) == 0
    return re.sub(r"\x1b\[[0-9;]*m", "", said.decode()).splitlines()


@pytest.mark.parametrize("width", [160, 80, 60])
def test_a_terminal_of_any_width_shows_no_torn_word_and_no_line_that_is_too_long(db: Path, width: int) -> None:
    for argv in (("inspect", "T-4"), ("queue", "--diff", "9", "2999-01-01")):
        lines = at_a_terminal(width, "--db", str(db), *argv)
        assert max(map(len, lines)) <= width, argv
        words = {word for line in lines for word in line.split()}
        torn = {word for word in words if "deploy-staging".startswith(word) and len(word) > 6}
        assert torn == {"deploy-staging"}, argv


def test_queue_shows_what_is_open_parked_and_reclaimed(cli: Cli) -> None:
    found = cli.json("queue")
    assert {"position", "counts", "tasks", "jobs", "transition_ownership"} <= found.keys()
    block = found["transition_ownership"]
    assert {"enabled", "held", "deferred", "reclaims", "parked"} <= block.keys()
    assert [entry["task"] for entry in block["parked"]] == ["T-3"]
    assert block["reclaims"] == {"gone": 1, "budget": 0, "operator": 0}
    assert block["deferred"] == {"reaper": 1}
    assert "T-3" in cli("queue")


def test_queue_tells_an_earlier_point_and_what_changed_since(cli: Cli) -> None:
    now = cli.json("queue")
    early = cli.json("queue", "--at", "9")
    assert early["position"] == 9
    assert {task["stage"] for task in early["tasks"]} == {"review"}
    assert cli.json("queue", "--at", str(now["position"]))["counts"] == now["counts"]
    assert cli.json("queue", "--at", "2999-01-01")["counts"] == now["counts"]
    assert cli.json("queue", "--at", "2000-01-01")["tasks"] == []
    changes = {c["task"]: c["change"] for c in cli.json("queue", "--diff", "9", str(now["position"]))["changes"]}
    assert (changes["T-1"], changes["T-3"], changes["T-5"]) == ("ended", "moved", "moved")
    assert "tasks differ" in cli("queue", "--diff", "9", "2999-01-01")
    assert "as of position 9" in cli("queue", "--at", "9")
    assert "nothing had happened yet" in cli("queue", "--at", "2000-01-01")
    assert cli.json("queue", "--limit", "1", "--diff", "9", str(now["position"]))["left_out"] == len(changes) - 1
    cli("queue", "--at", "999999", code=2)
    cli("queue", "--diff", "9", "999999", code=2)
    cli("queue", "--at", "soon", code=2)
    cli("queue", "--at", "1", "--diff", "1", "2", code=2)


@pytest.mark.proves("A3")
def test_verify_answers_with_a_head_that_a_later_verify_accepts(cli: Cli) -> None:
    found = cli.json("verify")
    assert found["verified"]
    assert cli.json("verify", "--head", found["head"])["anchored"]
    position, _, digest = found["head"].partition(":")
    wrong = cli.json("verify", "--head", f"{position}:{digest[::-1]}", code=1)
    assert wrong["first"]["position"] == int(position)
    later = cli.json("verify", "--head", f"{int(position) + 1}:{digest}", code=1)
    assert later["first"]["position"] == int(position) + 1
    cli("verify", "--head", "nonsense", code=2)
    cli("verify", "--task", "T-1", "--head", found["head"], code=2)


@pytest.fixture
def rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    """A journal of one's own, closed."""
    return Cli(lived(tmp_path / "journal.db"), capsys)


def test_a_copy_without_its_wal_says_what_cannot_be_known(cli: Cli, rest: Cli) -> None:
    assert cli.json("verify")["note"] == ""
    assert "taken without it" in rest.json("verify")["note"]


def test_projections_are_shown_and_made_anew_only_by_who_may_write(rest: Cli, tmp_path: Path) -> None:
    assert all(view["lag"] == 0 for view in rest.json("projections")["views"])
    before = rest.json("queue")
    assert rest.json("projections", "rebuild")["views"]
    assert rest.json("queue")["tasks"] == before["tasks"]
    lock = LockFile.take(Locks(tmp_path / "journal.db", NOBODY).writer_path())
    assert lock is not None
    try:
        assert rest("projections", "rebuild", code=3) == ""
    finally:
        lock.release()
    assert "another process drives" in rest.err


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (("--db", "/nonexistent/folder/x.db", "verify"), 4),
        (("--db", "/nonexistent.db", "inspect", "T-1"), 4),
        (("--config", "/nonexistent.toml", "queue"), 2),
        (("no-such-command",), 2),
        (("inspect",), 2),
        (("inspect", "T-1", "--epoch", "x"), 2),
        (("--db", "/tmp", "verify"), 4),
        (("--version",), 0),
        (("inspect", "--help"), 0),
    ],
)
def test_every_ending_has_its_exit_code_and_no_traceback(
    argv: tuple[str, ...], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(argv))
    err = capsys.readouterr().err
    assert (ended.value.code or 0) == code, err
    assert "Traceback" not in err
    if code == 4:
        assert err.count("\n") == 1


def test_a_bug_is_one_line_and_a_traceback_only_on_request(cli: Cli, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("no\nsense")

    monkeypatch.setattr("integrations.cli.reading.audit", broken)
    cli("inspect", "T-1", code=4)
    assert cli.err.count("\n") == 1
    assert "JOURNAL_DEBUG=1" in cli.err
    monkeypatch.setenv("JOURNAL_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main(["--db", str(db), "inspect", "T-1"])


def test_offline_commands_load_no_web_framework(db: Path) -> None:
    code = (
        "import sys\nfrom integrations.cli.app import main\ntry:\n    main(['--db', sys.argv[1], 'inspect', 'T-1'])\n"
        "except SystemExit:\n    pass\nheavy = {'fastapi', 'starlette', 'uvicorn', 'httpx'}\n"
        "print(sorted(heavy & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(db)], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
