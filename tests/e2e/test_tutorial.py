"""The tutorial is true: every block a reader is told to type is run, in order, in one folder."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import need_tool

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "index.md"


def blocks() -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", TUTORIAL.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.proves("FR-4", "E1", "E5", "R17")
def test_a_reader_who_types_the_tutorial_survives_a_kill_in_the_middle_of_a_step(tmp_path: Path) -> None:
    need_tool("curl")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = "set -eu\n" + "\necho '=== next'\n".join(blocks()).replace("8431", str(port))
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "160"}
    process = subprocess.Popen(
        ["bash", "-c", script], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=150)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its own session: what it left running, too
    assert process.returncode == 0, said
    parts = said.split("=== next\n")
    killed, explained, after, counted, kept = parts[3:8]
    assert "in_doubt" in killed
    assert "attempt 1" in explained
    assert re.search(r"open\s+ours\s+converge", after)
    assert counted.split()[0] == "1"
    assert "chain, order, guards and invariants hold" in kept
    assert (tmp_path / "REL-1.html").stat().st_size > 10_000
