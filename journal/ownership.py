"""
Locks: who drives the journal, and who drives a task (DESIGN 5, E5, O4; reports R27-R38).

The journal has a lock file. All tasks share another one, of which each has a byte: a file for each would be a million
files for a million tasks, and making one costs up to a millisecond where its folder lies badly (decision 0021). What
another process must know of a task's holder is written only once a child is to inherit the lock, since without one the
holder is this process or nobody.
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote, unquote

from journal.events import Owner
from journal.locks import Holder, LockFile, TaskLock, byte_is_held, read_holder


def lock_folder(db: Path) -> Path:
    """Beside the journal: locks must lie on the same local file system."""
    return db.with_name(db.name + ".locks")


LOOKS_AT_WRITER = 5
"""Tries for the writer lock; it decides about a whole process, so a glance of `is_held` must not."""


class Locks:
    """The locks of one journal."""

    def __init__(self, db: Path, me: Owner) -> None:
        self.folder, self.me = lock_folder(db), me
        self._tasks = self.folder / "tasks.lock"  # made once: joining paths costs more than asking the kernel
        self._ours: dict[str, TaskLock] = {}  # held by this process, by folded id

    def writer_path(self) -> Path:
        return self.folder / "writer.lock"

    def tasks_path(self) -> Path:
        """The file of which every task has a byte."""
        return self._tasks

    def record_path(self, task: str) -> Path:
        """What is told of a holder with children. Quoted, so that no id leaves the folder."""
        return self.folder / "tasks" / f"{quote(_fold(task), safe='')}.json"

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

    def take_task(self, task: str, actor: str, run: str) -> TaskLock | None:
        """
        The lock that is a task's only liveness, taken before anything is read; None if somebody holds it.

        The descriptor is close-on-exec: a child of a step gets it by `pass_fds` and no other way.
        """
        folded = _fold(task)
        lock = TaskLock.take(
            self._tasks, _byte_of(folded), holder=self.holder(actor, run=run),
            record=lambda: self.record_path(task), gone=lambda: self._ours.pop(folded),
        )  # fmt: skip
        if lock is not None:
            self._ours[folded] = lock
        return lock

    def is_held(self, task: str) -> bool:
        """Somebody holds the task's lock at this moment; for showing, never for deciding. Takes nothing itself."""
        return byte_is_held(self._tasks, _byte_of(_fold(task)))

    def holder_of(self, task: str) -> Holder:
        """Who took the task's lock last, as far as it matters: this process, or whoever left a child behind."""
        ours = self._ours.get(_fold(task))
        return ours.holder if ours is not None else read_holder(self.record_path(task))

    def left_behind(self) -> list[str]:
        """Tasks, in small letters, whose lock a child holds that outlived its process."""
        told = sorted((self.folder / "tasks").glob("*.json"))
        return [task for task in (unquote(path.stem) for path in told) if self.is_held(task)]

    def holder(self, actor: str, *, run: str = "", address: str = "") -> Holder:
        me = self.me
        now = int(time.clock_gettime(time.CLOCK_BOOTTIME))
        return Holder(actor, run, me.instance, me.host, me.pid, me.boot, pid_namespace(), me.ticks, 0, now, (), address)


def _fold(task: str) -> str:
    """Ids are unique ignoring letter case."""
    return task.lower()


def _byte_of(folded: str) -> int:
    """A task's place in the shared file: of 2^62, so that no two will ever meet. Nothing is stored there."""
    return int.from_bytes(sha256(folded.encode("utf-8", "surrogatepass")).digest()[:8], "big") >> 2


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
