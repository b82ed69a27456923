"""Access to the asynchronous client behind a synchronous one, and to the connections of a client."""

from tidelog import AsyncClient, Client
from tidelog.transport.transport import Transport


def client_behind(client: Client) -> AsyncClient:
    """Return the client whose calls run on the background loop."""
    return client._client  # noqa: SLF001 - shared by the twins of this package only


def transport_behind(client: AsyncClient) -> Transport:
    """Return the open connections of a client. Raises ClosedError."""
    return client._transport()  # noqa: SLF001 - queues wait for the server as the client's own readers do
