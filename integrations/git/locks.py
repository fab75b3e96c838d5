"""
Lock files that a killed git left behind (git-facts 3: every update of the ref fails until it is removed).

A lock file is removed only when it is old and no git process works on the repository; in doubt it stays, the step
says so, and a person decides.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

STALE_AFTER_S = 10
"""A ref transaction takes milliseconds; a file this old has outlived whoever made it, or its owner is stopped."""


def remove_if_stale(repository: Path, lock: Path) -> bool:
    """Remove a leftover lock file inside the repository; False when it is young, foreign, or git is at work."""
    home = repository.resolve()
    if not lock.resolve().is_relative_to(home):
        return False
    try:
        seen = lock.stat()
    except FileNotFoundError:
        return True
    if _age_s(home, seen.st_mtime) < STALE_AFTER_S or _git_at_work({repository, home}):
        return False
    with suppress(FileNotFoundError):
        if lock.stat().st_ino == seen.st_ino:
            lock.unlink()
    return True


def _age_s(folder: Path, written_s: float) -> float:
    """Age by the file system's own clock, which need not be this machine's."""
    with tempfile.TemporaryFile(dir=folder) as probe:
        return os.fstat(probe.fileno()).st_mtime - written_s


def _git_at_work(homes: set[Path]) -> bool:
    """Whether any process that looks like git names the repository or stands in it, by either of its names."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if not Path(os.fsdecode(words[0])).name.startswith("git"):
                continue
            named = any(os.fsencode(home) in word for home in homes for word in words[1:])
            if named or any((process / "cwd").resolve().is_relative_to(home) for home in homes):
                return True
    return False
