"""A member process of ``benchmarks consume``: joins, and consumes its share after a line on standard input."""

import asyncio
import json
import sys
from typing import Any

from tidelog import AsyncClient, AsyncConsumer
from tidelog_cli import event_loop


async def consume(order: dict[str, Any]) -> None:
    """Consume up to ``ends``, and commit each batch."""
    ends: dict[str, int] = order["ends"]
    async with AsyncClient(order["endpoint"]) as client:
        consumer = client.consumer(order["group"], order["channel"], auto_commit=False)
        async with consumer:
            await _wait_for_start(consumer)
            messages = commits = 0
            # A member that started earlier may have consumed its whole share, left, and passed its vchannels on.
            left = {vchannel: ends[vchannel] for vchannel, tick in consumer.positions.items() if tick < ends[vchannel]}
            while left:
                batch = await anext(consumer)
                messages += len(batch.payloads)
                if order["waits"]:
                    await consumer.commit()
                else:
                    consumer.commit_soon()
                commits += 1
                if batch.vchannel in left and batch.ticks[-1] + 1 >= left[batch.vchannel]:
                    del left[batch.vchannel]
            await consumer.commit()
            print(json.dumps({"messages": messages, "commits": commits}), flush=True)


async def _wait_for_start(consumer: AsyncConsumer) -> None:
    """Wait for a line on standard input, and take part in rebalances meanwhile."""
    line = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
    while not line.done():
        await consumer.wait_rebalance(0.1)


if __name__ == "__main__":
    event_loop.run(consume(json.loads(sys.argv[1])))
