"""
The head, written down outside the log: a log that does not hold it any more is an older copy (A2, V8).

The file lies beside the journal by default of its name; it is worth most where the journal's backup does not carry it
along. It names only what was durable before, so a crash can never make an honest log look short.
"""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import suppress
from pathlib import Path

from journal.errors import DamagedError, StoreUnavailableError
from journal.ports import Anchor

_TEXT = re.compile(r"([1-9][0-9]{0,17}):([0-9a-f]{64})\s*\Z")


def anchor_path(db: Path) -> Path:
    """Where the head of this journal is written down."""
    return db.with_name(db.name + ".anchor")


def restoring_path(db: Path) -> Path:
    """The restored log on its last step to its place; while it lies there, a restore was cut short."""
    return db.with_name(db.name + ".restoring")


def read(db: Path) -> Anchor | None:
    """
    What was written down; None if nothing was.

    Raises:
        StoreUnavailableError: There is a file, and it cannot be read or names no head.
    """
    path = anchor_path(db)
    try:
        text = path.read_text("ascii")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise StoreUnavailableError(path=str(path), why=f"cannot be read: {error}") from error
    if not (found := _TEXT.match(text)):
        raise StoreUnavailableError(
            path=str(path), why="names no head", remedy="verify with a head of another source, then remove it"
        )
    return Anchor(int(found[1]), found[2])


def put(db: Path, anchor: Anchor) -> None:
    """
    Write the head down, whole or not at all, synced.

    Raises:
        OSError: It could not be written; what was there stays.
    """
    path = anchor_path(db)
    fresh = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "w") as file:
            file.write(f"{anchor.position}:{anchor.hash}\n")
            file.flush()
            os.fsync(fd)
        fresh.replace(path)
    except BaseException:
        with suppress(OSError):
            fresh.unlink()
        raise
    sync_folder(path.parent)


def check(db: sqlite3.Connection, path: Path) -> None:
    """
    Refuse to write a log that ends before, or tells otherwise than, what was written down.

    Raises:
        DamagedError: It is an older copy, or another journal.
        StoreUnavailableError: A restore was cut short, or the anchor cannot be read.
    """
    if restoring_path(path).exists():
        raise StoreUnavailableError(
            path=str(path), why="a restore was cut short", remedy="run `journal restore` again with the same backup"
        )
    anchor = read(path)
    if anchor is None:
        return
    row = db.execute("SELECT hash FROM journal_events WHERE position = ?", (anchor.position,)).fetchone()
    if row is None or bytes(row[0]).hex() != anchor.hash:
        what = "does not reach" if row is None else "tells otherwise at"
        raise DamagedError(
            path=str(path),
            why=f"{what} position {anchor.position}, which {anchor_path(path).name} names: it is an older copy or "
            "another journal, and going on would hand out used epochs again",
            remedy="bring it in with `journal restore FILE`; never copy it into place by hand",
        )


def sync_folder(folder: Path) -> None:
    """Make names in a folder survive a power cut."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
