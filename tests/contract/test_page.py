"""The page over plain HTTP: what it refuses, what it escapes, which headers it carries."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from integrations.http.app import create_app
from integrations.http.auth import SESSIONS, Readers, Tokens
from tests.browser.scenes import HOSTILE, Scripted, populate
from tests.contract.http_service import LOCAL, OPERATOR, RealService, a_service

TOKEN = {"token": OPERATOR}


def client_of(service: RealService, *, reading: bool = False) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=create_app(service, Tokens(OPERATOR, LOCAL, reading)))
    return httpx.AsyncClient(transport=transport, base_url="http://journal")


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[RealService]:
    async with a_service(tmp_path, make=Scripted) as running:
        await populate(running, tasks=18)
        yield running


@pytest.fixture
async def client(service: RealService) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(service) as opened:
        yield opened


@pytest.mark.proves("R101")
async def test_no_page_holds_anything_inline_and_every_one_forbids_it(client: httpx.AsyncClient) -> None:
    paths = ("/", "/task/ORCH-102", "/task/ORCH-109", "/?q=<script>alert(1)</script>", "/?stage=<b>", "/task/%3Cb%3E")
    for path in paths:
        answer = await client.get(path)
        assert answer.headers["content-type"].startswith("text/html"), path
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert not re.search(r"<style|\sstyle=|<script(?! src=)|\son[a-z]+=|javascript:", answer.text), path
        assert HOSTILE not in answer.text
        assert "<b>" not in answer.text


async def test_what_is_asked_wrongly_is_answered_clearly(client: httpx.AsyncClient) -> None:
    for path, status, words in (
        ("/task/NOBODY", 404, "unknown"),
        ("/task/-rf", 422, "a letter or digit"),
        ("/static/..%2frender.py", 404, ""),
        ("/static/none.js", 404, "no file"),
        (f"/?q={'x' * 101}", 422, ""),
        ("/?after=-1&stage=review", 422, ""),
    ):
        answer = await client.get(path)
        assert answer.status_code == status, path
        assert words in answer.text, path


async def test_a_form_without_its_token_or_with_nonsense_records_nothing(
    client: httpx.AsyncClient, service: RealService
) -> None:
    before = await service.reader.head()
    tries: list[tuple[str, dict[str, str], int]] = [
        ("/task/ORCH-114/pause", {"reason": "x"}, 401),
        ("/task/ORCH-114/pause", {"reason": "x", "token": "wrong"}, 401),
        ("/task/ORCH-114/pause", {"reason": " "} | TOKEN, 422),
        ("/task/ORCH-114/pause", {"reason": "x", "surplus": "1"} | TOKEN, 422),
        ("/task/ORCH-114/explode", {"reason": "x"} | TOKEN, 404),
        ("/task/NOBODY/pause", {"reason": "x"} | TOKEN, 404),
        ("/task/ORCH-114/settle", {"reason": "x", "as": "applied", "evidence": "y"} | TOKEN, 409),
        ("/task/ORCH-114/release", {"reason": ""} | TOKEN, 422),
        ("/task/ORCH-114/pause", {"reason": "x" * 40_000} | TOKEN, 413),
    ]
    for path, form, status in tries:
        answer = await client.post(path, data=form)
        assert answer.status_code == status, (path, form, answer.text)
        assert answer.headers["content-type"].startswith("text/html")
        assert OPERATOR not in answer.text
    answer = await client.post(
        "/task/ORCH-114/pause", content=b"\xff=%zz", headers={"Authorization": f"Bearer {OPERATOR}"}
    )
    assert answer.status_code in (401, 422)
    assert await service.reader.head() == before


async def test_a_form_that_is_said_leads_back_to_the_task(client: httpx.AsyncClient) -> None:
    answer = await client.post("/task/ORCH-114/pause", data={"reason": "freeze"} | TOKEN)
    assert (answer.status_code, answer.headers["location"]) == (303, "/task/ORCH-114?said=pause")
    page = await client.get("/task/ORCH-114?said=<b>")
    assert "Recorded" not in page.text


@pytest.mark.proves("A3")
async def test_the_board_as_of_any_position_shows_the_queue_of_that_position_and_nothing_to_press(
    client: httpx.AsyncClient, service: RealService
) -> None:
    last, _ = await service.reader.head()
    for position in range(0, last + 1, 7):
        page = (await client.get(f"/?at={position}")).text
        queue = (await client.get(f"/queue?at={position}")).json()
        assert sorted(re.findall(r'id="t-([^"]+)"', page)) == sorted(t["task"] for t in queue["tasks"])
        assert re.findall(r'href="/task/[^"?]+\?at=(\d+)"', page) == [str(position)] * page.count('href="/task/')
        assert 'method="post"' not in page
        assert "data-past" in page
    assert "nothing had happened yet" in (await client.get("/?at=2000-01-01")).text
    assert "An event later" in (await client.get(f"/?at={last - 1}")).text
    assert "An event later" not in (await client.get(f"/?at={last}")).text
    assert f"At position {last}," in (await client.get("/?at=2999-01-01 12:00")).text


async def test_a_task_is_stepped_through_event_by_event_as_the_journal_knew_it(client: httpx.AsyncClient) -> None:
    events = (await client.get("/tasks/ORCH-109/events")).json()["events"]
    positions, path, seen = [e["position"] for e in events], f"/task/ORCH-109?at={events[0]['position']}", []
    page = ""
    while path:
        page = (await client.get(path)).text
        seen.append(int(path.rpartition("=")[2]))
        assert re.findall(r'<tr id="v(\d+)"', page) == [str(n) for n in range(len(seen), 0, -1)]
        assert "<form method" not in page.partition('id="events-title"')[0].partition("What a person may do")[2]
        found = re.search(r'href="(/task/ORCH-109\?at=\d+)">Its next event', page)
        path = found[1] if found else ""
    assert seen == positions
    assert "parked" in page and "was parked in review 0 s ago" in page
    early = await client.get(f"/task/ORCH-109?at={positions[0] - 1}")
    assert early.status_code == 404
    assert f"was opened at position {positions[0]}" in early.text


async def test_what_changed_between_two_points_is_a_table(client: httpx.AsyncClient) -> None:
    page = (await client.get("/changes?from=18")).text
    found = (await client.get("/queue/diff?from=18")).json()
    assert re.findall(r'<th scope="row"><a href="/task/([^"]+)"', page) == [c["task"] for c in found["changes"]]
    assert "No task that was open" in (await client.get("/changes?from=18&to=18")).text
    for path in ("/changes?from=soon", "/changes?from=999999", "/?at=<b>", "/?at=999999", "/task/ORCH-109?at=--help"):
        answer = await client.get(path)
        assert answer.status_code == 422, path
        assert answer.headers["content-type"].startswith("text/html")
        assert "<b>" not in answer.text


async def test_static_files_may_be_kept_since_another_content_has_another_address(client: httpx.AsyncClient) -> None:
    page = (await client.get("/")).text
    addresses = re.findall(r"/static/[\w.]+\?v=[0-9a-f]{12}", page)
    assert len(set(addresses)) == 3
    for address in addresses:
        answer = await client.get(address)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_where_reading_needs_a_token_a_stranger_sees_nothing_and_a_cookie_is_no_token(
    service: RealService,
) -> None:
    async with client_of(service, reading=True) as client:
        for path in ("/", "/task/ORCH-109", "/?q=ORCH"):
            answer = await client.get(path)
            assert answer.status_code == 401
            assert "ORCH-1" not in answer.text
        assert (await client.post("/enter", data={"token": "wrong"})).status_code == 401
        entered = await client.post("/enter", data=TOKEN)
        assert entered.status_code == 303
        assert OPERATOR not in entered.headers["set-cookie"]
        assert (await client.get("/")).status_code == 200
        assert (await client.get("/queue")).status_code == 200
        assert (await client.post("/tasks/ORCH-114/pause", json={"reason": "x"})).status_code == 401
        assert (await client.post("/task/ORCH-114/pause", data={"reason": "x"})).status_code == 401


def test_readers_are_bounded_and_unknown_cookies_open_nothing() -> None:
    readers = Readers()
    first = readers.enter()
    others = [readers.enter() for _ in range(SESSIONS)]
    assert not readers.admits(first)
    assert all(readers.admits(each) for each in others)
    assert not readers.admits("")
    assert not readers.admits("é\ud800")
