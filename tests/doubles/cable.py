"""A cable between a client and a server on this machine that a test can cut and plug in again (TCP, in a thread)."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Self


class Cable:
    """Forwards connections while it is whole; cut, it goes silent as a lost network does, and closes nothing."""

    def __init__(self, port: int) -> None:
        self._to, self.port = port, 0
        self._whole = threading.Event()
        self._whole.set()
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None
        self._plugged: asyncio.Event | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="cable", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None and self._over is not None
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def cut(self) -> None:
        self._tell(whole=False)

    def plug(self) -> None:
        self._tell(whole=True)

    def _tell(self, *, whole: bool) -> None:
        assert self._loop is not None and self._plugged is not None
        self._loop.call_soon_threadsafe(self._plugged.set if whole else self._plugged.clear)

    async def _serve(self) -> None:
        self._loop, self._over, self._plugged = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        self._plugged.set()
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._over.wait()
        server.close()
        ends = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in ends:
            task.cancel()
        await asyncio.gather(*ends, return_exceptions=True)
        await asyncio.sleep(0)  # sockets that were cut off are closed at the loop's next turn

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to)
            writers.append(far_writer)
            async with asyncio.TaskGroup() as pumps:
                ways = [self._pump(reader, far_writer), self._pump(far_reader, writer)]
                both = [pumps.create_task(way) for way in ways]
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                for pump in both:
                    pump.cancel()
        except OSError:
            pass
        finally:
            for end in writers:
                end.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self._plugged is not None
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                await self._plugged.wait()
                writer.write(data)
                await writer.drain()
