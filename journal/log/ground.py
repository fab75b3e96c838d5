"""
The ground a journal stands on: which file system, which SQLite (S9; reports R83-R86).

Only looks and names; refusing or warning is for whoever opens or writes the journal.
"""

from __future__ import annotations

import os
import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from journal.errors import StoreUnavailableError

NETWORK = frozenset(
    {
        "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "glusterfs", "lustre", "9p", "virtiofs", "vboxsf",
        "prl_fs", "fuse", "fuseblk", "ocfs2", "gfs2", "beegfs", "orangefs", "pvfs2", "davfs", "vmhgfs", "fakeowner",
        "grpcfuse",
    }
)  # fmt: skip
"""Types on which locks or shared memory cannot be relied upon: network, virtual machine and FUSE mounts."""

LAYERS = frozenset({"overlay", "aufs"})
"""A container's own layer: gone with the container."""

VOLATILE = frozenset({"tmpfs", "ramfs"})
"""Gone with the machine's next start."""

SPACE_RESERVE = 32 << 20
"""
Bytes that must be free on the journal's file system before a term or an effect begins (S10).

Terms too: one that could only fail would be counted as fruitless, and a full disk would park every task.
"""

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """A mounted file system."""

    point: str
    kind: str
    source: str

    @property
    def network(self) -> bool:
        """FUSE types name their program after a dot."""
        return self.kind in NETWORK or self.kind.startswith("fuse.")


def mount_of(path: Path, table: str | None = None) -> Mount:
    """
    The mount that a path lies on: the longest mount point above it, the newest of equal ones.

    Args:
        path: It need not exist.
        table: The text of `/proc/self/mountinfo`; read from there by default.
    """
    real = os.path.realpath(path)
    if table is None:
        try:
            table = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
        except OSError:
            return Mount("", "", "")
    found = Mount("", "", "")
    for line in table.splitlines():
        mount = _parse(line)
        below = mount and (mount.point == "/" or real == mount.point or real.startswith(mount.point + "/"))
        if mount and below and len(mount.point) >= len(found.point):
            found = mount
    return found


def _parse(line: str) -> Mount | None:
    left, dash, right = line.partition(" - ")
    fields, rest = left.split(" "), right.split(" ")
    if not dash or len(fields) < 5 or len(rest) < 2:
        return None
    return Mount(_unescaped(fields[4]), rest[0], _unescaped(rest[1]))


def _unescaped(text: str) -> str:
    """Blanks and line breaks in names are octal there."""
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


def wal_reset_bug(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> bool:
    """
    Whether this SQLite can lose committed pages when two connections write or checkpoint at once (finding 10, R86).

    One writer process that alone checkpoints cannot meet it, so it is worth a note and no refusal.
    """
    fixed = (3, 44, 6) <= version < (3, 45) or (3, 50, 7) <= version < (3, 51) or version >= (3, 51, 3)
    return version >= (3, 7, 0) and not fixed


class Footing:
    """What an open journal stands on while it is written: its own file, on a file system with room."""

    def __init__(self, path: Path) -> None:
        self._path, self._inode = path, path.stat().st_ino

    def lost(self) -> StoreUnavailableError | None:
        """Why nothing can be written any more: the path must still be the file that was opened (R88)."""
        try:
            inode = self._path.stat().st_ino
        except OSError:
            inode = -1
        if inode == self._inode:
            return None
        return StoreUnavailableError(
            path=str(self._path),
            why="the file was removed or replaced while the journal was open",
            remedy="put the right file back, run `journal verify`, start again",
        )

    def full(self) -> StoreUnavailableError | None:
        """Why nothing may begin that still has to be told the end of; None if there is room (S10)."""
        space = os.statvfs(self._path)
        if space.f_bavail * space.f_frsize >= SPACE_RESERVE:
            return None
        return StoreUnavailableError(
            path=str(self._path),
            why=f"less than {SPACE_RESERVE >> 20} MiB are free, so no effect may start",
            remedy="free space",
        )
