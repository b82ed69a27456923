"""The synchronous client: the calls of ``AsyncClient`` without ``await``, on a background event loop."""

from typing import Unpack

from tidelog.client import AsyncClient
from tidelog.session import ClientOptions
from tidelog.sync.generated.blobs import BlobCalls
from tidelog.sync.generated.client import ClientBase
from tidelog.sync.generated.journals import JournalCalls
from tidelog.sync.generated.mailboxes import MailboxCalls
from tidelog.sync.wal import Wal
from tidelog.transport.background import background
from tidelog.transport.in_one_process import InOneProcess


class Client(InOneProcess, ClientBase):
    """A client of Tidelog. ``AsyncClient`` is its asynchronous twin, with the same names and contracts.

    ``Client("host:port")`` calls the server at that address. ``Client()``, ``Client("tidelog://…")`` and
    ``from_context`` make a client that finds the node of a cluster that owns a channel.

    Thread-safe. All clients of a process share one event loop on a background thread. A child that is forked while no
    append or scan is in progress may continue to use it.
    """

    def _wrap(self, client: AsyncClient) -> None:
        self._client = client
        self.timeout_s = client.timeout_s
        self.journals = JournalCalls(client.journals)
        self.mailboxes = MailboxCalls(client.mailboxes)
        self.blobs = BlobCalls(client.blobs)

    @classmethod
    def from_context(cls, name: str | None = None, **options: Unpack[ClientOptions]) -> "Client":
        """Return a client of a context, which ``tidelog ctx add`` has saved. See ``AsyncClient.from_context``."""
        client = AsyncClient.from_context(name, **options)
        made = twin_of(client)
        background.add(client)
        return made

    def __repr__(self) -> str:
        return f"<Client of {self.endpoint}>"

    def wal(self) -> Wal:
        """Return the client's log with a WAL accessor's interface. See ``AsyncClient.wal``."""
        # Why by hand: its reads have threads for their handlers, and need the asynchronous accessor.
        return Wal(self, self._client.wal())


def twin_of(client: AsyncClient) -> Client:
    """Return the twin of a client that something else pauses around forks, such as ``AsyncCluster``."""
    twin = Client.__new__(Client)
    twin._wrap(client)  # noqa: SLF001 - a constructor
    return twin
