"""
Count how often SQLite flushes, in this process, without a tracer: a VFS that stands before the default one.

The count is taken in a round of its own, since entering Python at every flush would disturb the one that is timed.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Iterator
from contextlib import contextmanager

_VFS_SIZE = 168  # of sqlite3_vfs, version 3, where pointers have eight bytes
_METHODS_SIZE = 152  # of sqlite3_io_methods, version 3
_X_OPEN, _X_SYNC = 40, 40  # where the two functions stand in them
_NAME = 24

_Open = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
_Sync = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)


class Counter:
    """Flushes so far; files opened while the counter is in force are counted for as long as they are open."""

    def __init__(self) -> None:
        self.count = 0
        self._library = ctypes.CDLL(ctypes.util.find_library("sqlite3") or "libsqlite3.so.0")
        self._library.sqlite3_vfs_find.restype = ctypes.c_void_p
        self._library.sqlite3_vfs_register.argtypes = [ctypes.c_void_p, ctypes.c_int]
        self._library.sqlite3_vfs_unregister.argtypes = [ctypes.c_void_p]
        default = self._library.sqlite3_vfs_find(None)
        self._vfs = ctypes.create_string_buffer(ctypes.string_at(default, _VFS_SIZE), _VFS_SIZE)
        self._name = ctypes.create_string_buffer(b"counting")
        self._plain_open = _Open(self._pointer(self._vfs, _X_OPEN).value or 0)
        self._open = _Open(self._opened)
        self._pointer(self._vfs, _NAME).value = ctypes.addressof(self._name)
        self._pointer(self._vfs, _X_OPEN).value = ctypes.cast(self._open, ctypes.c_void_p).value
        self._methods: dict[int, tuple[ctypes.Array[ctypes.c_char], object]] = {}

    def install(self) -> None:
        """Stand before the default."""
        self._library.sqlite3_vfs_register(ctypes.addressof(self._vfs), 1)

    def remove(self) -> None:
        """Let later files go the plain way again."""
        self._library.sqlite3_vfs_unregister(ctypes.addressof(self._vfs))

    @staticmethod
    def _pointer(block: ctypes.Array[ctypes.c_char], offset: int) -> ctypes.c_void_p:
        return ctypes.c_void_p.from_buffer(block, offset)

    def _opened(self, vfs: int, name: int, file: int, flags: int, out: int) -> int:
        result: int = self._plain_open(vfs, name, file, flags, out)
        methods = ctypes.c_void_p.from_address(file)
        if methods.value:
            methods.value = ctypes.addressof(self._counted(methods.value))
        return result

    def _counted(self, methods: int) -> ctypes.Array[ctypes.c_char]:
        """A copy of a file's methods whose xSync counts; one for each kind of file, kept for ever."""
        if methods not in self._methods:
            copy = ctypes.create_string_buffer(ctypes.string_at(methods, _METHODS_SIZE), _METHODS_SIZE)
            plain = _Sync(self._pointer(copy, _X_SYNC).value or 0)

            def sync(file: int, flags: int) -> int:
                self.count += 1
                result: int = plain(file, flags)
                return result

            counted = _Sync(sync)
            self._pointer(copy, _X_SYNC).value = ctypes.cast(counted, ctypes.c_void_p).value
            self._methods[methods] = (copy, (plain, counted))
        return self._methods[methods][0]


_counter: Counter | None = None


@contextmanager
def counting() -> Iterator[Counter]:
    """Count the flushes of databases that are opened inside."""
    global _counter  # SQLite keeps pointers into it: there is one, for the life of the process
    counter = _counter = _counter or Counter()
    counter.count = 0
    counter.install()
    try:
        yield counter
    finally:
        counter.remove()
