"""The content of the log, as a client reads it."""

from tidelog import AsyncClient


async def payloads(client: AsyncClient, vchannel: str) -> list[bytes]:
    """Return the payloads of everything that was acknowledged on ``vchannel``, in order."""
    return [payload async for batch in client.scan(vchannel) for payload in batch.payloads]
