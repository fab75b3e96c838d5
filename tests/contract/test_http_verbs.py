"""The operator's verbs over HTTP, on a real journal."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from integrations.http.app import create_app
from integrations.http.auth import Tokens
from integrations.http.shapes import ProblemDocument, VerbDocument
from journal.journal import NewTask
from journal.ports import Call, Finding, Reply
from journal.words import Fact, Outcome, evidence
from tests.contract.http_service import AUTH, HEAD, LOCAL, OPERATOR, FileStep, RealService, a_service

WHY = {"reason": "release freeze"}


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[RealService]:
    async with a_service(tmp_path) as running:
        assert running.journal is not None
        await running.journal.open_task(NewTask("T-1", "acme/widgets", "feature/one", head=HEAD), actor="operator")
        yield running


@pytest.fixture
async def client(service: RealService) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(service, Tokens(OPERATOR, LOCAL))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://journal", headers=AUTH) as c:
        yield c


async def kinds(client: httpx.AsyncClient) -> list[str]:
    return [e["kind"] for e in (await client.get("/tasks/T-1/events")).json()["events"]]


async def status(client: httpx.AsyncClient) -> str:
    return str((await client.get("/tasks/T-1")).json()["status"])


@pytest.mark.proves("FR-6", "R104")
async def test_pause_and_resume_are_events_with_actor_and_reason(client: httpx.AsyncClient) -> None:
    said = await client.post("/tasks/T-1/pause", json=WHY | {"actor": "night-shift"})
    assert said.status_code == 200, said.text
    assert VerbDocument.model_validate(said.json()).what == "paused"
    event = (await client.get("/tasks/T-1/events")).json()["events"][-1]
    assert (event["kind"], event["actor"], event["body"]) == ("paused", "night-shift", {"reason": "release freeze"})
    assert await status(client) == "paused"
    assert (await client.post("/tasks/T-1/resume", json=WHY)).status_code == 200
    assert await status(client) == "free"


@pytest.mark.proves("R104")
async def test_a_canceled_task_is_reopened_at_a_stage_in_a_new_generation(client: httpx.AsyncClient) -> None:
    assert (await client.post("/tasks/T-1/cancel", json=WHY)).json()["what"] == "canceled"
    again = await client.post("/tasks/T-1/reopen", json=WHY | {"stage": "review"})
    assert again.status_code == 200, again.text
    task = (await client.get("/tasks/T-1")).json()
    assert (task["status"], task["stage"], task["generation"]) == ("free", "review", 2)


async def test_what_does_not_fit_the_task_is_refused_with_the_reason(client: httpx.AsyncClient) -> None:
    refused = await client.post("/tasks/T-1/settle", json=WHY | {"as": "applied", "evidence": "seen on main"})
    assert refused.status_code == 409
    assert "only a parked task" in ProblemDocument.model_validate(refused.json()).detail
    unknown = await client.post("/tasks/T-1/reopen", json=WHY | {"stage": "nowhere"})
    assert unknown.status_code == 409
    assert "known: review, deploy, done" in unknown.json()["detail"]
    assert await kinds(client) == ["opened"]


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("pause", {}),
        ("pause", {"reason": "   "}),
        ("pause", {"reason": "x", "actor": "--force"}),
        ("pause", {"reason": "x", "surplus": 1}),
        ("cancel", {"reason": "a\u202eb"}),
        ("settle", {"reason": "x", "as": "perhaps", "evidence": "y"}),
        ("settle", {"reason": "x", "as": "applied", "evidence": ""}),
        ("reopen", {"reason": "x", "stage": "review", "head": "abc123"}),
    ],
)
async def test_a_body_that_says_nothing_usable_is_422_and_writes_nothing(
    client: httpx.AsyncClient, verb: str, body: dict[str, object]
) -> None:
    answer = await client.post(f"/tasks/T-1/{verb}", json=body)
    assert answer.status_code == 422, answer.text
    ProblemDocument.model_validate(answer.json())
    assert await kinds(client) == ["opened"]


@pytest.mark.parametrize("verb", ["pause", "resume", "retry", "cancel", "reopen", "settle"])
async def test_every_verb_wants_a_token_and_a_task_that_exists(client: httpx.AsyncClient, verb: str) -> None:
    body = WHY | {"settle": {"as": "applied", "evidence": "seen"}, "reopen": {"stage": "review"}}.get(verb, {})
    naked = await client.post(f"/tasks/T-1/{verb}", json=body, headers={"Authorization": "Bearer wrong"})
    assert naked.status_code == 401
    assert (await client.post(f"/tasks/T-9/{verb}", json=body)).status_code == 404
    assert await kinds(client) == ["opened"]


async def test_the_same_key_says_it_once(client: httpx.AsyncClient) -> None:
    key = {"Idempotency-Key": "pause-1"}
    first = await client.post("/tasks/T-1/pause", json=WHY, headers=key)
    second = await client.post("/tasks/T-1/pause", json=WHY, headers=key)
    assert second.json() == first.json()
    assert second.headers["idempotency-replayed"] == "true"
    assert await kinds(client) == ["opened", "paused"]


@pytest.mark.proves("V6")
async def test_a_parked_task_is_settled_by_what_a_person_found(
    client: httpx.AsyncClient, service: RealService, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unheard(self: FileStep, call: Call) -> Reply:
        return Reply(Outcome.UNKNOWN, evidence(error="no answer"))

    async def torn(self: FileStep, call: Call) -> Finding:
        return Finding(Fact.CONFLICT, evidence(source="folder"))

    with monkeypatch.context() as world:
        world.setattr(FileStep, "apply", unheard)
        world.setattr(FileStep, "probe", torn)
        parked = await client.post("/tasks/T-1/advance?wait=20")
    assert parked.json()["result"] == "parked", parked.text
    said = await client.post("/tasks/T-1/settle", json=WHY | {"as": "applied", "evidence": "main holds it"})
    assert said.status_code == 200, said.text
    settled = (await client.get("/tasks/T-1/events")).json()["events"][-1]
    assert (settled["kind"], settled["body"]["applied"], settled["step"]) == ("settled", True, "merge_pr")
    done = await client.post("/tasks/T-1/advance?wait=20")
    assert done.json()["result"] == "advanced", done.text
