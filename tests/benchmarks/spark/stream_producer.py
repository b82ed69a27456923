"""The producer process of ``benchmarks stream``: appends at a steady rate after a line on standard input."""

import asyncio
import json
import sys
import time
from typing import Any, Final

from tidelog import AsyncClient
from tidelog_cli import event_loop
from tidelog_server.commands.bench.payloads import distinct_payloads, payload_lists

_TURNS_PER_SECOND: Final = 50


async def produce(order: dict[str, Any]) -> None:
    """Append each vchannel's share of the rate fifty times a second, never ahead of the clock."""
    payloads = distinct_payloads(order["size"])
    vchannels: list[str] = order["vchannels"]
    turns = order["seconds"] * _TURNS_PER_SECOND
    share = max(1, order["rate"] // _TURNS_PER_SECOND // len(vchannels))
    async with AsyncClient(order["endpoint"]) as client:
        producers = [client.vchannel(name).producer() for name in vchannels]
        for producer in producers:
            await producer.__aenter__()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        start = time.monotonic()
        lists = payload_lists(payloads, count=turns * len(vchannels) * share, per_batch=share)
        for turn in range(turns):
            await asyncio.sleep(max(0.0, start + turn / _TURNS_PER_SECOND - time.monotonic()))
            for producer in producers:
                await producer.send_many(next(lists))
        for producer in producers:
            await producer.__aexit__(None, None, None)
    seconds = time.monotonic() - start
    print(json.dumps({"messages": turns * len(vchannels) * share, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    event_loop.run(produce(json.loads(sys.argv[1])))
