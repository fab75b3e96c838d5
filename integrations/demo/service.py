"""The demo's service: the real one, with a crash point before its ports when the parent asks for one."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from integrations.demo.crash import CrashPoint, CrashPorts, crash_once
from integrations.serve import serve
from integrations.settings import load
from integrations.telemetry.logs import configure_logs
from journal.shell import Ports

CRASH = "JOURNAL_DEMO_CRASH"
"""STEP:POINT, set by the parent in the child's environment."""


def main() -> None:
    """`python -m integrations.demo.service CONFIG PORT`: serve until a signal."""
    config, port = Path(sys.argv[1]), int(sys.argv[2])
    settings = load(config)
    configure_logs(settings.environment.log_level, settings.environment.log_format)
    step, _, point = os.environ.get(CRASH, "").partition(":")
    die = crash_once(config.parent / "killed")
    where = CrashPoint(step, point)

    def wrap(ports: Ports, task: str) -> Ports:
        del task
        return CrashPorts(ports, where, die) if step else ports

    asyncio.run(serve(settings, port=port, wrap=wrap))


if __name__ == "__main__":
    main()
