"""Two `journal serve` of two hosts on one server and one repository: both drive, each merge lands once (M2, M4)."""

from __future__ import annotations

import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from integrations.demo.scenery import BASE, Scenery, build_scenery
from integrations.demo.stage import Stage
from tests.e2e.services import Running, Services, open_task, services

TASKS = 5


def host(folder: Path, scenery: Scenery, dsn: str) -> Stage:
    """A host's own folder and configuration, over the common repository."""
    folder.mkdir()
    note = 'echo "$2" >> "$0/$1"'
    notes = folder.parent / "notes"
    notes.mkdir(exist_ok=True)
    stage = Stage(folder, scenery)
    stage.config.write_text(
        f"""
[journal]
db = "{stage.db.name}"
engine = "postgres"
dsn = "{dsn}"

[pipeline]
stages = ["review", "noted", "done"]

[[pipeline.edges]]
from = "review"
to = "noted"
advance = "auto"
steps = ["merge_pr"]

[[pipeline.edges]]
from = "noted"
to = "done"
advance = "auto"
steps = ["note"]

[steps.merge_pr]
use = "git-merge"
retry_s = 0.1

[steps.note]
use = "command"
guard = "probed"
drain_s = 0.5
budget_s = 30
retry_s = 0.1
apply = ["sh", "-c", '{note}', "{notes}", "{{task}}", "{{key}}"]
probe = ["sh", "-c", 'test -s "$0/$1" && exit 0; exit 10', "{notes}", "{{task}}"]

[integrations.git.repositories]
"acme/widgets" = "{scenery.repository}"
""",
        "utf-8",
    )
    return stage


def merges(scenery: Scenery) -> int:
    argv = ["git", "-C", str(scenery.repository), "rev-list", "--count", "--first-parent", f"{scenery.main}..{BASE}"]
    return int(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


@pytest.mark.proves("M2", "M4", "R99", "I23")
def test_two_services_share_a_log_and_one_goes_on_when_the_other_is_killed(tmp_path: Path, database: str) -> None:
    (tmp_path / "forge").mkdir()
    scenery = build_scenery(tmp_path / "forge", TASKS)
    stages = [host(tmp_path / name, scenery, database) for name in ("one", "two")]
    with ExitStack() as stack:
        groups: list[Services] = [stack.enter_context(services(stage)) for stage in stages]
        first, second = (group.start() for group in groups)
        for service in (first, second):
            service.wait_for("/readyz")
        tasks = [open_task((first, second)[n % 2], stages[n % 2], n) for n in range(1, TASKS)]
        for task in tasks:
            first.wait_for_stage(task, "done")
            assert second.wait_for_stage(task, "done")["version"]
        second.kill(signal.SIGKILL)
        second.wait()
        last = open_task(first, stages[0], TASKS)
        first.wait_for_stage(last, "done")
        owners = owners_of(first, tasks)
        alone = owners_of(first, [last])
    assert merges(scenery) == TASKS
    assert [len((tmp_path / "notes" / task).read_text().splitlines()) for task in (*tasks, last)] == [1] * TASKS
    assert owners and len(alone) == 1


def owners_of(service: Running, tasks: list[str]) -> set[str]:
    """The processes that owned any of them."""
    events = [event for task in tasks for event in service.get(f"/tasks/{task}/events").json()["events"]]
    return {event["body"]["owner"]["instance"] for event in events if event["kind"] == "acquired"}
