"""
There is no second way (TR-4): read from the source itself, so that a hidden path is found before it is ever walked.

Each table below names every place that may do something dangerous. A new place is a decision, not an accident.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("journal", "projections", "recovery", "integrations")

WRITERS_OF_STAGES = {
    "StageMoved": {"journal/engine.py"},
    "Opened": {"journal/journal.py"},
    "HeadChanged": {"journal/verbs.py"},
    "Reopened": {"journal/verbs.py"},
}
"""Who makes an event that changes a stage."""

WRITERS_OF_UNITS = {
    "journal/shell.py",  # a run
    "journal/verbs.py",  # an operator
    "journal/journal.py",  # the opening
    "recovery/auditor.py",  # notes, while nobody owns the task
    "recovery/sealer.py",  # the log's own stream
    "recovery/restore.py",  # the same
    "integrations/host/observe.py",  # the same
}

CALLERS_OF_APPLY = {
    "journal/shell.py": {"self._adapter(step)"},  # the one place that performs an effect
    "journal/advance.py": {"ports"},  # asks the shell
    "integrations/demo/crash.py": {"self._inner"},  # stands before the shell and kills the process
    "integrations/telemetry/spans.py": {"self._inner"},  # stands before the shell and measures
    "integrations/git/fresh.py": {"self._step"},  # an adapter around an adapter
    "journal/log/writer.py": {"projection"},  # views
    "journal/log/follower.py": {"projection"},  # the same, of what other hosts appended
    "journal/projection.py": {"projection"},
    "recovery/verify.py": {"projection"},
}

REMOVES = {
    "integrations/cli/export.py",  # a part of a file that was not finished
    "integrations/cli/init.py",  # a configuration of a moment ago
    "integrations/demo/build.py",  # the same of an artefact
    "integrations/deploy/markers.py",  # what was not yet a marker
    "integrations/git/locks.py",  # what a killed git left behind
    "integrations/host/observe.py",  # the mark that the switch was off
    "journal/log/anchor.py",  # a part
    "journal/log/backup.py",  # a part
    "journal/log/offline.py",  # a private copy
    "journal/log/poison.py",  # lifted by a person
    "journal/locks.py",  # who held a lock that is given back
    "recovery/importing.py",  # a part
    "recovery/restore.py",  # what lies beside a journal that is replaced
}
"""Whatever takes a file away. No key, marker or tag of an effect is among it: a probe looks for those (A6)."""

CONNECTS = {
    "journal/log/connection.py",
    "journal/log/sqlite.py",  # through the one above
    "journal/log/offline.py",  # a private copy
    "journal/log/backup.py",  # a copy
    "recovery/verify.py",  # in memory
    "integrations/alerts/lessons.py",  # a host's table of lessons
}

FOREIGN_TABLES = {
    ("integrations/host/table.py", "UPDATE"),  # the host's stage, compared and swapped
    ("integrations/alerts/lessons.py", "INSERT INTO"),  # a lesson
}
"""Who writes to a table that is not ours."""

# Not the event of a trigger: BEFORE UPDATE OR DELETE ON ...
_WRITES = re.compile(r"\b(UPDATE(?! O[RN]\b)|INSERT (?:OR \w+ )?INTO|REPLACE INTO|DELETE FROM)\s+(\S+)")


@dataclass(frozen=True)
class Source:
    """One module: its text, its calls by the last name of what is called, what its statements write (verb, table)."""

    text: str
    tree: ast.Module
    calls: Mapping[str, Sequence[ast.Call]]
    writes: Sequence[tuple[str, str]]


Sources = Mapping[str, Source]


def read(text: str) -> Source:
    tree, found = ast.parse(text), dict[str, list[ast.Call]]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            found.setdefault(name, []).append(node)
    writes = list(written(tree)) if _WRITES.search(text) else []
    return Source(text, tree, found, writes)


@pytest.fixture(scope="module")
def sources() -> Sources:
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {str(path.relative_to(ROOT)): read(path.read_text()) for path in files}


def callers(sources: Sources, name: str) -> set[str]:
    return {file for file, source in sources.items() if name in source.calls}


def matching(sources: Sources, pattern: str) -> set[str]:
    found = re.compile(pattern, re.MULTILINE)
    return {file for file, source in sources.items() if found.search(source.text)}


def texts(tree: ast.AST) -> Iterator[str]:
    """Every text in the source, with `{}` where something is put in; docstrings too."""
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


def docstrings(tree: ast.AST) -> set[str]:
    """Texts that only explain."""
    bodies = (getattr(node, "body", None) for node in ast.walk(tree))
    statements = (statement for body in bodies if isinstance(body, list) for statement in body)
    values = (s.value for s in statements if isinstance(s, ast.Expr))
    return {v.value for v in values if isinstance(v, ast.Constant) and isinstance(v.value, str)}


def written(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(verb, table) of every statement that writes."""
    explains = docstrings(tree)
    for text in texts(tree):
        if text not in explains:
            for verb, table in _WRITES.findall(text):
                if table not in ("SET", "ON"):  # an upsert's, a trigger's
                    yield verb, table.strip('"(')


@pytest.mark.proves("TR-4", "FR-2", "I12")
@pytest.mark.parametrize("event", WRITERS_OF_STAGES)
def test_an_event_that_changes_a_stage_is_made_in_one_place(sources: Sources, event: str) -> None:
    assert callers(sources, event) == WRITERS_OF_STAGES[event]
    assert matching(sources, rf"\b{event} as \w") == set()


@pytest.mark.proves("TR-4", "L3")
def test_units_are_written_by_named_places_only(sources: Sources) -> None:
    assert callers(sources, "Unit") <= WRITERS_OF_UNITS


@pytest.mark.proves("TR-4", "FR-2", "NFR-3")
def test_only_one_statement_writes_a_hosts_stage_and_it_compares(sources: Sources) -> None:
    found = ((file, verb, table) for file, source in sources.items() for verb, table in source.writes)
    assert {(f, verb) for f, verb, table in found if not table.startswith("journal_")} == FOREIGN_TABLES
    updates = [t for t in texts(sources["integrations/host/table.py"].tree) if "UPDATE" in t]
    assert updates == ['UPDATE "{}" SET "{}" = ? WHERE "{}" = ? AND "{}" = ?']


@pytest.mark.proves("TR-4", "L2", "L3")
def test_events_are_inserted_by_the_writer_and_by_an_import_into_an_empty_file(sources: Sources) -> None:
    found = {
        (file, verb) for file, source in sources.items() for verb, table in source.writes if table == "journal_events"
    }
    assert found == {
        ("journal/log/rows.py", "INSERT INTO"),
        ("journal/log/postgres/schema.py", "INSERT INTO"),  # inside the server's own function that appends
    }
    assert matching(sources, r"\bimport INSERT\b|^from journal.log.rows import .*\bINSERT\b") == {
        "journal/log/writer.py",
        "journal/log/follower.py",  # what a server's log holds already
        "recovery/importing.py",  # an export back into an empty file that nobody has open
    }


@pytest.mark.proves("TR-4", "S4")
def test_the_file_is_opened_in_named_places_only(sources: Sources) -> None:
    assert matching(sources, r"\b(sqlite3|dbapi2|aiosqlite)\.(connect|Connection)\(") <= CONNECTS
    assert matching(sources, r"^\s*from (sqlite3|aiosqlite)[\w.]* import") == set()


@pytest.mark.proves("TR-4", "F3")
def test_only_the_shell_performs_an_effect(sources: Sources) -> None:
    found = {
        file: {ast.unparse(c.func.value) for c in source.calls["apply"] if isinstance(c.func, ast.Attribute)}
        for file, source in sources.items()
        if "apply" in source.calls
    }
    assert found == CALLERS_OF_APPLY


@pytest.mark.proves("A6")
def test_nothing_takes_away_what_a_probe_will_look_for(sources: Sources) -> None:
    """A task can be reopened at any time; its markers, tags and keys are the world's memory of what was done."""
    files = {file for name in ("unlink", "rmtree", "rmdir", "removedirs") for file in callers(sources, name)}
    assert files == REMOVES
    removing = r"""["'](update-ref|tag|push|branch)["'],\s*["'](-d|-D|--delete|--prune)["']"""
    assert matching(sources, removing) == set()
    # The one image that is removed is the name of a build's own attempt; the tag that a probe asks for stays.
    assert matching(sources, r"""["'](image|system|builder)["'],\s*["'](rm|prune)["']""") == {
        "integrations/image/step.py"
    }


@pytest.mark.proves("TR-4", "NFR-2")
def test_the_hosts_plain_update_is_called_by_the_bridge_alone(sources: Sources) -> None:
    assert callers(sources, "set_stage") == {"integrations/host/bridge.py"}
    adopted = read((ROOT / "tests/example_host/adopted.py").read_text())
    assert "set_stage" not in adopted.calls
    assert [table for _, table in adopted.writes if table == "tasks"] == []


def test_a_hidden_path_would_be_found() -> None:
    """The test's own eyes."""
    hidden = read('"""UPDATE nothing"""\ndb.execute(f"UPDATE {table} SET stage = ?")\nevents.StageMoved("a", "b")\n')
    assert list(hidden.writes) == [("UPDATE", "{}")]
    assert len(hidden.calls["StageMoved"]) == 1
