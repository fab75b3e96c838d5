"""Random SIGKILLs of a process that drives six tasks at once, over and over: everything exactly once (T8)."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from recovery.verify import verify
from tests.conftest import Counts

LOOP = Path(__file__).with_name("kill_loop.py")


@pytest.mark.proves("T8", "TR-3", "FR-4", "E1", "I23")
def test_a_process_killed_over_and_over_does_everything_exactly_once(tmp_path: Path, counts: Counts) -> None:
    kills = counts.of(10, ci=100, most=1000)
    told = killed(tmp_path, kills)
    assert told["killed"] == kills
    assert told["effects"] == told["keys"] and told["calls"] == [1], told
    with closing(sqlite3.connect(tmp_path / "journal.db")) as db:
        assert verify(db).intact


@pytest.mark.proves("T3", "E1", "E3")
@pytest.mark.parametrize("broken", ["intent-late", "epoch-in-the-key"])
def test_a_broken_product_is_seen_by_the_kills(tmp_path: Path, broken: str) -> None:
    told = killed(tmp_path, 6, broken)
    assert told["effects"] != told["keys"] or told["calls"] != [1], told


def killed(folder: Path, kills: int, *broken: str) -> dict[str, Any]:
    ran = subprocess.run(
        [sys.executable, str(LOOP), str(folder), "7", str(kills), *broken],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(LOOP.parents[2])},
    )
    assert ran.returncode == 0, ran.stderr
    told: dict[str, Any] = json.loads(ran.stdout)
    return told
