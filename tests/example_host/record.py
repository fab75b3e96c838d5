"""
Lives the scenario in a process of its own and prints or stores what was seen.

`python -m tests.example_host.record --store` writes the recording anew; only a change of the example host itself is a
reason to. `python -m tests.example_host.record before|adopted FOLDER` prints what that version did as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from tests.example_host import scenario
from tests.example_host.before import Orchestrator, create_app

RECORDED = Path(__file__).parent / "recorded" / "before.json"


async def seen(version: str, folder: Path) -> dict[str, list[str]]:
    """What one version does in an empty folder."""
    recorder = scenario.Recorder()
    with recorder.recording():
        host = _host(version, folder / "orchestrator.db")
        try:
            answers = await scenario.live(host, create_app(host))
        finally:
            await host.stop()
    return {"statements": recorder.statements, "answers": answers, "files": scenario.files_of(folder)}


def _host(version: str, path: Path) -> Orchestrator:
    if version == "before":
        return Orchestrator(path, scenario.ticking())
    from tests.example_host.adopted import adopted  # the earlier program must not even import us

    return adopted(path, scenario.ticking())


def as_text(recording: dict[str, list[str]]) -> str:
    """One line a statement or answer, so that a change can be read."""
    return json.dumps(recording, indent=1) + "\n"


def main(arguments: list[str]) -> None:
    if arguments == ["--store"]:
        with tempfile.TemporaryDirectory() as folder:
            RECORDED.write_text(as_text(asyncio.run(seen("before", Path(folder)))))
        return
    version, folder = arguments
    print(as_text(asyncio.run(seen(version, Path(folder)))), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
