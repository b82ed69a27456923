"""A consumer process of ``benchmarks retention``: counts messages up to the ends that it reads from standard input."""

import asyncio
import json
import sys
from typing import Any

from tidelog import AsyncClient
from tidelog_cli import event_loop

_POLL_S = 0.2


async def consume(order: dict[str, Any]) -> None:
    """Consume and commit until all messages before the ends are counted."""
    async with (
        AsyncClient(order["endpoint"], timeout_s=60.0) as client,
        client.consumer(order["group"], order["channel"]) as consumer,
    ):
        print("ready", flush=True)
        line = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
        messages = 0
        while not line.done() or not _is_behind(consumer.positions, json.loads(line.result())):
            messages += sum(map(len, await consumer.poll(_POLL_S)))
    print(json.dumps({"messages": messages}), flush=True)


def _is_behind(positions: Any, ends: dict[str, int]) -> bool:
    return all(tick <= positions[vchannel] for vchannel, tick in ends.items())


if __name__ == "__main__":
    event_loop.run(consume(json.loads(sys.argv[1])))
