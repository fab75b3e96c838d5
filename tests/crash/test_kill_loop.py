"""Random SIGKILLs of a process that drives six tasks at once, over and over: everything exactly once (T8)."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from recovery.verify import verify
from tests.conftest import Counts

LOOP = Path(__file__).with_name("kill_loop.py")


@pytest.mark.proves("T8", "TR-3", "FR-4", "E1", "I23")
def test_a_process_killed_over_and_over_does_everything_exactly_once(tmp_path: Path, counts: Counts) -> None:
    kills = counts.of(10, most=1000)
    ran = subprocess.run(
        [sys.executable, str(LOOP), str(tmp_path), "7", str(kills)],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(LOOP.parents[2])},
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert told["killed"] == kills
    assert told["effects"] == told["keys"] and told["calls"] == [1], told
    with closing(sqlite3.connect(tmp_path / "journal.db")) as db:
        assert verify(db).intact
