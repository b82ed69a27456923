"""The open channels of this node by name, and the names of all nodes' channels."""

import asyncio
from collections.abc import Iterable, Sequence

from tidelog_server.channels.catalog import ChannelRecord
from tidelog_server.channels.ownership import Ownership
from tidelog_server.core.errors import ChannelNotExistError, InvalidRequestError
from tidelog_server.core.names import is_readable_system_channel, parse_vchannel_name, system_channel_name
from tidelog_server.core.sorted_names import SortedNames
from tidelog_server.log.channel_log import ChannelLog
from tidelog_server.log.node import LogNode
from tidelog_server.log.protocols import Place


class Directory:
    """Finds channels and vchannels by name. Lives on the event loop.

    Attributes:
        logs: Open channels of this node.
        changes: Serialises trims and changes of the catalog; appends and scans never take it.
        ownership: Owners of channels; set when the node opens.
        names: Names of all nodes' channels; those of other nodes are added by the caller.
    """

    def __init__(self, node: LogNode) -> None:
        self._node = node
        self.logs: dict[str, ChannelLog] = {}
        self.changes = asyncio.Lock()
        self.ownership: Ownership
        self.names = SortedNames()

    def add(self, record: ChannelRecord) -> ChannelLog:
        """Open the log of a channel of this node, or its added vchannels; all are in the store."""
        if (known := self.logs.get(record.name)) is not None:
            self._node.extend(known, record.vchannel_ids[len(known.vchannels) :])
            return known
        # Another node may have created it: no message and no watermark of a channel precedes its creation.
        self._node.shared.oracle.leave_behind(record.created_tick)
        log = self.logs[record.name] = self._node.add(record.name, record.vchannel_ids, record.created_tick)
        self.names.add(record.name)
        return log

    def remove(self, name: str) -> ChannelLog:
        """Find a channel of this node no longer; return its log, which stays open."""
        self.names.discard(name)
        return self.logs.pop(name)

    def list_again(self, foreign: Iterable[str]) -> None:
        """List the open channels and those of other nodes, ``foreign``, and no others."""
        self.names = SortedNames((*self.logs, *foreign))

    def check_exist(self, names: Sequence[str], *, ignore_missing: bool = False) -> None:
        """Raise ChannelNotExistError, which names all missing channels, if any does not exist.

        Raises NotOwnerError if another node owns one, also with ``ignore_missing``.
        """
        for name in names:
            self.ownership.check_here(name, name)
        if not ignore_missing and (missing := self.missing(names)):
            raise ChannelNotExistError.of(missing)

    def missing(self, names: Sequence[str]) -> list[str]:
        """Return the channels that do not exist, in the order requested."""
        return [name for name in names if name not in self.logs]

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
                    f"'{name}' has {count} vchannels: name one, '{name}/0' to '{name}/{count - 1}'",
                    field="vchannel", name=name, vchannels=count,
                )  # fmt: skip
            return Place(log, log.vchannels[0])
        if parsed.index >= count:
            raise ChannelNotExistError(name, f"does not exist: '{parsed.channel}' has vchannels 0 to {count - 1}")
        return Place(log, log.vchannels[parsed.index])

    def find_all(self, name: str) -> list[Place]:
        """As ``find``, but the name of a channel stands for all vchannels that it has now."""
        parsed = parse_vchannel_name(name)
        if parsed.index is not None:
            return [self.find(name)]
        log = self._log_of(parsed.channel, name)
        return [Place(log, vchannel) for vchannel in log.vchannels]

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
        self._node.admission.check_lease()
        log = self.logs.get(channel)
        if log is None:
            self.ownership.check_here(channel, name)
            raise ChannelNotExistError(channel)
        return log
