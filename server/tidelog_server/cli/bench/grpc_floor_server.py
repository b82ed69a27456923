"""A gRPC server that does nothing but move bytes: ``python -m tidelog_server.cli.bench.grpc_floor_server``.

Prints its port on one line and serves until its standard input ends, so that it never outlives its parent.
"""

import asyncio
import struct
import sys
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc

SERVICE: Final = "tidelog.bench.Floor"
STREAM_REQUEST: Final = struct.Struct(">II")
OPTIONS: Final = (("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20))


async def echo(requests: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
    """Send every message back."""
    async for request in requests:
        yield request


async def stream(request: bytes, _context: Any) -> AsyncIterator[bytes]:
    """Send messages of one size; the request holds (count, bytes of each)."""
    count, size_bytes = STREAM_REQUEST.unpack(request)
    message = bytes(size_bytes)
    for _ in range(count):
        yield message


async def _main() -> None:
    server = grpc.aio.server(options=OPTIONS)
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Echo": grpc.stream_stream_rpc_method_handler(echo),
        "Stream": grpc.unary_stream_rpc_method_handler(stream),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(_main())
