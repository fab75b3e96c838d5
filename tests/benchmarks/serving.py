"""P8, P9, P15: the page that everybody polls, while events are written and with a million tasks; memory and disk."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from statistics import median

from tests.benchmarks import appends
from tests.benchmarks.logs import EVENTS_A_TASK, Logs, name_of
from tests.benchmarks.measuring import Row, Side, Timed, compared, in_turn
from tests.benchmarks.sizes import Sizes
from tests.benchmarks.starting import Serving, get, serving
from tests.benchmarks.targets import TARGETS

CONNECTIONS = 32
_A_TASK = name_of(100)
"""One that went all the way, in every log."""


async def measure(folder: Path, logs: Logs, sizes: Sizes) -> list[Row]:
    """Services over the short log and over each long one."""
    rows = []
    async with AsyncExitStack() as stack:
        small = await stack.enter_async_context(_service(logs, sizes.short_log))
        rows.append(await _through_a_model(small, sizes))
        for events in sizes.long_logs:
            async with _service(logs, events) as large:
                rows.append(await _while_writing("P8", "/queue", small, large, sizes, events))
                rows.append(await _while_writing("P8t", f"/tasks/{_A_TASK}", small, large, sizes, events))
                rows.append(_memory(small, large, events))
    rows.append(await _disk(folder))
    return rows


def _service(logs: Logs, events: int) -> AbstractAsyncContextManager[Serving]:
    path = logs.of(events)
    tasks = events // EVENTS_A_TASK
    return serving(path, sys.executable, "-m", "tests.benchmarks.served", str(path), str(tasks))


async def _through_a_model(service: Serving, sizes: Sizes) -> Row:
    ours, base = Side("GET /queue, 200 open tasks, 32 connections"), Side("through the response model")
    await _requests(service.port, "/queue", 100)
    await in_turn(
        sizes.rounds,
        (ours, lambda: _counted(service, "/queue", sizes.requests)),
        (base, lambda: _counted(service, "/bench/model", sizes.requests // 4)),
    )
    return compared("P9", ours, base, unit="requests")


async def _counted(service: Serving, path: str, requests: int) -> Timed:
    cpu, begun = service.cpu_s(), time.perf_counter()
    await _requests(service.port, path, requests)
    return Timed(requests, time.perf_counter() - begun, service.cpu_s() - cpu)


async def _requests(port: int, path: str, requests: int, connections: int = CONNECTIONS) -> list[float]:
    """So many requests over connections that stay open; seconds of each, sorted."""
    times: list[float] = []
    left = iter(range(requests))
    await asyncio.gather(*(_connection(port, path, left, times) for _ in range(connections)))
    return sorted(times)


async def _connection(port: int, path: str, left: Iterator[int], times: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    request = f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode()
    try:
        for _ in left:
            begun = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.split(b":")[1]))
            times.append(time.perf_counter() - begun)
    finally:
        writer.close()


async def _while_writing(name: str, path: str, small: Serving, large: Serving, sizes: Sizes, events: int) -> Row:
    """p99 of one connection that asks again and again, in turn, each while its own service writes."""
    p99: dict[int, list[float]] = {small.port: [], large.port: []}
    p50: dict[int, list[float]] = {small.port: [], large.port: []}
    for turn in range(sizes.rounds * 2):
        for service in (small, large) if turn % 2 else (large, small):
            await get(service.port, "/bench/write?on=1")
            times = await _requests(service.port, path, sizes.requests // 4, 1)
            await get(service.port, "/bench/write?on=0")
            p99[service.port].append(times[int(len(times) * 0.99)])
            p50[service.port].append(median(times))
    ratios = [big / little for big, little in zip(p99[large.port], p99[small.port], strict=True)]

    def words(service: Serving, tasks: int) -> str:
        middle, high = median(p50[service.port]) * 1000, median(p99[service.port]) * 1000
        return f"{tasks:,} tasks: p50 {middle:.2f} ms, p99 {high:.2f} ms"

    return Row(
        TARGETS[name],
        median(ratios),
        (min(ratios), max(ratios)),
        words(large, events // EVENTS_A_TASK),
        words(small, sizes.short_log // EVENTS_A_TASK),
        note="200 open, 1,000 events/s",
        points=tuple(
            (size, median(p99[service.port]) * 1e6) for size, service in ((sizes.short_log, small), (events, large))
        ),
    )


def _memory(small: Serving, large: Serving, events: int) -> Row:
    """Both have answered as many requests and written as many events."""
    ratio = large.private_bytes() / small.private_bytes()
    return Row(
        TARGETS["P15"],
        ratio,
        (ratio, ratio),
        f"{events // EVENTS_A_TASK:,} tasks: {large.private_bytes() / 2**20:.0f} MiB",
        f"few tasks: {small.private_bytes() / 2**20:.0f} MiB",
        note="anonymous memory",
    )


async def _disk(folder: Path) -> Row:
    total, body = await appends.bytes_an_event(folder)
    as_asked = total + 318 - body
    ours = f"{total:.0f} bytes an event with a body of {body:.0f}, views included"
    return Row(TARGETS["P15d"], as_asked, (as_asked, as_asked), ours, "100 tasks at once, to their end")
