"""Appends of whole batches in one transaction, which is made again where it expires."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from tidelog._errors import TransactionExpiredError
from tidelog._retry import DEFAULT_RETRY
from tidelog._sizes import Appendable
from tidelog._types import Durability, TransactionResult

if TYPE_CHECKING:
    from tidelog._async_client import AsyncClient

# A silence longer than the keepalive, or a restart of the server. What an operator aborted stays aborted.
_EXPIRED_BY_ITSELF: Final = ("keepalive", "forgotten")


async def append_together(
    client: "AsyncClient",
    parts: Mapping[str, Sequence[Appendable]],
    *,
    barrier_tick: int | None = None,
    durability: Durability | None = None,
    timeout_s: float | None = None,
) -> TransactionResult:
    """Append messages to vchannels, all or none, and return where they are.

    A transaction that expires leaves nothing in the log, and its messages are here: so it is made again while there is
    time.

    Args:
        client: The client.
        parts: What is appended, by vchannel; each has messages.
        barrier_tick: What every tick must exceed.
        durability: When it is acknowledged; None for the server's default.
        timeout_s: How long it may take; None for the client's time.

    Raises:
        TidelogError: As ``AsyncTransaction.commit``; see ``effect``.
    """
    clock = asyncio.get_running_loop().time
    deadline_s = clock() + (client.timeout_s if timeout_s is None else timeout_s)
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
