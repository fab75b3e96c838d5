"""The writing half of the command line: here when the lock is free, through the service when it is held (DESIGN 8)."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from integrations.cli import checks
from integrations.cli.app import main
from integrations.cli.init import TEMPLATE
from integrations.sections import FileSettings
from integrations.settings import load
from integrations.wiring import build
from journal.events import NOBODY
from journal.locks import LockFile
from journal.log import poison
from journal.log.ground import Mount, mount_of, wal_reset_bug
from journal.ownership import Locks, lock_folder
from tests.lived import ROOT, lived

OPEN = ("--repo", "acme/widgets", "--branch", "feature/one")


class Cli:
    """The command line in this process, with one configuration."""

    def __init__(self, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._config, self._capsys = config, capsys
        self.err = ""

    def __call__(self, *argv: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["--config", str(self._config), *argv])
        out, self.err = self._capsys.readouterr()
        assert (ended.value.code or 0) == code, (out, self.err)
        return out

    def json(self, *argv: str, code: int = 0) -> Any:
        return json.loads(self(*argv, "--json", code=code))


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    """An initialised folder."""
    made = Cli(tmp_path / "journal.toml", capsys)
    made("init")
    return made


@contextmanager
def service(config: Path) -> Iterator[subprocess.Popen[str]]:
    """A real service on a free port, ready when this goes on."""
    argv = [sys.executable, "-m", "integrations.cli", "--config", str(config), "serve", "--port", "0"]
    environment = os.environ | {"ORCH_LOG_FORMAT": "json"}
    with subprocess.Popen(argv, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if json.loads(line).get("event") == "ready":
                    break
            else:
                pytest.fail(f"the service ended with {process.wait()}")
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.stderr.read()
            process.wait(30)


# -- init ------------------------------------------------------------------------------------------------------------


def test_the_template_says_what_is_built_in() -> None:
    assert FileSettings.model_validate(tomllib.loads(TEMPLATE.read_text())) == FileSettings()


def test_without_a_file_all_that_is_kept_lies_beside_the_journal_and_nothing_where_it_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    parts = build(load(db=tmp_path / "journal.db"))
    assert [str(deploy.folder) for deploy in parts.deploys] == [f"{tmp_path}/journal.db.deploys"]
    assert list(elsewhere.iterdir()) == []


def test_init_writes_a_configuration_that_works_and_overwrites_nothing(cli: Cli, tmp_path: Path) -> None:
    assert build(load(tmp_path / "journal.toml")).pipeline.first == "analysis"
    assert (tmp_path / "journal.db").exists()
    before = (tmp_path / "journal.toml").read_bytes()
    cli("init", code=2)
    assert "stays as it is" in cli.err
    assert (tmp_path / "journal.toml").read_bytes() == before
    (tmp_path / "journal.toml").unlink()
    cli("init", code=2)
    assert "journal.db" in cli.err
    assert not (tmp_path / "journal.toml").exists(), "half an init would refuse the next one"


def test_init_names_the_head_that_a_later_verify_can_be_held_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Cli(tmp_path / "journal.toml", capsys)
    head = made.json("init")["head"]
    made("open", "ORCH-1", *OPEN)
    assert made.json("verify", "--head", head)["verified"]


# -- open, advance, release, verbs -----------------------------------------------------------------------------------


@pytest.mark.proves("DC-4")
@pytest.mark.parametrize("served", [False, True])
def test_the_same_commands_give_the_same_answers_here_and_through_the_service(
    cli: Cli, tmp_path: Path, served: bool
) -> None:
    def walk() -> None:
        assert "ORCH-1 is open in analysis" in cli("open", "ORCH-1", *OPEN, "--pr", "7")
        cli("open", "ORCH-1", *OPEN, code=2)
        assert "open already" in cli.err
        cli("open", "orch-1", *OPEN, code=2)
        cli("open", "ORCH-2", "--repo", "acme/widgets", "--branch", "a..b", code=2)
        cli("open", "ORCH-2", *OPEN, "--head", "abc1234", code=2)
        advanced = cli.json("advance", "ORCH-1")
        assert (advanced["result"], advanced["from_stage"], advanced["to_stage"]) == (
            "advanced", "analysis", "architecture",
        )  # fmt: skip
        assert "architecture" in cli("advance", "ORCH-1", "--expect", "analysis", code=3)
        cli("advance", "ORCH-99", code=1)
        assert "nobody owns" in cli("release", "ORCH-1", "--reason", "try", code=1)
        cli("release", "ORCH-1", code=2)

    if served:
        with service(tmp_path / "journal.toml"):
            walk()
    else:
        walk()
    found = cli.json("inspect", "ORCH-1")
    assert (found["stage"], found["epoch"], found["verified"]) == ("architecture", 1, True)
    assert {event["actor"] for event in found["events"]} == {"operator"}


@pytest.mark.parametrize("served", [False, True])
def test_the_verbs_of_a_person_are_events_with_their_reason(cli: Cli, tmp_path: Path, served: bool) -> None:
    with service(tmp_path / "journal.toml") if served else nullcontext():
        cli("open", "ORCH-1", *OPEN)
        cli("pause", "ORCH-1", "--reason", "release freeze")
        assert cli.json("inspect", "ORCH-1")["status"] == "paused"
        cli("advance", "ORCH-1", code=1)
        cli("resume", "ORCH-1", "--reason", "it is over")
        cli("retry", "ORCH-1", "--reason", "not parked", code=1)
        cli("settle", "ORCH-1", "--as", "applied", "--evidence", "seen", "--reason", "x", code=1)
        cli("settle", "ORCH-1", "--as", "perhaps", "--evidence", "seen", "--reason", "x", code=2)
        cli("cancel", "ORCH-1", "--reason", "no longer wanted")
        assert cli.json("inspect", "ORCH-1")["status"] == "canceled"
        cli("reopen", "ORCH-1", "--stage", "nowhere", "--reason", "again", code=1)
        cli("reopen", "ORCH-1", "--stage", "review", "--reason", "again")
        found = cli.json("inspect", "ORCH-1")
        assert (found["stage"], found["generation"], found["verified"]) == ("review", 2, True)
        said = [event["body"].get("reason") for event in found["events"]]
        assert [reason for reason in said if reason] == [
            "release freeze",
            "it is over",
            "no longer wanted",
            "no longer wanted",
            "again",
        ]


@pytest.mark.proves("S4")
def test_a_lock_held_by_somebody_without_an_address_is_waited_for_and_then_named(cli: Cli, tmp_path: Path) -> None:
    lock = LockFile.take(Locks(tmp_path / "journal.db", NOBODY).writer_path())
    assert lock is not None
    try:
        lock.write(Locks(tmp_path / "journal.db", NOBODY).holder("rebuild"))
        cli("open", "ORCH-1", *OPEN, code=3)
    finally:
        lock.release()
    assert "another process drives this journal (rebuild@" in cli.err
    cli("open", "ORCH-1", *OPEN)


def test_a_service_that_does_not_answer_or_a_token_that_is_gone_is_said_plainly(cli: Cli, tmp_path: Path) -> None:
    locks = Locks(tmp_path / "journal.db", NOBODY)
    lock = LockFile.take(locks.writer_path())
    assert lock is not None
    try:
        lock.write(locks.holder("serve", address="http://127.0.0.1:9"))
        cli("open", "ORCH-1", *OPEN, code=4)
        assert "local token cannot be read" in cli.err
        (lock_folder(tmp_path / "journal.db") / "local-token").write_text("t")
        cli("open", "ORCH-1", *OPEN, code=4)
        assert "does not answer" in cli.err
    finally:
        lock.release()


def test_a_journal_that_is_not_there_is_not_made_by_accident(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Cli(tmp_path / "journal.toml", capsys)
    made("init")
    (tmp_path / "journal.db").unlink()
    for argv in (("open", "ORCH-1", *OPEN), ("advance", "ORCH-1"), ("recover",), ("projections", "rebuild")):
        made(*argv, code=4)
        assert "`journal init` creates a journal" in made.err
    assert not (tmp_path / "journal.db").exists()


# -- recover ---------------------------------------------------------------------------------------------------------


@pytest.mark.proves("V9")
def test_a_plan_is_carried_out_only_while_nothing_has_changed(cli: Cli) -> None:
    cli("open", "ORCH-1", *OPEN)
    before = cli.json("verify")["head"]
    plan = cli.json("recover", "--plan")
    assert cli.json("verify")["head"] == before, "a plan writes nothing"
    assert plan["tasks"] == []
    assert cli.json("recover", "--apply", plan["token"])["results"] == []
    cli("open", "ORCH-2", *OPEN)
    cli("recover", "--apply", plan["token"], code=3)
    assert "another one by now" in cli.err
    cli("recover", "--plan", "--apply", plan["token"], code=2)


KILLED = """
[pipeline]
stages = ["review", "done"]
on_new_head = "review"
edges = [{ from = "review", to = "done", steps = ["ship"] }]

[gates]

[steps.ship]
use = "command"
guard = "repeatable"
irreversible = false
apply = ["sh", "-c", "kill -KILL $PPID"]
probe = ["sh", "-c", "exit 10"]
"""


@pytest.mark.proves("V9", "NFR-7")
def test_a_plan_names_the_cell_that_fired_what_was_asked_and_why_the_others_did_not(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "journal.toml").write_text(KILLED)
    cli("open", "ORCH-1", *OPEN)
    argv = [sys.executable, "-m", "integrations.cli", "--config", str(tmp_path / "journal.toml"), "advance", "ORCH-1"]
    assert subprocess.run(argv, cwd=ROOT, capture_output=True, check=False).returncode == -signal.SIGKILL
    (task,) = cli.json("recover", "--plan")["tasks"]
    fired = ("row", "fact", "guard", "verdict")
    assert [task[name] for name in fired] == ["open", "absent", "repeatable", "drive"]
    assert "source" in task["seen"]
    others = [(c["row"], c["fact"], c["verdict"]) for c in task["others"]]
    assert others == [
        ("open", "ours", "converge"), ("open", "others", "adopt"), ("open", "unknown", "wait"),
        ("open", "conflict", "park"), ("fresh", "any", ""), ("retry", "any", ""),
    ]  # fmt: skip
    assert all(c["why"] for c in task["others"])
    shown = " ".join(cli("recover", "--plan").split())  # however wide the terminal
    assert "open x absent (repeatable) -> drive" in shown
    assert "no attempt of the step stands in the journal" in shown


def test_a_plan_is_not_carried_out_beside_a_running_service(cli: Cli, tmp_path: Path) -> None:
    token = cli.json("recover")["token"]
    with service(tmp_path / "journal.toml"):
        cli("recover", "--apply", token, code=3)
        assert cli.json("recover", "--plan")["token"]


# -- doctor ----------------------------------------------------------------------------------------------------------


def findings(document: dict[str, Any], what: str) -> list[tuple[str, str]]:
    return [(f["level"], f["found"]) for f in document["findings"] if f["what"] == what]


def test_doctor_finds_a_fresh_journal_healthy_and_says_what_it_looked_at(cli: Cli) -> None:
    found = cli.json("doctor")
    assert found["healthy"]
    looked_at = {f["what"] for f in found["findings"]}
    assert looked_at >= {"packages", "SQLite", "git", "configuration", "budgets", "file system", "space", "journal"}
    assert all(f["remedy"] for f in found["findings"] if f["level"] != "ok")


@pytest.mark.proves("NFR-6")
def test_doctor_names_a_broken_budget_a_lost_guard_and_open_permissions(cli: Cli, tmp_path: Path) -> None:
    config, db = tmp_path / "journal.toml", tmp_path / "journal.db"
    text = config.read_text()
    config.write_text(text.replace("reaper_max_running_s = 5400 ", "reaper_max_running_s = 600 "))
    broken = cli.json("doctor", code=1)
    assert "must be more than" in findings(broken, "configuration")[0][1]
    config.write_text(text)
    db.chmod(0o666)
    assert findings(cli.json("doctor", code=1), "permissions")[0][1].endswith("has mode 0666")
    db.chmod(0o644)
    (lock_folder(db) / "local-token").write_text("t")
    (lock_folder(db) / "local-token").chmod(0o644)
    assert findings(cli.json("doctor", code=1), "permissions")


@pytest.mark.proves("S6", "R91")
def test_poison_is_lifted_only_from_a_log_that_verifies_and_that_nobody_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    db = lived(tmp_path / "journal.db")
    (tmp_path / "journal.toml").write_text('[journal]\ndb = "journal.db"\n')
    cli = Cli(tmp_path / "journal.toml", capsys)
    assert not cli.json("doctor", "--unpoison")["lifted"]
    poison.put(db, "disk I/O error")
    assert findings(cli.json("doctor", code=1), "poison") == [("fault", "disk I/O error")]
    cli("open", "ORCH-1", *OPEN, code=4)
    assert "doctor --unpoison" in cli.err
    lock = LockFile.take(Locks(db, NOBODY).writer_path())
    assert lock is not None
    cli("doctor", "--unpoison", code=3)
    lock.release()
    whole = db.read_bytes()
    db.write_bytes(re.sub(rb"acme/widgets", rb"acme/widgetz", whole, count=3))
    cli("doctor", "--unpoison", code=1)
    assert "does not verify" in cli.err
    assert poison.reason(db)
    db.write_bytes(whole)
    assert cli.json("doctor", "--unpoison")["lifted"]
    cli("open", "ORCH-1", *OPEN)


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:21 / /srv rw - nfs4 server:/srv rw
24 23 0:22 / /srv/local\\040disk rw - xfs /dev/sdb1 rw
25 22 0:23 / /mnt/vm rw - virtiofs share rw
26 22 0:24 / /mnt/s3 rw - fuse.s3fs s3fs rw
27 22 0:25 / /ov rw - overlay overlay rw,lowerdir=/a
28 22 0:26 / /srvx rw - tmpfs tmpfs rw
garbage
"""


@pytest.mark.proves("S9", "R83", "R84", "R85")
@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/data/journal.db", "ext4", False),
        ("/srv/journal.db", "nfs4", True),
        ("/srv/local disk/journal.db", "xfs", False),
        ("/mnt/vm/x/journal.db", "virtiofs", True),
        ("/mnt/s3/journal.db", "fuse.s3fs", True),
        ("/ov/journal.db", "overlay", False),
        ("/srvx/journal.db", "tmpfs", False),
    ],
)
def test_the_longest_mount_point_above_a_path_is_its_file_system(path: str, kind: str, network: bool) -> None:
    mount = mount_of(Path(path), MOUNTS)
    assert (mount.kind, mount.network) == (kind, network)


@pytest.mark.proves("R83", "R84", "R85")
@pytest.mark.parametrize(
    ("mount", "deploys", "level"),
    [
        (Mount("/", "ext4", "/dev/sda1"), True, "ok"),
        (Mount("/srv", "nfs", "server:/"), False, "fault"),
        (Mount("/", "overlay", "overlay"), True, "fault"),
        (Mount("/", "overlay", "overlay"), False, "note"),
        (Mount("/tmp", "tmpfs", "tmpfs"), True, "note"),
    ],
)
def test_doctor_judges_a_file_system_by_its_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mount: Mount, deploys: bool, level: str
) -> None:
    monkeypatch.setattr(checks, "mount_of", lambda _: mount)
    found = [f for f in checks._place(tmp_path / "journal.db", deploys=deploys) if f.what == "file system"]
    assert [f.level for f in found] == [level]


@pytest.mark.proves("R85")
def test_a_database_file_that_is_itself_mounted_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    db = tmp_path / "journal.db"
    db.touch()
    monkeypatch.setattr(checks, "mount_of", lambda path: Mount(os.path.realpath(path), "ext4", "/dev/sda1"))
    assert "mount its folder" in [f.remedy for f in checks._place(db, deploys=False) if f.level == "fault"]


@pytest.mark.proves("R86")
@pytest.mark.parametrize(
    ("version", "bad"),
    [
        ((3, 6, 23), False), ((3, 7, 0), True), ((3, 40, 1), True), ((3, 44, 5), True), ((3, 44, 6), False),
        ((3, 45, 0), True), ((3, 50, 6), True), ((3, 50, 7), False), ((3, 51, 2), True), ((3, 51, 3), False),
        ((3, 53, 0), False),
    ],
)  # fmt: skip
def test_versions_of_sqlite_with_the_wal_reset_bug_are_known(version: tuple[int, ...], bad: bool) -> None:
    assert wal_reset_bug(version) is bad


def test_the_local_token_is_for_its_user_only(cli: Cli, tmp_path: Path) -> None:
    with service(tmp_path / "journal.toml"):
        token = lock_folder(tmp_path / "journal.db") / "local-token"
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        assert "answers 200" in findings(cli.json("doctor"), "service")[0][1]
        assert token.read_text() not in cli("doctor")
