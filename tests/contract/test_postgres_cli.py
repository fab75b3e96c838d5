"""The command line over a log on a server: made, moved into, read, verified and examined (DESIGN 10)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from integrations.cli.app import main
from tests.doubles.postgres import Postgres, free_port
from tests.lived import lived

CONFIG = """
[journal]
engine = "postgres"
dsn = "{dsn}"
standbys = {standbys}
[pipeline]
stages = ["a", "b", "c"]
edges = [{{from = "a", to = "b"}}, {{from = "b", to = "c"}}]
[steps]
[gates]
"""
OPEN = ("--repo", "acme/widgets", "--branch", "feature/one")


class Host:
    """The command line in this process, for one folder."""

    def __init__(self, folder: Path, dsn: str, capsys: pytest.CaptureFixture[str], standbys: int = 0) -> None:
        folder.mkdir()
        self.config, self.db, self._capsys = folder / "journal.toml", folder / "journal.db", capsys
        self.err = ""
        self.name(dsn, standbys)

    def name(self, dsn: str, standbys: int = 0) -> None:
        """Name a server."""
        self.config.write_text(CONFIG.format(dsn=dsn, standbys=standbys))

    def __call__(self, *argv: str, code: int | None = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["--config", str(self.config), *argv])
        out, self.err = self._capsys.readouterr()
        assert code is None or (ended.value.code or 0) == code, (out, self.err)
        return out

    def json(self, *argv: str, code: int | None = 0) -> Any:
        return json.loads(self(*argv, "--json", code=code))


NewHost = Callable[..., Host]


@pytest.fixture
def new_host(tmp_path: Path, database: str, capsys: pytest.CaptureFixture[str]) -> NewHost:
    def make(name: str, dsn: str = database, standbys: int = 0) -> Host:
        return Host(tmp_path / name, dsn, capsys, standbys)

    return make


@pytest.mark.proves("M4", "DC-4", "NFR-3")
def test_two_hosts_work_on_one_journal_and_each_sees_at_once_what_the_other_did(new_host: NewHost) -> None:
    one, two = new_host("one"), new_host("two")
    made = one.json("init")
    assert two.json("init")["journal"] == made["journal"]
    one("open", "T-1", *OPEN)
    two("advance", "T-1")
    assert one.json("inspect", "T-1")["stage"] == "b"
    one("advance", "T-1")
    assert two.json("inspect", "T-1")["stage"] == "c"
    heads = {json.dumps(host.json("verify")["head"]) for host in (one, two)}
    assert len(heads) == 1
    one.db.unlink()
    assert one.json("inspect", "T-1")["stage"] == "c"
    one.db.unlink()
    assert one.json("recover", "--plan")["token"]


@pytest.mark.proves("M4", "A1", "DC-4")
def test_a_journal_moves_from_a_file_to_a_server_with_every_hash_as_it_was(
    new_host: NewHost, tmp_path: Path, capsys: pytest.CaptureFixture[str], postgres: Postgres, database: str
) -> None:
    file = lived(tmp_path / "file.db")
    with pytest.raises(SystemExit):
        main(["--db", str(file), "export", "--out", str(tmp_path / "all.jsonl")])
    capsys.readouterr()
    host = new_host("host")
    told = host.json("import", str(tmp_path / "all.jsonl"))
    verified = host.json("verify", "--deep")
    assert verified["verified"] and verified["head"] == told["head"]
    host("export", "--out", str(tmp_path / "again.jsonl"))
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "all.jsonl").read_bytes()
    rows = postgres.sql("SELECT count(*) FROM journal_events", database.rpartition("/")[2])
    assert int(rows) == told["events"]
    host("import", str(tmp_path / "all.jsonl"), code=2)
    other = new_host("other")
    other("import", str(tmp_path / "all.jsonl"), code=2)
    assert "nothing is ever taken out" in other.err


@pytest.mark.proves("M4", "A3", "A2")
def test_verify_finds_what_was_changed_on_the_server_or_in_the_copy(
    new_host: NewHost, postgres: Postgres, database: str
) -> None:
    host = new_host("host")
    host("open", "T-1", *OPEN)
    assert host.json("verify")["anchored"] is True
    postgres.sql(
        "ALTER TABLE journal_events DISABLE TRIGGER journal_events_stay; "
        "UPDATE journal_events SET actor = 'somebody' WHERE position = 2; "
        "ALTER TABLE journal_events ENABLE ALWAYS TRIGGER journal_events_stay",
        database.rpartition("/")[2],
    )
    found = host.json("verify", code=1)
    assert (found["first"]["position"], found["first"]["invariant"]) == (2, "I1")
    assert "this host's copy" in found["first"]["detail"]


@pytest.mark.proves("M4", "FR-6")
def test_a_server_that_is_away_leaves_the_copy_to_read_and_says_so(new_host: NewHost, database: str) -> None:
    host = new_host("host")
    host("open", "T-1", *OPEN)
    host.name(database.replace(database.split(":")[2].split("/")[0], str(free_port())))
    assert host.json("inspect", "T-1")["stage"] == "a"
    assert "this host's copy as it is" in host.err
    host("open", "T-2", *OPEN, code=4)
    assert "cannot be reached" in host.err
    shutil.rmtree(host.db.parent / "journal.db.locks")
    host.db.unlink()
    host("queue", code=4)


@pytest.mark.proves("M4")
def test_doctor_tells_of_a_server_what_to_mend(new_host: NewHost, postgres: Postgres, database: str) -> None:
    def told(host: Host, what: str, code: int = 0) -> dict[str, str]:
        found = host.json("doctor", code=code)["findings"]
        return {f["level"]: f["found"] + f["remedy"] for f in found if f["what"] == what}

    host = new_host("host")
    assert "journal init" in told(host, "server's log")["note"]
    host("open", "T-1", *OPEN)
    assert "durable" in told(host, "server")["ok"]
    assert "at position 2 of 2" in told(host, "copy")["ok"]
    name = database.rpartition("/")[2]
    postgres.sql("CREATE ROLE outsider LOGIN", name)
    postgres.sql(f"ALTER DATABASE {name} SET synchronous_commit = off")
    assert "synchronous_commit" in told(host, "server", code=1)["fault"]
    postgres.sql(f"ALTER DATABASE {name} RESET synchronous_commit")
    try:
        host.name(postgres.dsn(name, "outsider"))
        assert "journal_admit" in told(host, "server's rights", code=1)["fault"]
        postgres.sql("SELECT journal_admit('outsider')", name)
        assert "durable" in told(host, "server")["ok"]
        host("advance", "T-1")
    finally:
        postgres.sql("DROP OWNED BY outsider; DROP ROLE outsider", name)
    host.name(database, standbys=1)
    assert "synchronous_standby_names" in told(host, "server", code=1)["fault"]


@pytest.mark.proves("M4")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[journal]\nengine = "postgres"\n', "dsn"),
        ('[journal]\ndsn = "postgresql://here/there"\n', 'engine = "postgres"'),
        ("[journal]\nstandbys = 1\n", 'engine = "postgres"'),
        ('[journal]\nengine = "postgres"\ndsn = "postgresql://here/there"\n[host]\ndb = "o.db"\n', "host's database"),
    ],
    ids=["no dsn", "a dsn without its engine", "standbys without the engine", "beside a host's database"],
)
def test_settings_that_contradict_each_other_are_refused(new_host: NewHost, text: str, why: str) -> None:
    host = new_host("host")
    host.config.write_text(text)
    host("queue", code=2)
    assert why in host.err


@pytest.mark.proves("M4")
def test_a_copy_is_backed_up_and_its_views_are_made_anew_beside_the_server(new_host: NewHost, tmp_path: Path) -> None:
    host = new_host("host")
    host("open", "T-1", *OPEN)
    host("backup", str(tmp_path / "copy.db"), "--verify")
    host("projections", "rebuild")
    assert host.json("verify", "--deep")["head"].startswith("2:")


@pytest.mark.proves("M4", "V8", "R92")
def test_after_a_lost_end_a_new_incarnation_begins_above_every_epoch_that_a_copy_knows(
    new_host: NewHost, postgres: Postgres, database: str
) -> None:
    one, two = new_host("one"), new_host("two")
    one("open", "T-1", *OPEN)
    two("queue")
    name = database.rpartition("/")[2]
    postgres.sql(f"CREATE DATABASE {name}_older TEMPLATE {name}")
    try:
        one("advance", "T-1")
        one("advance", "T-1")
        for host in (one, two):
            host.name(postgres.dsn(f"{name}_older"))
        one("open", "T-2", *OPEN, code=4)
        assert "lacks events 3 to" in one.err and "'A lost end'" in one.err
        assert "lacks" in one("doctor", code=1)
        done = one.json("restore", str(one.db))
        assert done["floor"] == 2 and done["lost"] == 6
        assert Path(done["kept"]).exists()
        assert two.json("inspect", "T-1")["stage"] == "a"
        two("advance", "T-1")
        assert max(event["epoch"] for event in two.json("inspect", "T-1")["events"]) == 3
        assert one.json("verify")["verified"] and one.json("inspect", "T-1")["stage"] == "b"
        one("restore", str(one.db))  # again: nothing is lost by it
    finally:
        postgres.sql(f"DROP DATABASE {name}_older WITH (FORCE)")


@pytest.mark.proves("M1", "M2")
def test_the_processes_that_shared_the_log_are_listed_with_their_last_words(new_host: NewHost) -> None:
    host = new_host("one")
    host("init")
    host("open", "T-1", *OPEN)
    (listed, *_) = host.json("hosts")["hosts"]
    assert listed["standing"] == "gone"
    assert listed["ended"] == "its runs and their children were seen to end"
    host("hosts", "--dead", "nobody", "--reason", "a rumour", code=2)
    assert "begins the id of no process" in host.err
    host.config.write_text('[journal]\ndb = "journal.db"\n')
    host("hosts", code=2)
    assert "kernel locks say who lives" in host.err


@pytest.mark.proves("M1")
def test_doctor_names_the_steps_whose_world_must_be_one_for_all_hosts(new_host: NewHost) -> None:
    """Another host that looks for a marker in a folder of its own sees none, and would deploy a second time."""
    host = new_host("one")
    host("init")
    tidy = '[steps.tidy]\nuse = "command"\napply = ["true"]\n'
    host.config.write_text(host.config.read_text().replace("[steps]", tidy))
    (found,) = [each for each in host.json("doctor", code=None)["findings"] if each["what"] == "several hosts"]
    assert found["level"] == "note"
    assert found["found"].startswith("tidy act on")
