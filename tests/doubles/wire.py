"""A wire to a PostgreSQL server that can lose the server's answers, or lie about who answers as a pooler does."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator


class Wire:
    """Forwards connections to a port of this machine."""

    def __init__(self, port: int, *, pooled: bool = False) -> None:
        self._to, self._pooled = port, pooled
        self._losing = self._keeping_back = b""
        self.port = self.lost = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def lose_the_answer(self, holding: bytes) -> None:
        """The server did what it was asked; in place of the first answer with these bytes the connection closes."""
        self._losing = holding

    def lose_the_request(self, holding: bytes) -> None:
        """The next request with these bytes never reaches the server; the connection closes."""
        self._keeping_back = holding

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to)
        up = asyncio.create_task(self._up(reader, far_writer))
        down = asyncio.create_task(self._down(far_reader, writer))
        self._tasks |= {up, down}
        await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
        for side in (writer, far_writer):
            side.close()
        await asyncio.gather(up, down, return_exceptions=True)
        self._tasks -= {up, down}

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if self._keeping_back and self._keeping_back in data:
                    self._keeping_back = b""
                    return
                writer.write(data)
                await writer.drain()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if self._losing and self._losing in data:
                    self._losing, self.lost = b"", self.lost + 1
                    return
                writer.write(_renumbered(data) if self._pooled else data)
                await writer.drain()

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()


def _renumbered(data: bytes) -> bytes:
    """BackendKeyData with a number of the pooler's own, as PgBouncer sends it."""
    at = data.find(b"K\x00\x00\x00\x0c")
    if at < 0:
        return data
    (pid,) = struct.unpack_from("!I", data, at + 5)
    return data[: at + 5] + struct.pack("!I", pid + 1) + data[at + 9 :]


@contextlib.asynccontextmanager
async def wire(port: int, *, pooled: bool = False) -> AsyncIterator[Wire]:
    """A wire to a server's port; its own port is in `port`."""
    made = Wire(port, pooled=pooled)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        made.end()
        await server.wait_closed()
