"""Lookup of the nodes that own channels, on one server or in a cluster, with one client per node."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from tidelog import (
    ChannelDescription,
    ChannelOwner,
    Client,
    NotOwnerError,
    UnavailableError,
    VchannelDescription,
)
from tidelog.spark.connection import Connection
from tidelog.spark.names import channel_of
from tidelog.spark.options import ChannelPattern

if TYPE_CHECKING:
    from tidelog.gazette import JournalSpec, ListRequest

_Result = TypeVar("_Result")


class Owners:
    """The nodes behind ``connection.endpoint``, which names one or several. A context manager.

    The first call goes to one server. Owners are looked up only if it reports that another node owns a channel.
    """

    def __init__(self, connection: Connection) -> None:
        """Store the endpoint. Does no I/O."""
        self._connection = connection
        self._clients: dict[str, Client] = {}
        self._open = ExitStack()
        self._addresses: dict[str, str] = {}

    @property
    def is_cluster(self) -> bool:
        """True once owners were looked up: channels may be on several nodes."""
        return bool(self._addresses)

    def describe(self, names: Sequence[str], *, ignore_missing: bool = False) -> list[ChannelDescription]:
        """Return channels, in the order of ``names``; with ``ignore_missing`` those that exist.

        Raises:
            ChannelNotFoundError: A channel does not exist, and ``ignore_missing`` is not set.
            UnavailableError: The owner of a channel is not running, or no node responds.
        """
        try:
            return self._ask_any(lambda client: client.describe_channels(names, ignore_missing=ignore_missing))
        except NotOwnerError:
            return self._describe_at_owners(names, ignore_missing=ignore_missing)

    def listed(self, prefix: str) -> list[ChannelDescription]:
        """Return the channels whose names begin with ``prefix``, in order of name. Raises UnavailableError."""
        channels = self._ask_any(lambda client: list(client.list_channels(prefix)))
        # A node lists the channels of other nodes without vchannels.
        if all(channel.vchannels for channel in channels):
            return channels
        return self._describe_at_owners([channel.name for channel in channels])

    def covered(self, pattern: ChannelPattern) -> list[ChannelDescription]:
        """Return the channels that match ``pattern``, in order of name. Raises UnavailableError."""
        return [channel for channel in self.listed(pattern.prefix) if pattern.covers(channel.name)]

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
        found: dict[str, list[str]] = {}
        for name in vchannels:
            found.setdefault(self._address(name), []).append(name)
        for address, part in found.items():
            yield self._client_at(address), part

    def connection_of(self, vchannel: str) -> Connection:
        """Return the connection to the owner of a vchannel that was described before."""
        return replace(self._connection, endpoint=self._address(vchannel))

    def locate(self, names: Sequence[str], *, ignore_missing: bool = False) -> None:
        """Look up the owners of channels. Raises as ``describe``."""
        owners = self._ask_any(lambda client: client.locate_channels(names))
        for name in names:
            self._addresses.pop(name, None)
            if name in owners or not ignore_missing:
                self._addresses[name] = ChannelOwner.running(owners, name).address or self._seeds[0]

    def close(self) -> None:
        """Close all connections."""
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- Private -------------------------------------------------------------------------------------------

    @property
    def _seeds(self) -> tuple[str, ...]:
        return self._connection.endpoints

    def _describe_at_owners(self, names: Sequence[str], *, ignore_missing: bool = False) -> list[ChannelDescription]:
        self.locate(names, ignore_missing=ignore_missing)
        found: dict[str, ChannelDescription] = {}
        for client, part in self.of(name for name in names if name in self._addresses):
            described = client.describe_channels(part, ignore_missing=ignore_missing)
            found |= {channel.name: channel for channel in described}
        return [found[name] for name in names if name in found]

    def _ask_any(self, call: Callable[[Client], _Result]) -> _Result:
        """Return the answer of the first node that responds. Later calls try that node first."""
        for _ in self._seeds[1:]:
            first, *others = self._seeds
            try:
                return call(self._client_at(first))
            except UnavailableError:
                self._connection = replace(self._connection, endpoint=",".join((*others, first)))
        return call(self._client_at(self._seeds[0]))

    def _address(self, vchannel: str) -> str:
        return self._addresses.get(channel_of(vchannel), self._seeds[0])

    def _client_at(self, address: str) -> Client:
        if address not in self._clients:
            client = replace(self._connection, endpoint=address).client()
            self._clients[address] = self._open.enter_context(client)
        return self._clients[address]


def owner_of(seeds: Connection, channel: str) -> Connection:
    """Return the connection to the current owner of ``channel``. Raises as ``Owners.describe``."""
    with Owners(seeds) as owners:
        owners.locate([channel])
        return owners.connection_of(channel)
