"""Lookup of the nodes that own channels, on one server or in a cluster, with one client per node."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from tidelog import (
    ChannelDescription,
    ChannelOwner,
    ChannelPattern,
    Client,
    NotOwnerError,
    UnavailableError,
    VchannelDescription,
)
from tidelog.spark.connection import Connection
from tidelog.spark.names import channel_of

if TYPE_CHECKING:
    from tidelog.gazette import JournalSpec, ListRequest

_Result = TypeVar("_Result")


class Owners(ExitStack):
    """The nodes behind ``connection.endpoint``, which names one or several; its end closes the clients.

    Owners are looked up if several are named, or if the one that is named reports that another node owns a channel.
    """

    def __init__(self, connection: Connection) -> None:
        """Store the endpoint. Does no I/O."""
        super().__init__()
        self._connection = connection
        self._clients: dict[Connection, Client] = {}
        self._owners: dict[str, ChannelOwner] = {}

    def describe(self, names: Sequence[str], *, ignore_missing: bool = False) -> list[ChannelDescription]:
        """Return channels, in the order of ``names``; with ``ignore_missing`` those that exist.

        Raises:
            ChannelNotFoundError: A channel does not exist, and ``ignore_missing`` is not set.
            UnavailableError: The owner of a channel is not running, or no node responds.
        """
        if len(self._connection.endpoints) == 1:
            with suppress(NotOwnerError):
                return self._ask_any(lambda client: client.describe_channels(names, ignore_missing=ignore_missing))
        return self._describe_at_owners(names, ignore_missing=ignore_missing)

    def covered(self, pattern: ChannelPattern) -> list[ChannelDescription]:
        """Return the channels that match and that the caller may read, in order of name. Raises UnavailableError."""
        channels = self._ask_any(lambda client: list(client.list_channels(pattern.text, only_readable=True)))
        # A node lists the channels of other nodes without vchannels.
        if len(self._connection.endpoints) == 1 and all(channel.vchannels for channel in channels):
            return channels
        return self._describe_at_owners([channel.name for channel in channels])

    def journals(self, request: "ListRequest") -> "Sequence[JournalSpec]":
        """Return the journals that ``request`` selects, in order of name. Raises UnavailableError."""
        return self._ask_any(lambda client: client.journals.list(request).journals)

    def by_node(self, vchannels: Iterable[VchannelDescription]) -> Iterator[tuple[Client, list[VchannelDescription]]]:
        """Yield the owners of ``vchannels``, each with its part. The vchannels must have been described before."""
        by_name = {each.name: each for each in vchannels}
        for client, names in self.of(by_name):
            yield client, [by_name[name] for name in names]

    def of(self, vchannels: Iterable[str]) -> Iterator[tuple[Client, list[str]]]:
        """Yield the owners of ``vchannels``, each with its part. The vchannels must have been described before."""
        found: dict[Connection, list[str]] = {}
        for name in vchannels:
            found.setdefault(self.connection_of(name), []).append(name)
        for connection, part in found.items():
            yield self._client_of(connection), part

    def connection_of(self, vchannel: str) -> Connection:
        """Return the connection to the owner of a vchannel that was described before."""
        owner = self._owners.get(channel_of(vchannel))
        return self._first if owner is None else self._connection.of(owner)

    def locate(self, names: Sequence[str], *, ignore_missing: bool = False) -> None:
        """Look up the owners of channels. Raises as ``describe``."""
        owners = self._ask_any(lambda client: client.locate_channels(names))
        for name in names:
            self._owners.pop(name, None)
            if name in owners or not ignore_missing:
                self._owners[name] = ChannelOwner.running(owners, name)

    # -- Private -------------------------------------------------------------------------------------------

    def _describe_at_owners(self, names: Sequence[str], *, ignore_missing: bool = False) -> list[ChannelDescription]:
        self.locate(names, ignore_missing=ignore_missing)
        found: dict[str, ChannelDescription] = {}
        for client, part in self.of(name for name in names if name in self._owners):
            described = client.describe_channels(part, ignore_missing=ignore_missing)
            found |= {channel.name: channel for channel in described}
        return [found[name] for name in names if name in found]

    def _ask_any(self, call: Callable[[Client], _Result]) -> _Result:
        """Return the answer of the first node that responds. Later calls try that node first."""
        for _ in self._connection.endpoints[1:]:
            try:
                return call(self._client_of(self._first))
            except UnavailableError:
                first, *others = self._connection.endpoints
                self._connection = replace(self._connection, endpoints=(*others, first))
        return call(self._client_of(self._first))

    @property
    def _first(self) -> Connection:
        return replace(self._connection, endpoints=self._connection.endpoints[:1])

    def _client_of(self, connection: Connection) -> Client:
        if connection not in self._clients:
            self._clients[connection] = self.enter_context(connection.client())
        return self._clients[connection]


def owner_of(seeds: Connection, channel: str) -> Connection:
    """Return the connection to the current owner of ``channel``. Raises as ``Owners.describe``."""
    with Owners(seeds) as owners:
        owners.locate([channel])
        return owners.connection_of(channel)
