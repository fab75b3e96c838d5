"""
The ground a journal stands on: which file system, which SQLite (S9; reports R83-R86).

Only looks and names; refusing or warning is for whoever opens the journal.
"""

from __future__ import annotations

import os
import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path

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
