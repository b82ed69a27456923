"""From a synchronous client to the asynchronous one that does its work."""

from tidelog import AsyncClient, Client


def client_behind(client: Client) -> AsyncClient:
    """Return the client whose calls run on the background loop."""
    return client._client  # noqa: SLF001 - twins of this package share it, and nobody else shall.
