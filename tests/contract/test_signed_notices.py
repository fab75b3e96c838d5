"""Every kind of notice, whole and signed, over the application: taken once, its tampered twins never (R71, R72)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from integrations.hooks import GiteaHooks
from integrations.http import auth
from integrations.http.app import create_app
from integrations.http.auth import Tokens
from integrations.plane.config import PlaneConfig
from integrations.plane.hooks import PlaneHooks
from recovery.inbox import Inbox
from recovery.outside import Hooks
from tests.contract.http_service import LOCAL, OPERATOR, a_service
from tests.doubles import gitea, plane
from tests.doubles.notices import NOTICES, TASK, Notice
from tests.doubles.shapes import PAYLOADS, faults_of
from tests.forge import forge_with


@dataclass(frozen=True)
class Receiver:
    hooks: Mapping[str, Hooks]
    inbox: Inbox | None


@dataclass
class Door:
    client: httpx.AsyncClient
    file: Path

    async def knock(self, notice: Notice, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> int:
        sent = notice.headers() if headers is None else headers
        content = notice.body if body is None else body
        return (await self.client.post(f"/webhooks/{notice.source}", content=content, headers=dict(sent))).status_code

    def letters(self) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(f"file:{self.file}?mode=ro", uri=True)) as db:
            found = db.execute("SELECT source, hint FROM journal_inbox ORDER BY id").fetchall()
        return [{"source": source} | json.loads(hint) for source, hint in found]


@asynccontextmanager
async def door(folder: Path) -> AsyncIterator[Door]:
    async with a_service(folder) as service:
        config = PlaneConfig(identifier="ORCH", account=plane.BOT)
        tracker = PlaneHooks(config, plane.SECRET, lambda item: TASK if item == "known" else "", lambda: None)
        hooks: dict[str, Hooks] = {"gitea": GiteaHooks(gitea.SECRET), "plane": tracker}
        app = create_app(service, Tokens(OPERATOR, LOCAL), Receiver(hooks, Inbox(service.reader, service.clock)))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://journal") as client:
            yield Door(client, folder / "journal.db")


@pytest.mark.proves("R69", "R70", "R72")
async def test_every_signed_notice_is_taken_once_and_says_where_to_look_and_nothing_else(tmp_path: Path) -> None:
    assert len(NOTICES) == 20 == len({notice.name for notice in NOTICES})
    async with door(tmp_path) as d:
        for n, notice in enumerate(NOTICES):
            headers = notice.headers()  # the forge draws a delivery id, which an exact repeat keeps
            assert [await d.knock(notice, headers=headers) for _ in range(2)] == [200, 200], notice.name
            assert len(d.letters()) == n + 1, notice.name
            letter = d.letters()[-1]
            assert letter["source"] == notice.source
            assert {name: letter[name] for name in notice.hint} == notice.hint, (notice.name, letter)


@pytest.mark.proves("R71", "R72")
async def test_every_tampered_twin_of_a_notice_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "FAILURES", 10_000)  # how guesses are slowed down is another test's
    async with door(tmp_path) as d:
        for notice, other in zip(NOTICES, (*NOTICES[1:], NOTICES[0]), strict=True):
            body, headers = notice.body, notice.headers()
            middle = len(body) // 2
            changed = body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]
            spaced = json.dumps(json.loads(body), indent=1).encode()
            for tampered in (changed, spaced, body + b"\n", body[:-1], b"\xef\xbb\xbf" + body, b""):
                assert await d.knock(notice, tampered, headers) == 401, notice.name
            unsigned = {name: value for name, value in headers.items() if "ignature" not in name}
            for forged in (notice.headers("another secret"), unsigned, {}):
                assert await d.knock(notice, body, forged) == 401, notice.name
            if other.source == notice.source and other.body != body:
                assert await d.knock(notice, body, other.headers()) == 401, "another notice's signature fits"
            wrong_door = {"gitea": "plane", "plane": "gitea"}[notice.source]
            answer = await d.client.post(f"/webhooks/{wrong_door}", content=body, headers=headers)
            assert answer.status_code == 401, notice.name
        assert d.letters() == []


@pytest.mark.parametrize("notice", [n for n in NOTICES if n.source == "gitea"], ids=lambda n: n.name)
def test_our_own_notices_of_the_forge_have_the_documented_shape(notice: Notice) -> None:
    assert faults_of(json.loads(notice.body), PAYLOADS[notice.event]) == []
    assert not notice.body.endswith(b"\n") and notice.body.startswith(b"{\n  ")


async def test_the_notices_of_the_double_have_the_documented_shape_too(tmp_path: Path) -> None:
    async with forge_with(tmp_path) as forge:
        forge.gitea.add_status(forge.call().subject.head, "ci/tests", "success")
        await forge.merging().apply(forge.call())
        assert len(forge.gitea.deliveries) >= 4
        for headers, body in forge.gitea.deliveries:
            assert faults_of(json.loads(body), PAYLOADS[headers["X-Gitea-Event"]]) == []
