"""A member process of ``benchmarks rebalance``: consumes, and appends with its positions, until it is killed."""

import json
import sys
from contextlib import suppress
from typing import Any

from tidelog import AsyncClient, GroupFencedError, Message
from tidelog_cli import event_loop


async def consume(order: dict[str, Any]) -> None:
    """Append each message to the output, exactly once."""
    async with (
        AsyncClient(order["endpoint"]) as client,
        client.consumer(order["group"], order["channel"], auto_commit=False) as consumer,
    ):
        async for batch in consumer:
            key = batch.vchannel.encode()
            # If fenced, another member owns the vchannel now and appends these messages.
            with suppress(GroupFencedError):
                async with client.txn() as txn:
                    await txn.append(order["output"], [Message(payload, key=key) for payload in batch.payloads])
                    txn.commit_positions(consumer)


if __name__ == "__main__":
    event_loop.run(consume(json.loads(sys.argv[1])))
