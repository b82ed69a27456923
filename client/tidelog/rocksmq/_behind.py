"""From a synchronous client to the asynchronous one that does its work, and from that to its connections."""

from tidelog import AsyncClient, Client
from tidelog._transport import Transport


def client_behind(client: Client) -> AsyncClient:
    """Return the client whose calls run on the background loop."""
    return client._client  # noqa: SLF001 - twins of this package share it, and nobody else shall.


def transport_behind(client: AsyncClient) -> Transport:
    """Return the open connections of a client. Raises ClosedError."""
    return client._transport()  # noqa: SLF001 - queues wait for the server as the client's own readers do.
