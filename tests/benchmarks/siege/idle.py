"""Idle streams of ``benchmarks security``, in their own process: following scans of a channel without appends."""

import asyncio
import json
import sys
from typing import Any

from tidelog import AsyncClient, At, TlsOptions
from tidelog_cli import event_loop

# Streams that are opened at once, far below the server's limit of pending calls.
_AT_ONCE = 100
_LOOK_AGAIN_S = 0.01
_WATERMARK_INTERVAL_S = 60.0


async def idle(order: dict[str, Any]) -> None:
    """Open the streams, print ``ready``, keep them until the end of standard input, and print the number still open."""
    async with AsyncClient(
        order["endpoint"],
        tls=TlsOptions(order["ca"], order.get("cert"), order.get("key")),
        token=order["token"],
        timeout_s=60,
    ) as client:
        scans = [
            client.scan(order["channel"], until=At.follow(), watermark_interval_s=_WATERMARK_INTERVAL_S)
            for _ in range(order["streams"])
        ]
        waiting: list[asyncio.Future[Any]] = []
        for begin in range(0, len(scans), _AT_ONCE):
            part = scans[begin : begin + _AT_ONCE]
            await asyncio.gather(*(scan.__aenter__() for scan in part))
            waiting += [asyncio.ensure_future(anext(scan)) for scan in part]
            # A following scan receives its watermark first: until then it is not idle, but being opened.
            while not all(scan.watermark for scan in part):
                await asyncio.sleep(_LOOK_AGAIN_S)
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        print(json.dumps({"standing": sum(not each.done() for each in waiting)}), flush=True)
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


if __name__ == "__main__":
    event_loop.run(idle(json.loads(sys.argv[1])))
