"""
Locks: who drives the journal, and who drives a task (DESIGN 5, E5, O4; reports R27-R38).

Both are `flock`s on files of our own, never on the database file, never deleted, opened anew by every taker: the kernel
drops them when the last holder, child or parent, is gone. Nothing else is liveness; what is written into a lock file is
for people and for the reaper.

LOCK_UN would also free the copy of a child that lives on. So a term that ends with children still alive only closes its
own descriptor, and the child keeps the task.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from urllib.parse import quote

import orjson

from journal.events import Owner


@dataclass(frozen=True, slots=True)
class Holder:
    """What a lock file says about whoever took the lock last; true only while the lock is held."""

    actor: str = ""
    run: str = ""
    instance: str = ""
    host: str = ""
    pid: int = 0
    boot: str = ""
    namespace: int = 0  # of process ids: a group's number means nothing in another one (R30)
    ticks: int = 0
    epoch: int = 0
    held_since_s: int = 0  # of the machine's boot clock, comparable within one boot
    groups: tuple[int, ...] = ()  # process groups of the step that runs
    address: str = ""  # writer lock: where the service listens

    def __str__(self) -> str:
        return f"{self.actor or 'unknown'}@{self.host or '?'}:{self.pid or '?'}"


def lock_folder(db: Path) -> Path:
    """Beside the journal: locks must lie on the same local file system."""
    return db.with_name(db.name + ".locks")


_RECORD = 1024
"""Bytes of a lock file as long as what it says fits in."""


class LockFile:
    """One lock file that we hold."""

    def __init__(self, fd: int, path: Path) -> None:
        self._fd, self._path, self._holder = fd, path, Holder()

    @property
    def fd(self) -> int:
        return self._fd

    @classmethod
    def take(cls, path: Path) -> LockFile | None:
        """
        Take the lock without waiting; None if somebody holds it.

        The descriptor is close-on-exec: a child of a step gets it by `pass_fds` and no other way.
        """
        fd = _open(path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            taken = os.fstat(fd).st_ino == path.stat().st_ino  # else the file was swapped: a lock nobody else will meet
        except (BlockingIOError, FileNotFoundError):
            taken = False
        except BaseException:
            os.close(fd)
            raise
        if not taken:
            os.close(fd)
            return None
        return cls(fd, path)

    def write(self, holder: Holder) -> None:
        """
        Say who holds it; failing to is no reason to give the lock up.

        One write over the old text, filled up with blanks: a reader never meets half of it, and once the file has its
        block a full disk cannot make it fail.
        """
        self._holder = holder
        text = orjson.dumps(holder).ljust(_RECORD)
        with suppress(OSError):
            os.pwrite(self._fd, text, 0)
            if len(text) > _RECORD or os.fstat(self._fd).st_size > _RECORD:
                os.ftruncate(self._fd, len(text))

    def child_started(self, group: int) -> None:
        """A step's child inherits the lock; its group is named so that the reaper can end it."""
        self._groups((*self._holder.groups, group))

    def child_ended(self, group: int) -> None:
        self._groups(tuple(g for g in self._holder.groups if g != group))

    def _groups(self, groups: tuple[int, ...]) -> None:
        self.write(replace(self._holder, groups=groups))

    def release(self) -> bool:
        """Give it back. With a child alive only our descriptor goes, and True is said: the lock stays the child's."""
        if self._fd < 0:
            return False
        fd, self._fd = self._fd, -1
        if not self._holder.groups:
            with suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)
        return bool(self._holder.groups)


LOOKS_AT_WRITER = 5
"""Tries for the writer lock; it decides about a whole process, so a glance of `is_held` must not."""


class Locks:
    """The locks of one journal."""

    def __init__(self, db: Path, me: Owner) -> None:
        self.folder, self.me = lock_folder(db), me

    def writer_path(self) -> Path:
        return self.folder / "writer.lock"

    def task_path(self, task: str) -> Path:
        """Ids are unique ignoring case, so the folded one names the file; quoted, so that none leaves the folder."""
        return self.folder / "tasks" / f"{quote(task.lower(), safe='')}.lock"

    def take_writer(self, actor: str, address: str = "") -> LockFile | None:
        """The lock that says which process may drive at all, held for the life of the process."""
        lock = LockFile.take(self.writer_path())
        for _ in range(LOOKS_AT_WRITER):
            if lock is not None:
                break
            time.sleep(0.002)  # noqa: TID251  somebody may only be looking, which takes it for a moment
            lock = LockFile.take(self.writer_path())
        if lock:
            lock.write(self.holder(actor, address=address))
        return lock

    def take_task(self, task: str, actor: str, run: str) -> LockFile | None:
        """The lock that is a task's only liveness, taken before anything is read."""
        lock = LockFile.take(self.task_path(task))
        if lock:
            lock.write(self.holder(actor, run=run))
        return lock

    def holder(self, actor: str, *, run: str = "", address: str = "") -> Holder:
        me = self.me
        now = int(time.clock_gettime(time.CLOCK_BOOTTIME))
        return Holder(actor, run, me.instance, me.host, me.pid, me.boot, pid_namespace(), me.ticks, 0, now, (), address)


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, flags, 0o600)


def read_holder(path: Path) -> Holder:
    """What the lock file says; whatever cannot be read is left empty."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        values = json.loads(path.read_bytes())
        groups = tuple(g for g in values.pop("groups", ()) if type(g) is int and g > 1)
        plain = {f.name: values[f.name] for f in fields(Holder) if type(values.get(f.name)) is type(f.default)}
        return Holder(**plain, groups=groups)
    return Holder()


def is_held(path: Path) -> bool:
    """Somebody holds the lock at this moment; for showing, never for deciding."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(fd, fcntl.LOCK_UN)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


@cache
def pid_namespace() -> int:
    """Number of the namespace our process ids belong to; 0 = not known, and then equal to nobody's."""
    with suppress(OSError):
        return Path("/proc/self/ns/pid").stat().st_ino
    return 0


def same_ids(holder: Holder, me: Owner) -> bool:
    """The holder's process numbers mean here what they meant there; two unknowns are never the same (R31, R32)."""
    known = bool(holder.boot and holder.namespace)
    return known and (holder.boot, holder.namespace) == (me.boot, pid_namespace())


def held_for_s(holder: Holder) -> int:
    """Seconds since the lock was taken, by the machine's boot clock."""
    return max(0, int(time.clock_gettime(time.CLOCK_BOOTTIME)) - holder.held_since_s)
