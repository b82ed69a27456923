"""The open channels of this node by name, and the names of all nodes' channels."""

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from itertools import takewhile

from tidelog_server.channels.catalog import ChannelRecord
from tidelog_server.channels.ownership import Ownership
from tidelog_server.core.errors import ChannelNotExistError, InvalidRequestError
from tidelog_server.core.names import is_readable_system_channel, parse_vchannel_name, system_channel_name
from tidelog_server.log.channel_log import ChannelLog
from tidelog_server.log.node import LogNode
from tidelog_server.log.protocols import Place


class Directory:
    """Finds channels and vchannels by name. Lives on the event loop.

    Attributes:
        logs: Open channels of this node.
        changes: Serialises trims and changes of the catalog; appends and scans never take it.
        ownership: Owners of channels; set when the node opens.
    """

    def __init__(self, node: LogNode) -> None:
        self._node = node
        self.logs: dict[str, ChannelLog] = {}
        self.changes = asyncio.Lock()
        self.ownership: Ownership
        # Names of all nodes' channels, sorted.
        self._names: list[str] = []

    def add(self, record: ChannelRecord) -> ChannelLog:
        """Open the log of a channel of this node whose vchannels exist in the store."""
        # Another node may have created it: no message and no watermark of a channel precedes its creation.
        self._node.shared.oracle.leave_behind(record.created_tick)
        log = self.logs[record.name] = self._node.add(record.name, record.vchannel_ids, record.created_tick)
        insort(self._names, record.name)
        return log

    def remove(self, name: str) -> ChannelLog:
        """Find a channel of this node no longer; return its log, which stays open."""
        del self._names[bisect_left(self._names, name)]
        return self.logs.pop(name)

    def add_foreign(self, name: str) -> None:
        """List a channel that another node owns."""
        insort(self._names, name)

    def list_again(self, foreign: Iterable[str]) -> None:
        """List the open channels and those of other nodes, ``foreign``, and no others."""
        self._names = sorted({*self.logs, *foreign})

    def check_exist(self, names: Sequence[str]) -> None:
        """Raise ChannelNotExistError, which names all missing channels, if any does not exist.

        Raises NotOwnerError if another node owns one.
        """
        for name in names:
            self.ownership.check_here(name, name)
        if missing := self.missing(names):
            raise ChannelNotExistError.of(missing)

    def missing(self, names: Sequence[str]) -> list[str]:
        """Return the channels that do not exist, in the order requested."""
        return [name for name in names if name not in self.logs]

    def names(self, prefix: str, *, after: str = "", limit: int | None = None) -> list[str]:
        """Return up to ``limit`` names of channels that begin with ``prefix`` and are greater than ``after``, sorted.

        The time is proportional to the number of names returned.
        """
        begin = max(bisect_left(self._names, prefix), bisect_right(self._names, after))
        names = self._names[begin : None if limit is None else begin + limit]
        return list(takewhile(lambda name: name.startswith(prefix), names))

    def find(self, name: str) -> Place:
        """Return the vchannel called ``name`` (``channel/index``, or ``channel`` if it has only one vchannel).

        Raises:
            InvalidNameError: The name is invalid.
            ChannelNotExistError: The vchannel does not exist.
            NotOwnerError: Another node owns the channel.
            InvalidRequestError: The channel has several vchannels and the name has no index.
        """
        parsed = parse_vchannel_name(name)
        log = self._log_of(parsed.channel, name)
        count = len(log.vchannels)
        if parsed.index is None:
            if count > 1:
                raise InvalidRequestError(
                    f"'{name}' has {count} vchannels: name one, '{name}/0' to '{name}/{count - 1}'", field="vchannel"
                )
            return Place(log, log.vchannels[0])
        if parsed.index >= count:
            raise ChannelNotExistError(name, f"does not exist: '{parsed.channel}' has vchannels 0 to {count - 1}")
        return Place(log, log.vchannels[parsed.index])

    def find_to_read(self, name: str) -> Place:
        """As ``find``; ``name`` may also be a system channel, or that of a mailbox."""
        channel, _, index = name.partition("/")
        if not is_readable_system_channel(channel) or index not in ("", "0"):
            return self.find(name)
        log = self.find_channel(system_channel_name(channel, self.ownership.node_id))
        return Place(log, log.vchannels[0])

    def find_channel(self, name: str) -> ChannelLog:
        """Return the channel called ``name``. Raises ChannelNotExistError, NotOwnerError."""
        return self._log_of(name, name)

    def _log_of(self, channel: str, name: str) -> ChannelLog:
        """Return the log of ``channel``; ``name`` is the requested name, for errors. Raises as ``find``."""
        lease = self._node.admission.lease
        if lease is not None:
            lease.check()
        log = self.logs.get(channel)
        if log is None:
            self.ownership.check_here(channel, name)
            raise ChannelNotExistError(channel)
        return log
