"""The service's own listening socket: what asyncio makes of a connection that it takes from it."""

from __future__ import annotations

import asyncio
import socket

import pytest

from integrations.serve import _listening


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_a_small_answer_does_not_wait_for_the_client_to_confirm_its_first_half(host: str) -> None:
    """Head and body are two writes: with Nagle's waiting on, the second came 40 ms late on a connection that stays."""
    if host == "::1" and not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    waits: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        waits.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    with _listening(host, 0) as listener:
        async with await asyncio.start_server(taken, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname()[:2])
            try:
                assert await waits == 1
            finally:
                writer.close()
                await writer.wait_closed()
