"""SIGKILL at every crossing of every port of a six-step edge; fresh processes finish; effects are counted in files."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

KILLING = Path(__file__).with_name("killing.py")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: SIGKILL loses nothing that was written, synced or not."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.proves("TR-3", "FR-4", "FR-1", "E1", "V9", "T8", "I23", "R52")
def test_a_process_killed_anywhere_leaves_each_effect_done_exactly_once(memory: Path) -> None:
    """Every second victim's successor is killed as well, somewhere in its own recovery."""
    ran = subprocess.run(
        [sys.executable, str(KILLING), str(memory), "0", "1"],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert ran.returncode == 0, ran.stderr
    lines = [json.loads(line) for line in ran.stdout.splitlines()]

    assert [line["n"] for line in lines] == list(range(len(lines)))
    assert [line["lived"] for line in lines] == [False] * (len(lines) - 1) + [True]
    assert len(lines) > 50  # six steps cross at least ask, write, do and ask again, both ways
    for line in lines:
        assert set(line["calls"].values()) == {1}, line
        assert line["effects"] == 6, line
