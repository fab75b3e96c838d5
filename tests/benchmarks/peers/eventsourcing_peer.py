"""
`eventsourcing`: an application on SQLite that saves one event of an aggregate at a time, as its documentation shows.

Usage: eventsourcing_peer.py FOLDER. Answers "appends N" with what N events took.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event

EVENTS_AN_AGGREGATE = 15
"""As many as a task has that moved over six steps."""

SEEN = "x" * 250
"""A body of about the same size as ours."""


class Task(Aggregate):
    """One stream."""

    @event("Noted")
    def note(self, number: int, seen: str) -> None:
        self.number = number


def append(app: Application[Any], events: int) -> dict[str, Any]:
    """Save so many events, each in a transaction of its own."""
    begun, cpu, done = time.perf_counter(), time.process_time(), 0
    while done < events:
        task = Task()
        app.save(task)
        done += 1
        for number in range(min(EVENTS_AN_AGGREGATE - 1, events - done)):
            task.note(number, SEEN)
            app.save(task)
            done += 1
    return {"operations": done, "seconds": time.perf_counter() - begun, "cpu_s": time.process_time() - cpu}


def main() -> None:
    folder = Path(sys.argv[1])
    app: Application[Any] = Application(
        env={"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(folder / "events.sqlite")}
    )
    for line in sys.stdin:
        print(json.dumps(append(app, int(line.split()[1]))), flush=True)


if __name__ == "__main__":
    main()
