"""What a line of the log may hold: never a value that only stood in the locals of a traceback, never a secret."""

from __future__ import annotations

import subprocess
import sys

import pytest

TOKEN = "tok-7f3a90c1"

FAILING = """
import sys
from {module} import {set_up} as set_up
import structlog
{call}
def ask(token):
    raise OSError("the forge refused " + token[:0] + sys.argv[1])
try:
    ask({token!r})
except OSError:
    structlog.get_logger().warning("probe_failed", exc_info=True)
"""


def lines(module: str, set_up: str, call: str, quoted: str) -> str:
    """What a process of its own writes, since structlog is set up once a process."""
    source = FAILING.format(module=module, set_up=set_up, call=call, token=TOKEN)
    ran = subprocess.run([sys.executable, "-c", source, quoted], capture_output=True, text=True, check=True)
    return ran.stdout + ran.stderr


@pytest.mark.proves("NFR-1")
def test_a_traceback_shows_no_values_where_nobody_set_the_logs_up() -> None:
    said = lines("journal.logs", "leave_values_out", "set_up()", "us")
    assert "OSError: the forge refused us" in said and "in ask" in said
    assert TOKEN not in said.replace(f"ask({TOKEN!r})", "")


@pytest.mark.parametrize("form", ["console", "json"])
def test_a_secret_that_an_exception_quotes_is_taken_out_of_the_line(form: str) -> None:
    call = f"set_up('info', {form!r}, secrets=[{TOKEN!r}])"
    said = lines("integrations.telemetry.logs", "configure_logs", call, TOKEN)
    assert "OSError: the forge refused [redacted]" in said
    assert TOKEN not in said
