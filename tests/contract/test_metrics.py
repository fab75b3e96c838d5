"""Figures as Prometheus reads them, asked of the tool that knows."""

from __future__ import annotations

import subprocess
from pathlib import Path

import httpx
import pytest

from integrations.http.app import create_app
from integrations.http.auth import Tokens
from tests.browser.scenes import Scripted, populate
from tests.conftest import need_tool
from tests.contract.http_service import LOCAL, OPERATOR, a_service

DEPLOY = Path(__file__).resolve().parents[2] / "docs" / "deploy"


@pytest.mark.proves("FR-6")
async def test_promtool_finds_nothing_wrong_with_the_figures_of_a_journal_that_lived(tmp_path: Path) -> None:
    promtool = need_tool("promtool")
    async with a_service(tmp_path, make=Scripted) as service:
        transport = httpx.ASGITransport(app=create_app(service, Tokens(OPERATOR, LOCAL)))
        async with httpx.AsyncClient(transport=transport, base_url="http://journal") as client:
            before = (await client.get("/metrics")).text
            await populate(service, tasks=18)
            text = (await client.get("/metrics")).text
            again = (await client.get("/metrics")).text
            data = (await client.get("/metrics", headers={"Accept": "application/json"})).json()
    for told in (before, text):
        done = subprocess.run([promtool, "check", "metrics"], input=told, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    decided = [line for line in text.splitlines() if line.startswith("journal_decisions_total")]
    assert 'journal_decisions_total{fact="conflict",row="open",verdict="park"} 1.0' in decided
    assert [line for line in again.splitlines() if line.startswith("journal_decisions_total")] == decided
    assert {"row": "open", "fact": "conflict", "verdict": "park", "count": 1} in data["decisions"]
    assert data["written"] == data["position"] - 1  # all but the first, which was written at its making
    assert 0 < data["commit_s"] < 60
    assert data["wal_bytes"] > 0


def test_promtool_finds_nothing_wrong_with_the_alerts() -> None:
    promtool = need_tool("promtool")
    done = subprocess.run(
        [promtool, "check", "rules", DEPLOY / "alerts.yml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 rules found" in done.stdout
