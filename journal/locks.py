"""
What the kernel holds for us: locks of an open file, and what is told of whoever holds one (DESIGN 5; reports R27-R38).

A lock goes when the last holder of its descriptor, child or parent, is gone, and nothing else is liveness; what is
written beside a lock is for people and for the reaper. Unlocking would also free the copy of a child that lives on. So
a term that ends with children still alive only closes its own descriptor, and the child keeps the lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path

import orjson


@dataclass(frozen=True, slots=True)
class Holder:
    """What is told of whoever took a lock last; true only while the lock is held."""

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


_RECORD = 1024
"""Bytes of what is told of a holder, as long as it fits in."""


class _Lock:
    """A lock that we hold by a descriptor, with what is told of it. `Term` of `journal.ports`."""

    def __init__(self, fd: int, holder: Holder | None = None) -> None:
        self._fd, self.holder = fd, holder or Holder()

    @property
    def fd(self) -> int:
        """For a child to inherit."""
        return self._fd

    def write(self, holder: Holder) -> None:
        """Say who holds it; failing to is no reason to give the lock up."""
        raise NotImplementedError

    def child_started(self, group: int) -> None:
        """A step's child inherits the lock; its group is named so that the reaper can end it."""
        self._groups((*self.holder.groups, group))

    def child_ended(self, group: int) -> None:
        self._groups(tuple(g for g in self.holder.groups if g != group))

    def _groups(self, groups: tuple[int, ...]) -> None:
        self.write(replace(self.holder, groups=groups))

    def release(self) -> bool:
        """Give it back. With a child alive only our descriptor goes, and True is said: the lock stays the child's."""
        if self._fd < 0:
            return False
        fd, self._fd = self._fd, -1
        if not self.holder.groups:
            with suppress(OSError):
                self._unlock(fd)
        os.close(fd)
        return bool(self.holder.groups)

    def _unlock(self, fd: int) -> None:
        """For every copy of the descriptor."""
        raise NotImplementedError


class LockFile(_Lock):
    """A file of its own, locked whole, in which its holder is told; never deleted."""

    @classmethod
    def take(cls, path: Path) -> LockFile | None:
        """
        Take the lock without waiting; None if somebody holds it.

        The descriptor is close-on-exec: a child gets it by `pass_fds` and no other way.
        """
        fd = _taken(path, lambda fd: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB))
        return None if fd is None else cls(fd)

    def write(self, holder: Holder) -> None:
        self.holder = holder
        with suppress(OSError):
            _tell(self._fd, holder)

    def _unlock(self, fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)


class TaskLock(_Lock):
    """One byte of the file that all tasks share. Who holds it is told beside it, once there are children."""

    def __init__(
        self, fd: int, byte: int, holder: Holder, record: Callable[[], Path], gone: Callable[[], object]
    ) -> None:
        super().__init__(fd, holder)
        self._byte, self._record, self._gone = byte, record, gone
        self._record_fd = -1

    @classmethod
    def take(
        cls, path: Path, byte: int, *, holder: Holder, record: Callable[[], Path], gone: Callable[[], object]
    ) -> TaskLock | None:
        """
        Take one byte without waiting; None if somebody holds it.

        Args:
            path: The file that all tasks share.
            byte: The task's place in it.
            holder: Who takes it.
            record: Says where that is told once it matters to others.
            gone: Called when we give it back.
        """
        wanted = _byte_range(fcntl.F_WRLCK, byte)
        fd = _taken(path, lambda fd: fcntl.fcntl(fd, fcntl.F_OFD_SETLK, wanted))
        return None if fd is None else cls(fd, byte, holder, record, gone)

    @property
    def fd(self) -> int:
        """For a child to inherit. It may outlive us, so the disk says first whose it is."""
        self.write(self.holder)
        return self._fd

    def write(self, holder: Holder) -> None:
        self.holder = holder
        if self._fd < 0:
            return  # given back: what is told there is another's by now
        with suppress(OSError):
            if self._record_fd < 0:
                self._record_fd = _open(self._record())
            _tell(self._record_fd, holder)

    def release(self) -> bool:
        if self._fd >= 0:
            self._gone()
        record, self._record_fd = self._record_fd, -1
        if record >= 0:
            os.close(record)
            if not self.holder.groups:  # while we hold the lock nobody else writes there
                self._record().unlink(missing_ok=True)
        return super().release()

    def _unlock(self, fd: int) -> None:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _byte_range(fcntl.F_UNLCK, self._byte))


def _taken(path: Path, lock: Callable[[int], object]) -> int | None:
    """A descriptor of the file that holds the lock; None if somebody else has it."""
    fd = _open(path)
    try:
        lock(fd)
        taken = os.fstat(fd).st_ino == path.stat().st_ino  # else the file was swapped: a lock nobody else will meet
    except (BlockingIOError, FileNotFoundError):
        taken = False
    except BaseException:
        os.close(fd)
        raise
    if not taken:
        os.close(fd)
        return None
    return fd


def _tell(fd: int, holder: Holder) -> None:
    """
    One write over the old text, filled up with blanks.

    A reader never meets half of it, and once the file has its block a full disk cannot make it fail.
    """
    text = orjson.dumps(holder).ljust(_RECORD)
    os.pwrite(fd, text, 0)
    if len(text) > _RECORD or os.fstat(fd).st_size > _RECORD:
        os.ftruncate(fd, len(text))


def _byte_range(kind: int, byte: int) -> bytes:
    """A `struct flock` of Linux about one byte; the process number of an OFD lock is 0."""
    return _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0)


_FLOCK = struct.Struct("@hhqqi4x")


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return os.open(path, flags, 0o600)


def read_holder(path: Path) -> Holder:
    """What is told there; whatever cannot be read is left empty."""
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


def byte_is_held(path: Path, byte: int) -> bool:
    """The same of one byte; asking takes nothing."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        told = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _byte_range(fcntl.F_WRLCK, byte))
    finally:
        os.close(fd)
    return bool(_FLOCK.unpack(told)[0] != fcntl.F_UNLCK)
