"""A real server behind a real browser; every test has its own journal, and a page that may not complain."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import uvicorn

from integrations.http.app import create_app
from integrations.http.auth import Tokens
from tests.browser.scenes import Scripted, populate
from tests.conftest import missing, need_tool
from tests.contract.http_service import LOCAL, OPERATOR, RealService, a_service

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

SWITCHES = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Site:
    """The page, and the service behind it."""

    address: str
    service: RealService


@asynccontextmanager
async def serving(service: RealService, *, reading: bool = False) -> AsyncIterator[Site]:
    """Real uvicorn on a port of its own."""
    app = create_app(service, Tokens(OPERATOR, LOCAL, reading))
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, lifespan="off"))
    running = asyncio.create_task(server.serve())
    while not server.started:
        if running.done():
            running.result()
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield Site(f"http://127.0.0.1:{port}", service)
    finally:
        app.state.feed.close()
        server.should_exit = True
        await running


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """The system's browser."""
    program = need_tool("chromium", "chromium-browser", "google-chrome")
    if importlib.util.find_spec("playwright") is None:
        missing("playwright")
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=SWITCHES)
        try:
            yield browser
        finally:
            await browser.close()


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as launched:
        yield launched


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """A journal with every kind of standing."""
    async with a_service(tmp_path, make=Scripted) as service:
        await populate(service)
        async with serving(service) as served:
            yield served


@pytest.fixture
async def empty_site(tmp_path: Path) -> AsyncIterator[Site]:
    async with a_service(tmp_path) as service, serving(service) as served:
        yield served


@pytest.fixture
async def page(browser: Browser) -> AsyncIterator[Page]:
    """A page of which every complaint fails the test: errors, refusals of the policy, answers that are missing."""
    complaints: list[str] = []
    opened = await browser.new_page(viewport={"width": 1280, "height": 900})
    opened.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
    opened.on("pageerror", lambda e: complaints.append(str(e)))
    yield opened
    await opened.close()
    assert not complaints
