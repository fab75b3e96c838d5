"""What the API says of itself, tried over a real service with what its description allows and with what it forbids."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from tests.conftest import Counts
from tests.e2e.test_worst_days import intact, new, running

ENDLESS = "/events"
"""A feed has no end; `test_http_server` listens to it."""
SECRETS = {"ORCH_GITEA_WEBHOOK_SECRET": "made-up-secret", "ORCH_PLANE_WEBHOOK_SECRET": "made-up-secret"}
NEIGHBOURS = """
[integrations.gitea]
url = "http://127.0.0.1:9"
[integrations.plane]
url = "http://127.0.0.1:9"
workspace = "acme"
project = "p"
"""
CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]


def strategies(operation: APIOperation[Any, Any, Any, Any]) -> Iterator[SearchStrategy[Case[Any]]]:
    """What is allowed, about a task of any name and about one that is there, and what is forbidden, if anything is."""
    yield operation.as_strategy()
    if "{task}" in operation.path:
        yield operation.as_strategy(path_parameters={"task": "T-1"})
    if operation.body or operation.query:
        yield operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)


@pytest.mark.proves("R96", "R101", "R102")
def test_no_request_that_the_description_allows_or_forbids_is_answered_by_a_bug(
    tmp_path: Path, counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No 5xx, no status and no body that the description does not know; the log stays whole."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    said: Counter[int] = Counter()
    with running(tmp_path, NEIGHBOURS) as at, requests.Session() as session:
        session.headers.update(at.token)
        for n in range(3):
            answer = session.post(f"{at.address}/tasks", data=json.dumps(new(f"T-{n}")), timeout=10)
            assert answer.status_code == 201
        schema = schemathesis.openapi.from_dict(session.get(f"{at.address}/openapi.json", timeout=10).json())
        results = list(schema.get_all_operations())
        operations = [result.ok() for result in results if isinstance(result, Ok)]
        assert len(operations) == len(results) > 20
        for cases in (each for o in operations if o.path != ENDLESS for each in strategies(o)):

            @given(case=cases)
            @settings(
                max_examples=counts.of(3, most=500), database=None, deadline=None, phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )  # fmt: skip
            def tried(case: Case[Any]) -> None:
                case.headers.pop("authorization", None)
                answer = case.call(base_url=at.address, session=session, timeout=30)
                said[answer.status_code] += 1
                case.validate_response(answer, checks=CHECKS)

            tried()
        assert session.get(f"{at.address}/readyz", timeout=10).status_code == 200
    assert intact(tmp_path / "journal.db")
    assert {200, 401, 404, 422} <= said.keys(), said
