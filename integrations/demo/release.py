"""
The demo's deploy command: make a commit the current one and end the running service, which its parent starts again.

    python -m integrations.demo.release FOLDER DATABASE COMMIT

The deploy that is under test kills the orchestrator that asked for it. Each run adds a line to `releases.log`: what the
demo counts at the end is that log and the deployer's ledger, not the journal.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path


def main(argv: list[str]) -> int:
    """Release one commit."""
    folder, database, commit = Path(argv[0]), Path(argv[1]), argv[2]
    folder.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"key": os.environ.get("TRANSITION_KEY", ""), "commit": commit})
    with (folder / "releases.log").open("a") as log:
        log.write(line + "\n")
        log.flush()
        os.fsync(log.fileno())
    part = folder / "current.part"
    part.write_text(commit + "\n", "ascii")
    part.replace(folder / "current")
    _end_service(database)
    return 0


def _end_service(database: Path) -> None:
    """By pidfd, after checking the start ticks that the service left in its lock file: never a stranger."""
    try:
        holder = json.loads((database.with_name(database.name + ".locks") / "writer.lock").read_bytes())
        fd = os.pidfd_open(holder["pid"])
    except (OSError, ValueError, KeyError):
        return  # nobody runs: the next start reads the new commit anyway
    try:
        if _start_ticks(holder["pid"]) == holder["ticks"]:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGTERM)
    finally:
        os.close(fd)


def _start_ticks(pid: int) -> int:
    with suppress(OSError, ValueError, IndexError):
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        return int(stat[stat.rindex(")") + 2 :].split()[19])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
