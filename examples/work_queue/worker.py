"""A worker as a program: ``python -m examples.work_queue.worker ENDPOINT``. SIGTERM ends it."""

import asyncio
import sys

from examples.work_queue.jobs import DELIVERY, JOBS, LETTERS, RESULTS, Claim
from tidelog import AsyncClient, AsyncDelivery, Message

LEASE_S = 1.0
WORK_S = 0.05


async def work(endpoint: str) -> None:
    """Process claims until SIGTERM."""
    async with AsyncClient(endpoint) as client:

        async def handle(delivery: AsyncDelivery) -> None:
            claim = Claim.decode(delivery.body)
            # What takes time, so that kills meet a job in process.
            await asyncio.sleep(WORK_S)
            result = Message(claim.encode(), properties={DELIVERY: str(delivery.delivery_count)})
            # The result, the letter and the acknowledgement: all of them, or nothing. If this process is killed, the
            # lease ends and another worker does the job; if the lease was lost before, the commit is refused.
            async with client.txn() as txn:
                await txn.append(f"{RESULTS}/0", result)
                if claim.is_paid:
                    txn.send(LETTERS, claim.encode())
                txn.ack(delivery)

        await client.mailbox(JOBS).work(handle, concurrency=4, lease=LEASE_S)


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
