"""The server dies under two working services and comes back: they say so, begin nothing, and then go on (M4, S5)."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from integrations.demo.scenery import build_scenery
from tests.doubles.postgres import new_server
from tests.e2e.services import open_task, services
from tests.e2e.test_hosts_service import TASKS, host, merges


@pytest.mark.long
@pytest.mark.proves("M4", "S5", "R81", "I23")
def test_services_outlive_a_server_that_is_killed_in_the_middle_and_each_effect_is_there_once(tmp_path: Path) -> None:
    (tmp_path / "forge").mkdir()
    scenery = build_scenery(tmp_path / "forge", TASKS)
    with ExitStack() as stack:
        server = stack.enter_context(new_server())
        server.sql("CREATE DATABASE j")
        stages = [host(tmp_path / name, scenery, server.dsn("j")) for name in ("one", "two")]
        first, second = (stack.enter_context(services(stage)).start() for stage in stages)
        for service in (first, second):
            service.wait_for("/readyz")
        tasks = [open_task((first, second)[n % 2], stages[n % 2], n) for n in range(1, TASKS + 1)]
        first.wait_for_stage(tasks[0], "noted", "done")  # the others are somewhere on their way
        server.kill()
        for service in (first, second):
            assert "has not heard from this process" in service.wait_for("/readyz", 503).text
            assert service.get("/queue").status_code == 200  # from its copy
        server.start()
        for service in (first, second):
            service.wait_for("/readyz")
            for task in tasks:
                service.wait_for_stage(task, "done")
    assert merges(scenery) == TASKS
    assert [len((tmp_path / "notes" / task).read_text().splitlines()) for task in tasks] == [1] * TASKS
