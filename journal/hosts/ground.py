"""
Which locks a process shares: the kernel it runs on, and the folder of the lock files.

Two processes on one ground exclude each other by `flock`, children included. Everything else that might name a machine
(host name, machine id, a file in a volume) is copied with images and disks, and would call two machines one.
"""

from __future__ import annotations

from pathlib import Path


def ground_of(folder: Path, boot: str) -> str:
    """
    Name the ground; "" = not known, and then nobody shares it.

    Args:
        folder: Where the lock files lie; made if it is missing.
        boot: The kernel's boot id; after a reboot everything on the old ground is dead, but a copy of the disk might
            run elsewhere, so that is not concluded.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    return f"{boot}:{found.st_dev}:{found.st_ino}" if boot else ""
