"""
`make screenshots`: the pictures of the documentation, taken from a demo that was run and from the scene of the tests.

`ARGS="--demo DIR"` takes a demo's folder that is there already.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import httpx

from tests.browser.conftest import chromium, serving
from tests.browser.scenes import Scripted, populate
from tests.contract.http_service import a_service
from tests.e2e.services import free_port

if TYPE_CHECKING:
    from playwright.async_api import Browser

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
JOURNAL = Path(sys.executable).with_name("journal")


async def run_demo(folder: Path) -> None:
    """The demo as a reader runs it."""
    process = await asyncio.create_subprocess_exec(str(JOURNAL), "demo", "--dir", str(folder))
    if await process.wait():
        raise SystemExit("the demo failed; no picture was taken")


@asynccontextmanager
async def demo_served(folder: Path) -> AsyncIterator[str]:
    """The service over a demo's folder."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        str(JOURNAL), "--config", str(folder / "journal.toml"), "serve", "--port", str(port),
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    try:
        async with httpx.AsyncClient(base_url=address) as client, asyncio.timeout(60):
            while not await _ready(client):  # noqa: ASYNC110  (another process gets ready; it can only be asked)
                await asyncio.sleep(0.2)
        yield address
    finally:
        process.terminate()
        await process.wait()


async def _ready(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/readyz")).status_code == 200
    except httpx.TransportError:
        return False


async def take(
    browser: Browser, address: str, name: str, width: int, height: int, scheme: Literal["light", "dark"]
) -> None:
    """One picture, of what fits the window."""
    page = await browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    await page.goto(address)
    await page.locator("#live", has_text="not live" if "?at=" in address else "live").wait_for()
    await page.screenshot(path=IMAGES / f"{name}.png")
    await page.close()


async def main() -> None:
    """Take them all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demo", type=Path, help="a demo's folder")
    given = parser.parse_args()
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder: Path = given.demo or Path(scratch) / "demo"
        if given.demo is None:
            await run_demo(folder)
        scene = Path(scratch) / "scene"
        scene.mkdir()
        async with chromium() as browser:
            async with demo_served(folder) as address:
                await take(browser, f"{address}/task/DEMO-1", "task", 1280, 1010, "light")
                await take(browser, f"{address}/?at=47", "past", 1280, 760, "light")
            async with a_service(scene, make=Scripted) as service:
                await populate(service)
                async with serving(service) as site:
                    await take(browser, site.address, "board", 1280, 800, "light")
                    await take(browser, f"{site.address}/task/ORCH-109", "parked", 1280, 760, "dark")
                    await take(browser, site.address, "narrow", 360, 740, "dark")


if __name__ == "__main__":
    asyncio.run(main())
