from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from integrations.http.app import create_app
from integrations.http.auth import Tokens
from integrations.http.shapes import (
    DifferenceDocument,
    EventsDocument,
    ExplainDocument,
    ProblemDocument,
    QueueDocument,
    TaskDocument,
    TasksDocument,
)
from tests.contract.http_service import AUTH, HEAD, LOCAL, OPERATOR, RealService, a_service

NEW = {"task": "T-1", "repo": "acme/widgets", "branch": "feature/one", "head": HEAD}


def client_of(service: RealService, *, reading: bool = False) -> httpx.AsyncClient:
    app = create_app(service, Tokens(OPERATOR, LOCAL, reading))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://journal")


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[RealService]:
    async with a_service(tmp_path) as running:
        yield running


@pytest.fixture
async def client(service: RealService) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(service) as c:
        yield c


async def opened(client: httpx.AsyncClient, *tasks: str) -> None:
    for task in tasks:
        answer = await client.post("/tasks", json=NEW | {"task": task}, headers=AUTH)
        assert answer.status_code == 201, answer.text


def is_problem(answer: httpx.Response, status: int, slug: str = "") -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    ProblemDocument.model_validate(body)
    assert body["status"] == status
    if slug:
        assert body["type"].endswith(f":{slug}")
    return body


# -- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.proves("FR-6", "O6")
async def test_the_queue_lists_open_tasks_by_stage_entry_and_states_its_position(client: httpx.AsyncClient) -> None:
    await opened(client, "T-1", "T-2", "T-3")
    assert (await client.post("/tasks/T-1/advance?wait=10", headers=AUTH)).status_code == 200
    queue = (await client.get("/queue")).json()
    QueueDocument.model_validate(queue)
    assert [t["task"] for t in queue["tasks"]] == ["T-2", "T-3", "T-1"]
    assert queue["counts"] == {"review": 2, "deploy": 1}
    events = (await client.get("/tasks/T-1/events")).json()["events"]
    assert queue["position"] == events[-1]["position"]
    assert queue["next_cursor"] is None


@pytest.mark.proves("FR-6")
async def test_a_held_task_shows_its_holder_alive_and_its_open_intent_until_it_ends(
    client: httpx.AsyncClient, service: RealService
) -> None:
    await opened(client, "T-1")
    service.step.gate.clear()
    started = await client.post("/tasks/T-1/advance", json={"expect": "review"}, headers=AUTH)
    assert started.status_code == 202
    assert started.json() == {"task": "T-1", "state": "running"}
    await service.step.entered.wait()
    block = (await client.get("/queue")).json()["transition_ownership"]
    (held,) = block["held"]
    assert (held["task"], held["epoch"], held["step"], held["alive"], held["in_doubt"]) == (
        "T-1",
        1,
        "merge_pr",
        True,
        True,
    )
    assert (held["from_stage"], held["to_stage"]) == ("review", "deploy")
    assert held["owner"]["actor"] == "operator" and held["owner"]["pid"] > 0
    assert held["acquired_at"].endswith("Z") and held["age_s"] >= 0
    # A second one defers, is told who holds it, and is counted.
    problem = is_problem(await client.post("/tasks/T-1/advance?wait=10", headers=AUTH), 409, "held")
    assert problem["holder"].startswith("operator@")
    service.step.gate.set()
    await service.runs[0]
    after = (await client.get("/queue")).json()["transition_ownership"]
    assert after["held"] == []
    assert after["deferred"] == {"operator": 1}
    assert after["reclaims"] == {"gone": 0, "budget": 0, "operator": 0}


async def test_pages_of_the_queue_meet_without_gap_or_overlap(client: httpx.AsyncClient) -> None:
    names = [f"T-{n}" for n in range(7)]
    await opened(client, *names)
    for path in ("/queue", "/tasks"):
        seen, cursor = [], 0
        while True:
            page = (await client.get(path, params={"limit": 3, "cursor": cursor})).json()
            seen += [t["task"] for t in page["tasks"]]
            if not (cursor := page["next_cursor"] or 0):
                break
        assert sorted(seen) == names


async def test_tasks_are_filtered_by_repository_stage_and_status(client: httpx.AsyncClient) -> None:
    await opened(client, "T-1", "T-2")
    await client.post("/tasks", json=NEW | {"task": "T-3", "repo": "acme/other"}, headers=AUTH)
    await client.post("/tasks/T-1/advance?wait=10", headers=AUTH)
    await client.post("/tasks/T-1/advance?wait=10", headers=AUTH)

    async def found(**filters: str) -> list[str]:
        answer = (await client.get("/tasks", params=filters)).json()
        TasksDocument.model_validate(answer)
        return [t["task"] for t in answer["tasks"]]

    assert await found() == ["T-3", "T-2", "T-1"]
    assert await found(repo="acme/other") == ["T-3"]
    assert await found(status="done") == ["T-1"]
    assert await found(status="free") == ["T-3", "T-2"]
    assert await found(stage="done") == ["T-1"]
    assert await found(stage="nowhere") == []
    assert [t["task"] for t in (await client.get("/queue?repo=acme/other")).json()["tasks"]] == ["T-3"]


async def test_one_task_and_its_events_are_what_the_log_holds(client: httpx.AsyncClient, service: RealService) -> None:
    await opened(client, "T-1")
    await client.post("/tasks/T-1/advance?wait=10", headers=AUTH)
    task = (await client.get("/tasks/T-1")).json()
    TaskDocument.model_validate(task)
    assert (task["stage"], task["status"], task["alive"]) == ("deploy", "free", False)
    told = (await client.get("/tasks/T-1/events")).json()
    EventsDocument.model_validate(told)
    stored = await service.reader.events(task="T-1")
    assert [(e["position"], e["hash"]) for e in told["events"]] == [(e.position, e.hash.hex()) for e in stored]
    assert [e["body"] for e in told["events"]] == [json.loads(e.body_text) for e in stored]
    later = (await client.get("/tasks/T-1/events", params={"after": stored[2].version})).json()
    assert [e["version"] for e in later["events"]] == [e.version for e in stored[3:]]


async def test_the_queue_as_of_a_position_equals_what_it_said_then(client: httpx.AsyncClient) -> None:
    answers = []
    await opened(client, "T-1", "T-2")
    for _ in range(3):
        answers.append((await client.get("/queue")).json())
        await client.post("/tasks/T-1/advance?wait=10", headers=AUTH)
        await client.post("/tasks/T-2/advance?wait=10", headers=AUTH)
    for then in answers:
        now = (await client.get("/queue", params={"at": str(then["position"])})).json()
        assert (now["position"], now["counts"], now["tasks"]) == (then["position"], then["counts"], then["tasks"])
    empty = (await client.get("/queue", params={"at": "1999-01-01T00:00:00Z"})).json()
    assert (empty["position"], empty["tasks"]) == (0, [])
    last = answers[-1]["position"]
    (event,) = [e for e in (await client.get("/tasks/T-2/events")).json()["events"] if e["position"] == last]
    moment = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=event["at"])
    then = (await client.get("/queue", params={"at": moment.isoformat()})).json()
    assert (then["position"], then["tasks"]) == (last, answers[-1]["tasks"])
    is_problem(await client.get("/queue?at=999999"), 422)
    is_problem(await client.get("/queue?at=yesterday"), 422)
    is_problem(await client.get("/queue?at=2026-11-29T12:00:00"), 422)


@pytest.mark.proves("O6")
async def test_the_difference_of_two_points_names_each_task_that_is_not_the_same(client: httpx.AsyncClient) -> None:
    await opened(client, "T-1", "T-2", "T-3")
    then = (await client.get("/queue")).json()["position"]
    await opened(client, "T-4")
    await client.post("/tasks/T-1/advance?wait=10", headers=AUTH)
    await client.post("/tasks/T-2/cancel", json={"reason": "superseded"}, headers=AUTH)
    found = (await client.get("/queue/diff", params={"from": str(then)})).json()
    DifferenceDocument.model_validate(found)
    assert [(c["task"], c["change"], c["before"], c["after"]) for c in found["changes"]] == [
        ("T-1", "moved", "review free", "deploy free"),
        ("T-2", "ended", "review free", ""),
        ("T-4", "opened", "", "review free"),
    ]
    turned = (await client.get("/queue/diff", params={"from": str(found["to"]), "to": str(then)})).json()
    assert turned == found  # which of the two is named first does not matter
    since = (await client.get("/queue/diff", params={"from": "1h", "limit": "2"})).json()
    assert (since["from"], len(since["changes"]), since["left_out"]) == (0, 2, 1)
    for wrong in ({}, {"from": "soon"}, {"from": "0", "to": "999999"}, {"from": "2026-11-29T12:00:00"}):
        is_problem(await client.get("/queue/diff", params=wrong), 422)


async def test_explain_says_where_a_task_stands_and_what_may_be_done(client: httpx.AsyncClient) -> None:
    await opened(client, "T-1")
    told = (await client.get("/tasks/T-1/explain")).json()
    ExplainDocument.model_validate(told)
    assert told["stage"] == "review" and "T-1" in told["paragraph"]
    await client.post("/tasks/T-1/advance?wait=10", headers=AUTH)
    assert (await client.get("/tasks/T-1/explain")).json()["stage"] == "deploy"
    is_problem(await client.get("/tasks/T-9/explain"), 404, "unknown-task")


async def test_operations_answer(client: httpx.AsyncClient) -> None:
    assert (await client.get("/healthz")).json() == {"status": "ok"}
    assert (await client.get("/readyz")).json() == {"ready": True, "reason": "", "standby": False}
    assert (await client.get("/version")).json()["version"] == "c0ffee"


async def test_metrics_are_text_for_prometheus_and_json_with_a_schema_version(client: httpx.AsyncClient) -> None:
    await opened(client, "T-1")
    text = await client.get("/metrics")
    assert text.headers["content-type"].startswith("text/plain; version=")
    assert 'journal_open_tasks{stage="review"} 1.0' in text.text
    assert 'journal_reclaims_total{cause="gone"} 0.0' in text.text
    data = (await client.get("/metrics", headers={"Accept": "application/json"})).json()
    assert data["schema_version"] == 1
    assert data["open_tasks"] == {"review": 1}
    assert data["projection_lag"] == {"tasks": 0}


# -- writing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        f"Basic {OPERATOR}",
        f"Bearer {OPERATOR}x",
        f"Bearer {OPERATOR[:-1]}",
    ],
)
async def test_writing_without_the_right_token_is_refused_and_appends_nothing(
    client: httpx.AsyncClient, service: RealService, header: str | None
) -> None:
    before = await service.reader.head()
    headers = {} if header is None else {"Authorization": header}
    for path in ("/tasks", "/tasks/T-1/advance", "/transition-lease/release?work_item=T-1"):
        answer = await client.post(path, json=NEW if path == "/tasks" else {}, headers=headers)
        is_problem(answer, 401, "unauthorized")
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert await service.reader.head() == before


async def test_the_local_token_opens_as_well_and_an_unset_one_opens_nothing(service: RealService) -> None:
    async with client_of(service) as client:
        answer = await client.post("/tasks", json=NEW, headers={"Authorization": f"bearer {LOCAL}"})
        assert answer.status_code == 201
    app = create_app(service, Tokens())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://journal") as client:
        is_problem(await client.post("/tasks", json=NEW, headers={"Authorization": "Bearer "}), 401)


async def test_reading_needs_a_token_when_the_service_is_reachable_from_elsewhere(service: RealService) -> None:
    async with client_of(service, reading=True) as client:
        for path in ("/queue", "/tasks", "/tasks/T-1", "/tasks/T-1/events", "/events", "/metrics"):
            is_problem(await client.get(path), 401)
        assert (await client.get("/queue", headers=AUTH)).status_code == 200
        for path in ("/healthz", "/readyz", "/version"):
            assert (await client.get(path)).status_code == 200


async def test_guesses_are_told_to_wait_and_the_right_token_never_is(service: RealService) -> None:
    async with client_of(service, reading=True) as client:
        guesses = [await client.get("/queue", headers={"Authorization": f"Bearer {n}"}) for n in range(25)]
        assert [g.status_code for g in guesses] == [401] * 20 + [429] * 5
        is_problem(guesses[-1], 429, "too-many-failures")
        assert 0 < int(guesses[-1].headers["Retry-After"]) <= 60
        assert (await client.get("/queue", headers=AUTH)).status_code == 200
        is_problem(await client.get("/queue"), 401)  # a browser that has shown nothing yet guesses nothing


async def test_what_cannot_be_done_is_a_problem_with_the_right_status(client: httpx.AsyncClient) -> None:
    is_problem(await client.get("/tasks/T-9"), 404, "unknown-task")
    is_problem(await client.get("/tasks/T-9/events"), 404, "unknown-task")
    is_problem(await client.post("/tasks/T-9/advance", headers=AUTH), 404, "unknown-task")
    is_problem(await client.post("/transition-lease/release?work_item=T-9", headers=AUTH), 404, "unknown-task")
    is_problem(await client.get("/nowhere"), 404, "not-found")
    is_problem(await client.put("/tasks", headers=AUTH), 405, "method-not-allowed")
    await opened(client, "T-1")
    is_problem(await client.post("/tasks", json=NEW | {"task": "t-1"}, headers=AUTH), 409, "task-exists")
    lost = await client.post("/tasks/T-1/advance?wait=10", json={"expect": "deploy"}, headers=AUTH)
    assert is_problem(lost, 409, "lost-race")["stage"] == "review"
    is_problem(await client.post("/transition-lease/release?work_item=T-1", headers=AUTH), 409, "refused")
    for _ in range(2):
        assert (await client.post("/tasks/T-1/advance?wait=10", headers=AUTH)).json()["result"] == "advanced"
    is_problem(await client.post("/tasks/T-1/advance?wait=10", headers=AUTH), 409, "refused")


@pytest.mark.proves("R103", "FR-6")
async def test_a_stuck_ownership_is_released_by_hand_and_its_holder_fenced(
    client: httpx.AsyncClient, service: RealService
) -> None:
    await opened(client, "T-1")
    service.step.gate.clear()
    await client.post("/tasks/T-1/advance", headers=AUTH)
    await service.step.entered.wait()
    answer = await client.post("/transition-lease/release?work_item=T-1", json={"reason": "hangs"}, headers=AUTH)
    assert answer.status_code == 200, answer.text
    assert answer.json()["result"] == "freed" and answer.json()["epoch"] == 2
    assert (await client.get("/queue")).json()["transition_ownership"]["reclaims"]["operator"] == 1
    service.step.gate.set()
    done = await client.post("/tasks/T-1/advance?wait=20", headers=AUTH)
    assert done.json()["result"] == "advanced" and done.json()["epoch"] == 3


# -- hostile input ----------------------------------------------------------------------------------------------------

HOSTILE = [
    b"\xff\xfe",
    b"[]",
    b'"x"',
    b"null",
    b"{",
    b"[" * 50_000,
    b'{"a":' * 9_000,
    b'{"task": "T-1", "task": "T-2", "repo": "a/b", "branch": "x"}',
    b'{"task": "T-1", "repo": "a/b", "branch": "x", "pr": NaN}',
    b'{"task": "T-1", "repo": "a/b", "branch": "x", "pr": Infinity}',
    b'{"task": "T-1", "repo": "a/b", "branch": "x", "pr": 9223372036854775808}',
    b'{"task": "T-1", "repo": "a/b", "branch": "x", "pr": ' + b"9" * 5000 + b"}",
    b'{"task": "T-1", "repo": "a/b", "branch": "x", "pr": 1.0}',
    b'{"task": "T-1", "repo": "a/b", "branch": "x", "pr": true}',
    b'{"task": "T-1", "repo": "a/b", "branch": "x", "pr": "1"}',
    b'{"task": "T-1", "repo": "a/b", "branch": "x", "pr": -1}',
    b'{"task": "T-1", "repo": "a/b", "branch": "\\ud800"}',
    b'{"task": "T-1", "repo": "a/b", "branch": "x", "\\udfff": 1}',
    b'{"task": "T-1", "repo": "a/b", "branch": "x", "more": 1}',
    b'{"task": "T-1", "repo": "a/b", "branch": "--upload-pack=x"}',
    b'{"task": "../../x", "repo": "a/b", "branch": "x"}',
    b'{"task": "-rf", "repo": "a/b", "branch": "x"}',
    b'{"task": "a b;c", "repo": "a/b", "branch": "x"}',
    b'{"task": "T\\u0000", "repo": "a/b", "branch": "x"}',
    b'{"task": "T-1\\n", "repo": "a/b", "branch": "x"}',
    b'{"task": "T-1", "repo": "a/b\\u001b[31m", "branch": "x"}',
    b'{"task": "T-1", "repo": "a/b", "branch": "x", "head": "abc123"}',
    b'{"task": "T-1", "repo": "a/b", "branch": "x", "stage": "nowhere"}',
    b'{"task": "T-1", "repo": "a/b", "branch": "x", "actor": "\\u202e"}',
]


@pytest.mark.proves("R96", "R100", "R101", "R102")
@pytest.mark.parametrize("body", HOSTILE, ids=range(len(HOSTILE)))
async def test_a_hostile_body_is_refused_as_input_and_appends_nothing(
    client: httpx.AsyncClient, service: RealService, body: bytes
) -> None:
    before = await service.reader.head()
    is_problem(await client.post("/tasks", content=body, headers=AUTH), 422)
    assert await service.reader.head() == before
    assert (await client.get("/tasks")).json()["tasks"] == []


@pytest.mark.proves("R101")
async def test_a_large_body_is_refused_before_it_is_read_whole(client: httpx.AsyncClient) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for part in range(1000):
            assert part < 100, "went on reading"
            yield b" " * 8192

    is_problem(await client.post("/tasks", content=b" " * 1_000_000, headers=AUTH), 413)
    is_problem(await client.post("/tasks", content=endless(), headers=AUTH), 413)


@pytest.mark.parametrize(
    "path",
    [
        "/queue?limit=0",
        "/queue?limit=99999999999999999999",
        "/queue?limit=x",
        "/queue?cursor=-1",
        "/queue?cursor=9223372036854775808",
        "/queue?at=99999999999999999999",
        "/queue?at=%F0%9F%92%A9",
        "/queue?at=9999-12-31T23:59:59.999999-23:59x",
        "/tasks?cursor=1.5",
        "/tasks/%00",
        "/tasks/..%5C..%5Cx",
        "/tasks/T-1%0A",
        "/tasks/%FF%FE",
        "/tasks/%ED%A0%80",
        f"/tasks/{'x' * 65}",
        "/tasks/T-1/events?after=-1",
        "/tasks/T-1/events?after=9223372036854775808",
        "/events?task=%00",
        "/events?after=-1",
    ],
)
async def test_a_hostile_path_or_query_is_a_4xx_never_a_5xx(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert 400 <= answer.status_code < 500, answer.text
    is_problem(answer, answer.status_code)


async def test_filters_take_any_text_and_find_nothing(client: httpx.AsyncClient) -> None:
    for text in ("'; DROP TABLE journal_events; --", "\x00", "\u202e", "x" * 5000):
        for path in ("/queue", "/tasks"):
            answer = await client.get(path, params={"repo": text})
            assert answer.status_code == 200 and answer.json()["tasks"] == []


@pytest.mark.parametrize("wait", ["nan", "inf", "-1", "601", "x"])
async def test_a_wait_that_is_no_bounded_number_is_refused(client: httpx.AsyncClient, wait: str) -> None:
    await opened(client, "T-1")
    is_problem(await client.post(f"/tasks/T-1/advance?wait={wait}", headers=AUTH), 422)


# -- idempotency ------------------------------------------------------------------------------------------------------


async def test_the_same_key_gets_the_first_answer_again_and_writes_once(
    client: httpx.AsyncClient, service: RealService
) -> None:
    headers = AUTH | {"Idempotency-Key": "k-1"}
    first = await client.post("/tasks", json=NEW, headers=headers)
    before = await service.reader.head()
    again = await client.post("/tasks", json=NEW, headers=headers)
    assert (again.status_code, again.json(), again.headers["location"]) == (201, first.json(), "/tasks/T-1")
    assert again.headers["idempotency-replayed"] == "true"
    assert await service.reader.head() == before
    is_problem(await client.post("/tasks", json=NEW | {"task": "T-2"}, headers=headers), 422, "idempotency-key-reused")
    is_problem(await client.post("/tasks", json=NEW, headers=AUTH | {"Idempotency-Key": "x" * 256}), 422)


async def test_twins_that_arrive_together_are_one_run(client: httpx.AsyncClient, service: RealService) -> None:
    await opened(client, "T-1")
    headers = AUTH | {"Idempotency-Key": "k-2"}
    twins = [client.post("/tasks/T-1/advance?wait=10", headers=headers) for _ in range(5)]
    answers = await asyncio.gather(*twins)
    assert {a.status_code for a in answers} == {200}
    assert len({a.text for a in answers}) == 1
    assert len(service.runs) == 1


async def test_a_wait_that_is_over_leaves_the_run_alone(client: httpx.AsyncClient, service: RealService) -> None:
    await opened(client, "T-1")
    service.step.gate.clear()
    answer = await client.post("/tasks/T-1/advance?wait=0.05", headers=AUTH)
    assert (answer.status_code, answer.json()["state"]) == (202, "running")
    await service.step.entered.wait()
    service.step.gate.set()
    await service.runs[0]
    assert (await client.get("/tasks/T-1")).json()["stage"] == "deploy"


async def test_a_run_that_the_stopping_service_cancels_is_not_called_running(
    client: httpx.AsyncClient, service: RealService
) -> None:
    await opened(client, "T-1")
    service.step.gate.clear()
    asking = asyncio.create_task(client.post("/tasks/T-1/advance?wait=60", headers=AUTH))
    await service.step.entered.wait()
    service.runs[0].cancel()
    is_problem(await asking, 503, "stopping")
    assert (await client.get("/tasks/T-1")).json()["in_doubt"] is True


# -- standby and storage ----------------------------------------------------------------------------------------------


@pytest.mark.proves("S4")
async def test_a_standby_reads_and_says_who_drives(service: RealService, tmp_path: Path) -> None:
    async with client_of(service) as driving:
        await opened(driving, "T-1")
    async with a_service(tmp_path, write=False) as standby, client_of(standby) as client:
        assert [t["task"] for t in (await client.get("/queue")).json()["tasks"]] == ["T-1"]
        answer = await client.post("/tasks/T-1/advance", headers=AUTH)
        assert is_problem(answer, 503, "standby")["holder"].startswith("journal@")
        assert answer.headers["retry-after"]
        is_problem(await client.post("/tasks", json=NEW | {"task": "T-2"}, headers=AUTH), 503, "standby")
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.get("/healthz")).status_code == 200


async def test_every_answer_carries_safe_headers(client: httpx.AsyncClient) -> None:
    for answer in (await client.get("/queue"), await client.get("/nowhere"), await client.post("/tasks")):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


async def test_openapi_documents_every_route_with_its_shapes(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    for path in (
        "/queue", "/tasks", "/tasks/{task}", "/tasks/{task}/events", "/tasks/{task}/advance", "/events",
        "/tasks/{task}/explain", "/transition-lease/release", "/healthz", "/readyz", "/version", "/metrics",
    ):  # fmt: skip
        assert path in document["paths"]
    assert "QueueDocument" in document["components"]["schemas"]
    post = document["paths"]["/tasks"]["post"]
    assert "branch" in post["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert {"201", "401", "409", "413", "422", "503"} <= set(post["responses"])
