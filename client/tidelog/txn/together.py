"""Appends batches in one transaction, which is retried if it expires."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Protocol, Unpack

from tidelog.append.sizes import Appendable
from tidelog.errors import TransactionExpiredError
from tidelog.transport.retry import DEFAULT_RETRY
from tidelog.txn.options import TransactionOptions
from tidelog.txn.transaction import AsyncTransaction
from tidelog.types import Durability, TransactionResult
from tidelog.wire.durations import Duration, seconds_or

# No keepalive arrived in time, or the server was restarted. A transaction aborted by an operator is not retried.
_EXPIRED_BY_ITSELF: Final = ("keepalive", "forgotten")


class TransactionClient(Protocol):
    """What this module uses of ``AsyncClient``."""

    timeout_s: float

    def txn(self, **options: Unpack[TransactionOptions]) -> AsyncTransaction:
        """See ``AsyncClient.txn``."""


async def append_together(
    client: TransactionClient,
    parts: Mapping[str, Sequence[Appendable]],
    *,
    barrier_tick: int | None = None,
    durability: Durability | None = None,
    timeout_s: Duration | None = None,
) -> TransactionResult:
    """Append messages to vchannels atomically, and return their positions.

    A transaction that expires leaves nothing in the log, and its messages are still in this process, so it is retried
    within the timeout.

    Args:
        client: The client.
        parts: Messages by vchannel, at least one each.
        barrier_tick: Tick that all ticks must exceed.
        durability: When to acknowledge: ``sync`` or ``os``; None for the server's default.
        timeout_s: Timeout in seconds; None for the client's.

    Raises:
        TidelogError: As ``AsyncTransaction.commit``; see ``effect``.
    """
    clock = asyncio.get_running_loop().time
    deadline_s = clock() + seconds_or("timeout_s", timeout_s, client.timeout_s)
    pauses_s = DEFAULT_RETRY.pauses_s()
    while True:
        try:
            async with client.txn(durability=durability, timeout_s=max(0.0, deadline_s - clock())) as txn:
                for vchannel, messages in parts.items():
                    await txn.append(vchannel, messages, barrier_tick=barrier_tick)
        except TransactionExpiredError as error:
            pause_s = next(pauses_s)
            if error.values.get("cause") not in _EXPIRED_BY_ITSELF or clock() + pause_s >= deadline_s:
                raise
        else:
            return txn.result
        await asyncio.sleep(pause_s)
