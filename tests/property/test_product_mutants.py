"""
Wrong variants of the adapters and of the log, which the explorer cannot reach: one text changed in a copy of the
product, and the test that must fail (T3, ENGINE 7). Part of `make prove-ourselves`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
COPIED = ("journal", "projections", "recovery", "integrations", "tests", "docs", "pyproject.toml")


class Change(NamedTuple):
    """What is wrong, and who must notice."""

    file: str
    old: str
    new: str
    test: str


CHANGES = {
    "405 is a no": Change(
        "integrations/gitea/replies.py",
        '("already merged", Claim.DOUBT, "already_merged"),',
        '("already merged", Claim.REFUSED, "already_merged"),',
        "tests/unit/test_gitea_replies.py::test_each_reply_has_one_class",
    ),
    "git's exit 128 is a no": Change(
        "integrations/git/commands.py",
        "if done.code not in answers or",
        "if done.code not in (*answers, 128) or",
        "tests/contract/test_git_merge.py::test_a_damaged_history_is_unknown_and_not_absent",
    ),
    "COMMIT is tried again": Change(
        "journal/log/writer.py",
        "return self._settle_commit(answers, error)",
        'self._db.execute("COMMIT")\n            return answers',
        "tests/crash/test_commit_unknown.py::test_a_commit_that_failed_and_did_happen_is_found_and_answered_as_written",
    ),
    "REPLACE is allowed": Change(
        "journal/log/schema.py",
        "WHEN NEW.kind IN ('opened', 'acquired', 'intended', 'applied')",
        "WHEN NEW.kind IN ('nothing')",
        "tests/contract/test_event_table.py::test_nothing_takes_the_place_of_an_event_by_any_unique_key",
    ),
    "a marker whose deployer died is left to itself": Change(
        "integrations/deploy/launch.py",
        'if config.starts == "agent" or',
        "if True or",
        "tests/contract/test_deploy.py"
        "::test_an_initiator_killed_right_after_the_link_has_deployed_once_when_its_successor_starts",
    ),
    "a busy lock is taken": Change(
        "journal/locks.py",
        "except (BlockingIOError, FileNotFoundError):\n        taken = False",
        "except (BlockingIOError, FileNotFoundError):\n        taken = True",
        "tests/contract/test_ownership.py::test_of_two_processes_one_holds_the_task_until_it_dies",
    ),
    "a disk error is passed over": Change(
        "journal/log/writer.py",
        "            if primary_code(error) in DISK_ERRORS:\n                # What is absent",
        "            if False:\n                # What is absent",
        "tests/crash/test_commit_unknown.py::test_a_disk_error_stops_the_writer_until_a_person_has_looked",
    ),
    "a connection goes over a fork": Change(
        "journal/log/intake.py",
        "if os.getpid() == self._pid:",
        "if True:",
        "tests/contract/test_what_broke_for_others.py"
        "::test_a_journal_carried_over_a_fork_is_refused_in_the_child_and_whole_in_the_parent",
    ),
}


@pytest.mark.mutants
@pytest.mark.proves("T3")
@pytest.mark.parametrize("name", CHANGES)
def test_a_wrong_variant_of_the_product_is_noticed(name: str, tmp_path: Path) -> None:
    change = CHANGES[name]
    for part in COPIED:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
        copy(ROOT / part, tmp_path / part)
    file = tmp_path / change.file
    text = file.read_text()
    assert text.count(change.old) == 1, f"{change.file} no longer says so"
    assert passes(tmp_path, change.test)
    file.write_text(text.replace(change.old, change.new))
    assert not passes(tmp_path, change.test), "survives"


def passes(copy: Path, test: str) -> bool:
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-x", "-p", "no:cacheprovider", test]
    environment = os.environ | {"PYTHONPATH": str(copy)}
    ran = subprocess.run(command, check=False, cwd=copy, capture_output=True, text=True, env=environment)
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    return ran.returncode == 0
