"""Idle streams of ``bench security``, as a process: following scans of a channel that nobody appends to."""

import asyncio
import json
import sys
from typing import Any

from tidelog import AsyncClient, At, TlsOptions
from tidelog_server.cli import event_loop

# So many are opened at once; the server's own bound of calls that wait is far above.
_AT_ONCE = 100
_LOOK_AGAIN_S = 0.01
_WATERMARK_INTERVAL_S = 60.0


async def idle(order: dict[str, Any]) -> None:
    """Open the streams, say so, and keep them until standard input ends; then tell how many still stand."""
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
            # A following scan is told its watermark at once: until then it is not idle, it is being opened.
            while not all(scan.watermark for scan in part):  # noqa: ASYNC110 - a scan tells nobody
                await asyncio.sleep(_LOOK_AGAIN_S)
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        print(json.dumps({"standing": sum(not each.done() for each in waiting)}), flush=True)
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


if __name__ == "__main__":
    event_loop.run(idle(json.loads(sys.argv[1])))
