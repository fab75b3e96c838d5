"""docs/how-to/postgresql.md, typed from top to bottom on a server of its own by somebody who has nothing yet."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from integrations.cli.app import main
from tests.contract.test_cli_writes import OPEN, service
from tests.doubles.postgres import Postgres, new_server
from tests.lived import ROOT, lived

PAGE = (ROOT / "docs" / "how-to" / "postgresql.md").read_text("utf-8")
PIPELINE = """
[pipeline]
stages = ["a", "b", "c"]
edges = [{ from = "a", to = "b" }, { from = "b", to = "c" }]
[steps]
[gates]
"""


def blocks(language: str) -> list[str]:
    return [re.sub(r"(?m)^ +", "", text) for text in re.findall(rf"(?ms)^ *```{language}\n(.*?)^ *```", PAGE)]


@pytest.fixture
def server() -> Iterator[Postgres]:
    with new_server() as made:
        yield made


class Reader:
    """A person in a folder with a configuration and the DSN of a role."""

    def __init__(self, server: Postgres, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._server, self._folder, self._monkeypatch = server, folder, monkeypatch
        monkeypatch.chdir(folder)

    def becomes(self, role: str, database: str = "journal") -> None:
        """The DSN lies in a file, as the page advises."""
        file = self._folder / "dsn"
        file.write_text(f"postgresql://{role}:any-password@127.0.0.1:{self._server.port}/{database}")
        file.chmod(0o600)
        self._monkeypatch.setenv("ORCH_DSN_FILE", str(file))

    def types(self, block: str, *, code: int = 0) -> None:
        for line in block.splitlines():
            if line.startswith("journal ") and line != "journal serve":
                with pytest.raises(SystemExit) as ended:
                    main(shlex.split(line)[1:])
                assert (ended.value.code or 0) == code, line


@pytest.mark.proves("M4", "NFR-3")
def test_the_page_leads_from_nothing_to_hosts_that_work_and_back_from_a_lost_end(
    server: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roles, admit, standbys = blocks("sql")
    init, start, _, move, back_up, lost = blocks("sh")  # the one left out says that a machine is gone for good
    (toml,) = blocks("toml")
    here, there, moved = (tmp_path / name for name in ("here", "there", "moved"))
    for folder in (here, there, moved):
        folder.mkdir()
        (folder / "journal.toml").write_text(toml + PIPELINE)

    for statement in roles.split(";")[:-1]:
        server.sql(statement)
    one = Reader(server, here, monkeypatch)
    one.becomes("journal_owner")
    one.types(init)
    server.sql(admit, "journal", "journal_owner")

    one.becomes("journal_service")
    one.types(start)
    with service(here / "journal.toml"):
        two = Reader(server, there, monkeypatch)
        with service(there / "journal.toml"):
            two.types(f"journal open T-1 {shlex.join(OPEN)}\njournal advance T-1")
            one = Reader(server, here, monkeypatch)
            one.types("journal advance T-1\njournal inspect T-1")
        one.types(start)
    assert server.sql("SELECT count(*) FROM journal_events WHERE kind = 'stage_moved'", "journal") == "2"

    server.sql(standbys.splitlines()[0])
    server.sql("ALTER SYSTEM RESET synchronous_standby_names")
    one.types(back_up.replace("/backups", str(tmp_path)))
    one.types(lost)
    one.types("journal verify\njournal inspect T-1")

    server.sql("CREATE DATABASE moved OWNER journal_owner")
    lived(moved / "old.db")
    mover = Reader(server, moved, monkeypatch)
    mover.becomes("journal_owner", "moved")
    mover.types(move)
    server.sql(admit, "moved", "journal_owner")
    mover.becomes("journal_service", "moved")
    mover.types("journal doctor\njournal verify")
