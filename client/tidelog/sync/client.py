"""The synchronous client: the calls of ``AsyncClient`` without ``await``, on a background event loop."""

from tidelog.client import (
    DEFAULT_CONNECT_TIMEOUT_S,
    DEFAULT_ENDPOINT,
    DEFAULT_IN_FLIGHT_BYTES,
    DEFAULT_TIMEOUT_S,
    AsyncClient,
)  # fmt: skip
from tidelog.sync.blobs import BlobCalls
from tidelog.sync.generated.client import ClientBase
from tidelog.sync.journals import JournalCalls
from tidelog.sync.mailboxes import MailboxCalls
from tidelog.sync.wal import Wal
from tidelog.transport.background import background
from tidelog.transport.credentials import TlsOptions, TokenSource
from tidelog.transport.in_one_process import InOneProcess
from tidelog.transport.retry import DEFAULT_RETRY, Retry


class Client(InOneProcess, ClientBase):
    """A client of one Tidelog server. ``AsyncClient`` is its asynchronous twin, with the same names and contracts.

    Thread-safe. All clients of a process share one event loop on a background thread. A child that is forked while no
    append or scan is in progress may continue to use it.
    """

    def __init__(
        self,
        endpoint: str = DEFAULT_ENDPOINT,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        connect_timeout_s: float = DEFAULT_CONNECT_TIMEOUT_S,
        max_in_flight_bytes: int = DEFAULT_IN_FLIGHT_BYTES,
        retry: Retry = DEFAULT_RETRY,
        client_id: str | None = None,
        tls: TlsOptions | None = None,
        token: TokenSource | None = None,
    ) -> None:
        """Create a client; does no I/O. See ``AsyncClient``."""
        self.endpoint = endpoint
        self.timeout_s = timeout_s
        self._client: AsyncClient = AsyncClient(
            endpoint, timeout_s=timeout_s, connect_timeout_s=connect_timeout_s,
            max_in_flight_bytes=max_in_flight_bytes, retry=retry, client_id=client_id, tls=tls, token=token,
        )  # fmt: skip
        self.journals = JournalCalls(self._client.journals)
        self.mailboxes = MailboxCalls(self._client.mailboxes)
        self.blobs = BlobCalls(self._client.blobs)
        background.add(self._client)

    def wal(self) -> Wal:
        """Return the client's log with a WAL accessor's interface. See ``AsyncClient.wal``."""
        # Why by hand: its reads have threads for their handlers, and need the asynchronous accessor.
        return Wal(self, self._client.wal())
