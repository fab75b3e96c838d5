"""Serving a double: uvicorn on a free port of this machine, and git's own HTTP backend behind it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import uvicorn


class _Quiet(uvicorn.Server):
    """Leaves the signals to pytest."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    """Serve an ASGI application; gives its URL. Handlers that still wait when it ends are cancelled."""
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_config=None, lifespan="off", ws="none", timeout_graceful_shutdown=1
    )
    server = _Quiet(config)
    sockets = [config.bind_socket()]
    run = asyncio.create_task(server.serve(sockets))
    try:
        yield f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await run
        sockets[0].close()


def hang_up(send: Any) -> None:
    """Drop the connection without a word, as a proxy or a killed server does; uvicorn's own `send` is needed."""
    send.__self__.transport.abort()


async def git_backend(folder: Path, scope: dict[str, Any], body: bytes) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Answer one request of git's smart protocol from the repositories in `folder`, by `git http-backend`."""
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    env = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_SYSTEM": "/dev/null",
        "GIT_PROJECT_ROOT": str(folder),
        "GIT_HTTP_EXPORT_ALL": "1",
        "PATH_INFO": scope["path"],
        "QUERY_STRING": scope["query_string"].decode(),
        "REQUEST_METHOD": scope["method"],
        "CONTENT_TYPE": headers.get("content-type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_CONTENT_ENCODING": headers.get("content-encoding", ""),
        "GIT_PROTOCOL": headers.get("git-protocol", ""),
    }
    process = await asyncio.create_subprocess_exec(
        "git", "http-backend", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=env
    )
    out, _ = await process.communicate(body)
    head, _, content = out.partition(b"\r\n\r\n")
    lines = [line.partition(b": ")[::2] for line in head.split(b"\r\n")]
    status = next((int(value[:3]) for name, value in lines if name == b"Status"), 200)
    return status, [(name.lower(), value) for name, value in lines if name != b"Status"], content
