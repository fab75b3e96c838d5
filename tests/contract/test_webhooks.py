"""Webhooks over the application: only what is rightly signed is recorded, once, before its answer (R69, R71, R72)."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
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
from integrations.http.app import create_app
from integrations.http.auth import FAILURES, Tokens
from integrations.http.webhooks import WEBHOOK_LIMIT
from recovery.inbox import BACKLOG, Inbox
from recovery.outside import Hooks
from tests.contract.http_service import LOCAL, OPERATOR, a_service

SECRET = "webhook-secret-of-the-tests"
HEAD = "a" * 40
PUSH = {"ref": "refs/heads/feature/one", "after": HEAD, "repository": {"full_name": "acme/widgets"}}


@dataclass
class Receiver:
    hooks: Mapping[str, Hooks]
    inbox: Inbox | None


@dataclass
class Site:
    client: httpx.AsyncClient
    receiver: Receiver
    file: Path

    def letters(self) -> list[tuple[Any, ...]]:
        """What stands in the file, read beside the service."""
        with closing(sqlite3.connect(f"file:{self.file}?mode=ro", uri=True)) as db:
            return db.execute("SELECT source, delivery, hint FROM journal_inbox ORDER BY id").fetchall()

    def size(self) -> tuple[int, int, int]:
        """Rows of everything that a request could have written."""
        with closing(sqlite3.connect(f"file:{self.file}?mode=ro", uri=True)) as db:
            events = db.execute("SELECT count(*) FROM journal_events").fetchone()[0]
            inbox = db.execute("SELECT count(*) FROM journal_inbox").fetchone()[0]
            return events, inbox, db.execute("SELECT count(*) FROM journal_counters").fetchone()[0]

    async def post(self, body: bytes, delivery: str = "d-1", **headers: str) -> httpx.Response:
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        given = {"X-Gitea-Event": "push", "X-Gitea-Delivery": delivery} | more
        return await self.client.post("/webhooks/gitea", content=body, headers=given)

    async def signed(self, body: bytes, delivery: str = "d-1") -> httpx.Response:
        return await self.post(body, delivery, X_Gitea_Signature=sign(body))


def sign(body: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


@asynccontextmanager
async def site(folder: Path) -> AsyncIterator[Site]:
    async with a_service(folder) as service:
        receiver = Receiver({"gitea": GiteaHooks(SECRET)}, Inbox(service.reader, service.clock))
        app = create_app(service, Tokens(OPERATOR, LOCAL), receiver)
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://journal") as client:
            yield Site(client, receiver, folder / "journal.db")


@pytest.mark.proves("R69", "R74")
async def test_a_delivery_is_recorded_before_its_200_and_a_repeat_appends_nothing(tmp_path: Path) -> None:
    async with site(tmp_path) as s:
        body = json.dumps(PUSH).encode()
        both = await asyncio.gather(s.signed(body), s.signed(body))
        again = await s.signed(body)
        assert [a.status_code for a in (*both, again)] == [200, 200, 200]
        assert sorted(a.json()["recorded"] for a in both) == [False, True]
        assert again.json() == {"recorded": False}
        ((source, delivery, hint),) = s.letters()
        assert (source, delivery) == ("gitea", "d-1")
        told = json.loads(hint)
        assert (told["repo"], told["branch"], told["head"]) == ("acme/widgets", "feature/one", HEAD)
        assert SECRET.encode() not in (tmp_path / "journal.db").read_bytes()


@pytest.mark.proves("R71")
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Gitea-Signature": ""},
        {"X-Gitea-Signature": "0" * 64},
        {"X-Gitea-Signature": "0" * 63},
        {"X-Gitea-Signature": "g" * 64},
        {"X-Gitea-Signature": "ä" * 64},
        {"X-Hub-Signature": "sha1=" + "0" * 40},
        {"X-Hub-Signature-256": "sha256=" + "0" * 64},
    ],
    ids=["missing", "empty", "wrong", "short", "no hex", "not ascii", "sha1 only", "hub"],
)
async def test_what_is_not_rightly_signed_gets_401_and_leaves_nothing(tmp_path: Path, headers: dict[str, str]) -> None:
    async with site(tmp_path) as s:
        before = s.size()
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        answer = await s.client.post("/webhooks/gitea", content=json.dumps(PUSH).encode(), headers=raw)
        assert answer.status_code == 401
        assert answer.json()["type"].endswith(":unsigned")
        assert s.size() == before


@pytest.mark.proves("R72")
async def test_the_bytes_are_checked_as_they_came_and_a_changed_one_is_refused(tmp_path: Path) -> None:
    odd = b'{ "ref":"refs/heads/\\u0066eature", "after" : "' + HEAD.encode() + b'",\n\n"after":"' + HEAD.encode()
    odd += b'", "repository": {"full_name":"acme/widgets"}}   '
    async with site(tmp_path) as s:
        assert (await s.signed(odd)).json() == {"recorded": True}
        changed = odd.replace(b"   ", b"  ")
        assert (await s.post(changed, "d-2", X_Gitea_Signature=sign(odd))).status_code == 401
        assert len(s.letters()) == 1


@pytest.mark.proves("R72", "R96")
async def test_unconfigured_is_503_too_large_is_413_and_signed_nonsense_is_422(tmp_path: Path) -> None:
    async with site(tmp_path) as s:
        before = s.size()
        assert (await s.client.post("/webhooks/plane", content=b"{}")).status_code == 503
        long = b" " * (WEBHOOK_LIMIT + 1)
        assert (await s.signed(long)).status_code == 413
        assert (await s.signed(b"[1]")).status_code == 422
        s.receiver.hooks = {"gitea": GiteaHooks("")}
        assert (await s.post(b"{}", X_Gitea_Signature=sign(b"{}", ""))).status_code == 401
        s.receiver.hooks = {"gitea": GiteaHooks(SECRET)}
        s.receiver.inbox = None
        assert (await s.signed(json.dumps(PUSH).encode())).status_code == 503  # a standby: not recorded, not "ok"
        assert s.size() == before


@pytest.mark.proves("TR-9")
async def test_a_full_inbox_tells_the_sender_to_come_again(tmp_path: Path) -> None:
    async with site(tmp_path) as s:
        assert s.receiver.inbox is not None
        with closing(sqlite3.connect(s.file, isolation_level=None)) as db:
            db.execute(
                "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
                "INSERT INTO journal_inbox (source, delivery, hint, received_us, due_us, tries, handled_us, note) "
                "SELECT 'gitea', 'old-' || i, '{}', 0, 0, 0, 0, '' FROM n",
                (BACKLOG,),
            )
        answer = await s.signed(json.dumps(PUSH).encode())
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        assert len(s.letters()) == BACKLOG


@pytest.mark.proves("FR-6", "R71")
async def test_what_became_of_each_request_is_counted_and_guesses_without_end_are_told_to_wait(tmp_path: Path) -> None:
    async with site(tmp_path) as s:
        body = json.dumps(PUSH).encode()
        await s.signed(body)
        await s.signed(body)
        await s.signed(b"[1]", "d-2")
        await s.signed(b" " * (WEBHOOK_LIMIT + 1), "d-3")
        await s.client.post("/webhooks/plane", content=b"{}")
        guesses = [await s.post(body, f"g-{n}", X_Gitea_Signature=f"{n:064x}") for n in range(FAILURES + 2)]
        assert [g.status_code for g in guesses] == [401] * FAILURES + [429] * 2
        assert 0 < int(guesses[-1].headers["Retry-After"]) <= 60
        assert (await s.signed(body, "d-4")).json() == {"recorded": True}, "a right signature is never kept waiting"
        told = (await s.client.get("/metrics", headers={"Accept": "application/json"})).json()["webhooks"]
        assert {(each["source"], each["outcome"]): each["count"] for each in told} == {
            ("gitea", "recorded"): 2,
            ("gitea", "repeated"): 1,
            ("gitea", "invalid-input"): 1,
            ("gitea", "too-large"): 1,
            ("gitea", "unsigned"): FAILURES + 2,
            ("plane", "unconfigured"): 1,
        }
        text = (await s.client.get("/metrics")).text
        assert f'journal_webhooks_total{{outcome="unsigned",source="gitea"}} {FAILURES + 2}.0' in text
