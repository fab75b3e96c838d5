"""
The disk fails at its n-th write, sync or truncation, for every n (T5); and power is cut at any moment (T6).

By a small library that stands before the C library of the process that delivers: the product's own SQLite writes
through it. (A VFS of another SQLite binding would test another SQLite than the one we use.)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Counts, need_tool

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("shim") / "disk.so"
    command = [str(need_tool("gcc", "cc")), "-shared", "-fPIC", "-O1", "-o", str(library), str(HERE / "disk.c"), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return library


def run(shim: Path, *argv: str) -> list[dict[str, Any]]:
    environment = os.environ | {"PYTHONPATH": str(HERE.parents[1]), "LD_PRELOAD": str(shim)}
    command = [sys.executable, str(HERE / "disk_faults.py"), *argv]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.mark.proves("T5", "S1", "S2", "S4", "E1", "I22", "I23")
@pytest.mark.parametrize("op", ["write", "sync", "truncate"])
def test_whichever_call_of_the_disk_fails_nothing_happens_unwritten_and_nothing_twice(
    shim: Path, tmp_path: Path, op: str
) -> None:
    found = run(shim, str(tmp_path), "fail", op, "1")
    assert [line["n"] for line in found] == list(range(1, len(found) + 1))
    assert found[-1]["first"] == 2, "the last one must find no call left to fail"
    for line in found:
        assert not line["during"]["unwritten"], line
        assert line["second"] == 0 and line["effects"] == 3 and line["calls"] == [1, 1, 1], line
    if op != "truncate":
        assert len(found) > 5
        assert any(line["first"] == 1 for line in found), "a failure must be told and not be passed over"


@pytest.mark.proves("T9", "S1", "E1", "I22", "I23")
def test_a_disk_that_turns_read_only_stops_everything_and_loses_nothing(shim: Path, tmp_path: Path) -> None:
    """From one change on every one is refused, as after an error of the file system; then it is mended."""
    found = run(shim, str(tmp_path), "fail", "read-only", "13")
    assert found[-1]["first"] == 2 and len(found) > 5
    for line in found[:-1]:
        assert not line["during"]["unwritten"], line
        assert line["second"] == 0 and line["effects"] == 3 and line["calls"] == [1, 1, 1], line
        assert line["first"] == 1 or line["during"]["effects"] == 3, f"passed over: {line}"


@pytest.mark.proves("T6", "S1", "S3", "I22", "I23", "R83")
def test_whatever_a_power_cut_leaves_is_recovered_and_nothing_is_done_twice(
    shim: Path, tmp_path: Path, counts: Counts
) -> None:
    """What is in the world has its intent in every image: that is what an intent before its effect is for."""
    _all_recovered(run(shim, str(tmp_path), "cut", "7", str(counts.of(40, most=5000))))


@pytest.mark.long
@pytest.mark.slice
@pytest.mark.proves("T6", "S1", "S3", "I22", "I23", "R83")
def test_every_image_that_a_power_cut_may_leave_is_recovered(shim: Path, tmp_path: Path) -> None:
    """Each subset of what is unsynced at each call, and each write torn at each sector; some two thousand images."""
    found = run(shim, str(tmp_path), "every", "1")
    assert len(found) > 1500
    _all_recovered(found)


def _all_recovered(found: list[dict[str, Any]]) -> None:
    for line in found:
        before = line["before"]
        assert not before["unwritten"], line
        assert line["second"] == 0 and line["effects"] == 3, line
        for was, earlier, calls in zip(before["there"], before["calls"], line["calls"], strict=True):
            # A call that was cut off before its effect reaches the far side again; one whose effect is there does not.
            assert calls == earlier + (not was), line
    assert {line["before"]["effects"] for line in found} >= {0, 1, 2, 3}
