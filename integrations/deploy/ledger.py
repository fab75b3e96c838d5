"""The deployer's own memory: which keys it started and finished, appended and synced (idempotence by key)."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Entry:
    """The last thing the ledger says about a key."""

    started: bool = False
    finished: bool = False
    ok: bool = False
    code: int = 0
    tail: str = ""


class Ledger:
    """`ledger.jsonl` in the folder of the markers; written only under the deployer's lock."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "ledger.jsonl"

    def entry(self, key: str) -> Entry:
        """Fold the lines about a key. A torn line was never synced, so nothing was done on its strength."""
        found = Entry()
        for line in self._lines():
            if line.get("key") != key or found.finished:
                continue
            if line.get("event") == "started":
                found = Entry(started=True)
            elif line.get("event") == "finished" and isinstance(code := line.get("code"), int):
                found = Entry(True, True, line.get("ok") is True, code, str(line.get("tail")))
        return found

    def started(self, key: str, main_sha: str) -> None:
        """Say, durably, that the command is about to run."""
        self._append({"event": "started", "key": key, "main_sha": main_sha})

    def finished(self, key: str, main_sha: str, *, ok: bool, code: int, tail: str) -> None:
        """Say, durably, how it ended. Distinct finished keys are the deploys that happened."""
        self._append({"event": "finished", "key": key, "main_sha": main_sha, "ok": ok, "code": code, "tail": tail})

    def _lines(self) -> list[dict[str, object]]:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return []
        return [parsed for line in content.split(b"\n") if (parsed := _parsed(line))]

    def _append(self, line: dict[str, object]) -> None:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            size = os.fstat(descriptor).st_size
            # A torn last line must not swallow this one.
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            file.write((b"\n" if torn else b"") + json.dumps(line, sort_keys=True).encode() + b"\n")
            os.fsync(descriptor)
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _parsed(line: bytes) -> dict[str, object] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
