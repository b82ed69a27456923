"""The metadata of a single server as that of a node of a cluster. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tidelog_server.channels.catalog import ChannelRecord
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.names import system_channel_name

_LOCAL: Final = ("group/", "broadcast/", "broadcast_floor/")
_LOCAL_KEYS: Final = frozenset({"broadcast_floor"})
_SHARED: Final = ("journal/", "mailbox/", "token/")
_SHARED_KEYS: Final = frozenset({"timestamp", "next_vchannel_id", "next_channel_number"})
_CHANNELS: Final = "channel/"


def cluster_values(values: Mapping[str, bytes], root: str, node_id: str) -> dict[str, bytes]:
    """Return what a cluster has of a server that becomes its node: channels belong to it, and groups are local to it.

    Args:
        values: All values of the server, by key.
        root: Root of the keys of both.
        node_id: The node.

    Raises:
        DataLossError: A record cannot be read, or is not known.
    """
    placed: dict[str, bytes] = {}
    for key, value in values.items():
        name = key.removeprefix(f"{root}/")
        if name.startswith(_CHANNELS):
            record = ChannelRecord.decode(key, value)
            record = replace(record, name=system_channel_name(record.name, node_id), node_id=node_id)
            placed[f"{root}/{_CHANNELS}{record.name}"] = record.encode()
        elif name.startswith(_LOCAL) or name in _LOCAL_KEYS:
            placed[f"{root}/local/{node_id}/{name}"] = value
        elif name.startswith(_SHARED) or name in _SHARED_KEYS:
            placed[key] = value
        else:
            raise DataLossError(f"the metadata has the record {key}, which this server does not know", key=key)
    return placed
