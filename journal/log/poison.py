"""The poison file: after a disk error nothing is written until a person has looked (S6)."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def poison_path(db: Path) -> Path:
    """Beside the journal, so that it is seen where the damage is."""
    return db.with_name(db.name + ".poison")


def put(db: Path, why: str) -> None:
    """Leave the reason, synced; if even that fails, the writer's own refusal must do."""
    with suppress(OSError):
        fd = os.open(poison_path(db), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, why.encode("utf-8", "replace"))
            os.fsync(fd)
        finally:
            os.close(fd)
        folder = os.open(db.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)  # its name must survive a power cut too
        finally:
            os.close(folder)


def reason(db: Path) -> str:
    """Why the journal is poisoned; empty if it is not."""
    with suppress(FileNotFoundError):
        return poison_path(db).read_text("utf-8", "replace").strip() or "an unnamed disk error"
    return ""


def lift(db: Path) -> bool:
    """Take the poison away; says whether there was any."""
    with suppress(FileNotFoundError):
        poison_path(db).unlink()
        return True
    return False
