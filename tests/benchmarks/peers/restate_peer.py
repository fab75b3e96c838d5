"""
Restate: a handler of six `ctx.run` steps that do nothing, the server and the handler's process both counted.

Usage: restate_peer.py FOLDER SERVER. Started with `handler PORT STUCK` as arguments it is the handler's process.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import restate
from hypercorn.asyncio import serve
from hypercorn.config import Config

STEPS = 6
AT_ONCE = 100
STUCK_AT = 2
INGRESS, ADMIN, NODE, HANDLER = 18080, 19070, 15122, 19080

service = restate.Service("Bench")
counts = {"reached": 0, "done": 0}
stuck = False


@service.handler()
async def run(ctx: restate.Context, number: int) -> int:
    total = 0
    for n in range(STEPS):
        if stuck and n == STUCK_AT:
            counts["reached"] += 1
            Path(sys.argv[4]).write_text(json.dumps(counts))
            await asyncio.Event().wait()
        total += await ctx.run_typed(f"step{n}", lambda n=n: n)
    counts["done"] += 1
    if len(sys.argv) > 4:
        Path(sys.argv[4]).write_text(json.dumps(counts))
    return total


async def handle() -> None:
    config = Config()
    config.bind = [f"127.0.0.1:{sys.argv[2]}"]
    config.h2_max_concurrent_streams = 4096
    config.errorlog = None
    await serve(restate.app([service]), config)  # type: ignore[arg-type]


class Pair:
    """The server and the handler."""

    def __init__(self, folder: Path, server: str, *, hang: bool) -> None:
        self._counts = folder / "counts.json"
        self._counts.write_text(json.dumps({"reached": 0, "done": 0}))
        environment = os.environ | {
            "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{INGRESS}",
            "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{ADMIN}",
            "RESTATE_BIND_ADDRESS": f"127.0.0.1:{NODE}",
            "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{NODE}/",
            "RESTATE_BASE_DIR": str(folder / "data"),
            "RESTATE_NODE_NAME": "bench",
            "RESTATE_DISABLE_TELEMETRY": "true",
            "RUST_LOG": "error",
        }
        log = (folder / "server.txt").open("ab")
        handler = [sys.executable, __file__, "handler", str(HANDLER), "stuck" if hang else "go", str(self._counts)]
        self.processes = [
            subprocess.Popen([server], env=environment, stdout=log, stderr=log),
            subprocess.Popen(handler, stdout=log, stderr=log),
        ]

    def counts(self) -> dict[str, int]:
        try:
            found: dict[str, int] = json.loads(self._counts.read_text())
        except ValueError:  # half written
            return {"reached": 0, "done": 0}
        return found

    def cpu_s(self) -> float:
        total = 0.0
        for process in self.processes:
            found = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(found[11]) + int(found[12])) / os.sysconf("SC_CLK_TCK")
        return total

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


async def post(port: int, path: str, body: Any) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    text = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nConnection: close\r\n"
    writer.write(head.encode() + f"Content-Length: {len(text)}\r\n\r\n".encode() + text)
    answer = await reader.read()
    writer.close()
    return int(answer.split(b" ", 2)[1]), answer


async def registered() -> None:
    for _ in range(600):
        try:
            status, _ = await post(ADMIN, "/deployments", {"uri": f"http://127.0.0.1:{HANDLER}", "force": True})
            if status < 300:
                return
        except (OSError, IndexError, ValueError):
            pass
        await asyncio.sleep(0.1)
    raise RuntimeError("the server did not start")


async def invoke(numbers: range, path: str = "/Bench/run") -> None:
    for number in numbers:
        for _ in range(50):
            status, answer = await post(INGRESS, path, number)
            if status < 300:
                break
            await asyncio.sleep(0.1)
        else:
            raise RuntimeError(answer.decode())


async def measure(pair: Pair, what: str, n: int) -> dict[str, Any]:
    workers = AT_ONCE if what == "at-once" else 1
    begun, cpu = time.perf_counter(), pair.cpu_s()
    await asyncio.gather(*(invoke(range(w, n, workers)) for w in range(workers)))
    return {"operations": n, "seconds": time.perf_counter() - begun, "cpu_s": pair.cpu_s() - cpu}


async def get_stuck(pair: Pair, n: int) -> None:
    await asyncio.gather(*(invoke(range(w, n, 20), "/Bench/run/send") for w in range(20)))
    while pair.counts()["reached"] < n:  # noqa: ASYNC110  (another process counts)
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)  # what was journalled is flushed
    pair.kill()


async def recover(folder: Path, server: str, n: int) -> dict[str, Any]:
    begun = time.perf_counter()
    pair = Pair(folder, server, hang=False)
    while pair.counts()["done"] < n:  # noqa: ASYNC110  (another process counts)
        await asyncio.sleep(0.02)
    answer = {"operations": n, "seconds": time.perf_counter() - begun, "cpu_s": pair.cpu_s()}
    pair.kill()
    return answer


async def main() -> None:
    folder, server = Path(sys.argv[1]), sys.argv[2]
    pair: Pair | None = None
    loop = asyncio.get_running_loop()
    try:
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            what, number = line.split()
            if what == "recover":
                print(json.dumps(await recover(folder, server, int(number))), flush=True)
                continue
            if pair is None:
                pair = Pair(folder, server, hang=what == "stuck")
                await registered()
                if what != "stuck":
                    await measure(pair, "at-once", AT_ONCE)
            if what == "stuck":
                await get_stuck(pair, int(number))
                print(json.dumps({"stuck": int(number)}), flush=True)
                return
            print(json.dumps(await measure(pair, what, int(number))), flush=True)
    finally:
        if pair is not None:
            pair.kill()


if __name__ == "__main__":
    if sys.argv[1] == "handler":
        stuck = sys.argv[3] == "stuck"
        asyncio.run(handle())
    else:
        asyncio.run(main())
