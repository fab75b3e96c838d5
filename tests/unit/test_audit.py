"""The dependency audit: what runs is what is pinned and decided, and silence is never taken for clean."""

from __future__ import annotations

import re
from importlib.metadata import distributions

from tests.audit import ROOT, canonical, known_holes, pins, running, unpinned


def test_every_installed_package_is_the_pinned_one() -> None:
    installed = {canonical(d.metadata["Name"]): d.version for d in distributions()}
    assert unpinned(installed) == []
    assert unpinned({"httpx": "0.0.1", "stranger": "1"}) == [
        f"httpx 0.0.1 is installed, {pins()['httpx']} is pinned",
        "stranger 1 is installed, nothing is pinned",
    ]


def test_the_service_runs_on_what_was_decided_and_on_nothing_of_the_tests() -> None:
    decided = (ROOT / "docs" / "decisions" / "0002-packages-and-dependencies.md").read_text("utf-8")
    declared = {"aiosqlite", "fastapi", "httpx", "orjson", "pydantic", "structlog", "typer", "uvicorn"}
    found = running()
    assert declared < found and len(found) < 40
    assert not found & {"pytest", "hypothesis", "schemathesis", "requests", "mypy", "ruff"}
    assert all(re.search(rf"\b{name}\b", decided, re.IGNORECASE) for name in declared)


def test_a_package_that_the_service_of_holes_is_silent_about_is_not_clean() -> None:
    told: dict[str, object] = {
        "dependencies": [
            {"name": "a", "version": "1", "vulns": []},
            {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1"}]},
            {"name": "c", "skip_reason": "not found"},
        ]
    }
    assert known_holes(told) == (["b 2: PYSEC-1"], ["c"])
    assert known_holes({}) == ([], [])
