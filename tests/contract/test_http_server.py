"""The API over real sockets: uvicorn on loopback, the live feed, connections that go away."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from integrations.http.app import create_app
from integrations.http.auth import Tokens
from integrations.http.feed import LISTENERS
from journal.journal import NewTask
from tests.contract.http_service import AUTH, HEAD, LOCAL, OPERATOR, RealService, a_service

NEW = {"task": "T-1", "repo": "acme/widgets", "branch": "feature/one", "head": HEAD}


@asynccontextmanager
async def served(service: RealService) -> AsyncIterator[tuple[str, uvicorn.Server]]:
    """Serve on a free port; the stop is the service's own: listeners first."""
    app = create_app(service, Tokens(OPERATOR, LOCAL))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=30)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", server
        finally:
            app.state.feed.close()
            server.should_exit = True
            await serving


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[RealService]:
    async with a_service(tmp_path) as running:
        yield running


@pytest.fixture
async def url(service: RealService) -> AsyncIterator[str]:
    async with served(service) as (address, _):
        yield address


async def told(response: httpx.Response, number: int) -> list[dict[str, Any]]:
    """The next events of a stream, with their ids."""
    found: list[dict[str, Any]] = []
    event: dict[str, Any] = {}
    async with asyncio.timeout(20):
        async for line in response.aiter_lines():
            name, _, value = line.partition(": ")
            if name in ("id", "event"):
                event[name] = value
            elif name == "data":
                found.append(event | {"data": json.loads(value)})
                if len(found) == number:
                    return found
    return found


async def test_a_task_is_opened_and_driven_to_its_end_over_real_sockets(url: str) -> None:
    async with httpx.AsyncClient(base_url=url) as client:
        assert (await client.post("/tasks", json=NEW, headers=AUTH)).status_code == 201
        for stage in ("deploy", "done"):
            answer = await client.post("/tasks/T-1/advance?wait=20", headers=AUTH)
            assert (answer.status_code, answer.json()["to_stage"]) == (200, stage)
        assert (await client.get("/tasks/T-1")).json()["status"] == "done"
        assert (await client.get("/queue")).json()["tasks"] == []


async def test_the_feed_tells_every_event_in_order_and_goes_on_behind_the_last_one_seen(
    url: str, service: RealService
) -> None:
    async with httpx.AsyncClient(base_url=url) as client:
        await client.post("/tasks", json=NEW, headers=AUTH)
        async with client.stream("GET", "/events?after=0") as live:
            assert live.headers["content-type"].startswith("text/event-stream")
            first = await told(live, 2)
        assert [(e["event"], e["id"]) for e in first] == [("journal_created", "1"), ("opened", "2")]
        # Cut off; meanwhile things happen; the browser comes back with what it saw last.
        await client.post("/tasks/T-1/advance?wait=20", headers=AUTH)
        stored = await service.reader.events(after=2)
        async with client.stream("GET", "/events", headers={"Last-Event-ID": "2"}) as live:
            later = await told(live, len(stored))
        assert [(e["data"]["position"], e["data"]["hash"]) for e in later] == [
            (e.position, e.hash.hex()) for e in stored
        ]


async def test_a_listener_hears_what_is_written_while_it_listens_and_only_its_task(
    url: str, service: RealService
) -> None:
    async with httpx.AsyncClient(base_url=url) as client, client.stream("GET", "/events?task=T-2") as live:
        lines = live.aiter_lines()
        assert (await anext(lines)).startswith("retry")
        journal = service.journal
        assert journal is not None
        for task in ("T-1", "T-2"):
            await journal.open_task(NewTask(task, "acme/widgets", "f"), actor="operator")
        async with asyncio.timeout(20):
            async for line in lines:
                if line.startswith("data: "):
                    assert json.loads(line[6:])["task"] == "T-2"
                    break


async def test_a_listener_that_saw_more_than_the_log_holds_is_told_to_begin_anew(url: str) -> None:
    """After a restore the browser's last position may lie ahead; silence would look like a quiet day."""
    async with httpx.AsyncClient(base_url=url) as client:
        await client.post("/tasks", json=NEW, headers=AUTH)
        async with client.stream("GET", "/events", headers={"Last-Event-ID": "999"}) as live:
            (first,) = await told(live, 1)
        assert (first["event"], first["data"]) == ("reset", {"position": 2})


async def test_a_server_with_listeners_stops_at_once(service: RealService) -> None:
    async with httpx.AsyncClient() as client:
        async with asyncio.timeout(10), served(service) as (address, server):  # sooner than a silent feed beats
            live = await client.send(client.build_request("GET", f"{address}/events"), stream=True)
            assert live.status_code == 200
        assert server.should_exit
        await live.aclose()


async def test_more_listeners_than_there_is_room_for_are_sent_away(url: str) -> None:
    limits = httpx.Limits(max_connections=LISTENERS + 5)
    async with asyncio.timeout(60), httpx.AsyncClient(base_url=url, limits=limits, timeout=20) as client:
        live = []
        for _ in range(LISTENERS):
            response = await client.send(client.build_request("GET", "/events"), stream=True)
            lines = response.aiter_lines()
            await anext(lines)
            live.append((response, lines))  # an iterator that is dropped hangs up
        refused = await client.get("/events")
        assert refused.status_code == 503
        assert refused.json()["type"].endswith(":too-many-listeners")
        assert (await client.get("/healthz")).status_code == 200
        for response, _ in live:
            await response.aclose()


async def test_a_caller_that_goes_away_does_not_end_the_run(url: str, service: RealService) -> None:
    async with httpx.AsyncClient(base_url=url) as client:
        await client.post("/tasks", json=NEW, headers=AUTH)
        service.step.gate.clear()
        asking = asyncio.create_task(client.post("/tasks/T-1/advance?wait=60", headers=AUTH))
        await service.step.entered.wait()
        asking.cancel()
        await asyncio.wait({asking})
        service.step.gate.set()
        async with asyncio.timeout(20):
            await service.runs[0]
        assert (await client.get("/tasks/T-1")).json()["stage"] == "deploy"


@pytest.mark.proves("R101")
async def test_a_large_body_over_a_socket_is_refused_and_the_server_lives(url: str) -> None:
    async with httpx.AsyncClient(base_url=url) as client:
        answer = await client.post("/tasks", content=b"x" * 1_000_000, headers=AUTH)
        assert answer.status_code == 413
        assert (await client.get("/healthz")).status_code == 200


async def test_many_readers_at_once_all_get_one_consistent_answer(url: str, service: RealService) -> None:
    journal = service.journal
    assert journal is not None
    for n in range(50):
        await journal.open_task(NewTask(f"P-{n}", "acme/widgets", "f"), actor="operator")

    async def writing() -> None:
        for n in range(20):
            await journal.advance(f"P-{n}", actor="worker")

    async def reading(client: httpx.AsyncClient) -> None:
        for _ in range(5):
            queue = (await client.get("/queue")).json()
            assert sum(queue["counts"].values()) == len(queue["tasks"]) == 50
            assert all(task["position"] <= queue["position"] for task in queue["tasks"])

    async with httpx.AsyncClient(base_url=url) as client:
        await asyncio.gather(writing(), *(reading(client) for _ in range(16)))
