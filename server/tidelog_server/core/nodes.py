"""Nodes of a cluster, and the owners of channels."""

import json
import re
from dataclasses import asdict, dataclass, fields
from typing import Final, NamedTuple

from tidelog_server.core.errors import DataLossError
from tidelog_server.core.limits import MAX_NODE_ID_CHARACTERS

_NODE_ID: Final = re.compile(rf"[a-z0-9][a-z0-9-]{{0,{MAX_NODE_ID_CHARACTERS - 1}}}")
# In etcd since the first cluster.
_RECORD_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """The record that a node publishes about itself.

    Attributes:
        node_id: Name of the node, bound to its data folder.
        address: ``host:port`` of its gRPC server for clients.
        http_address: ``host:port`` of its health and metrics.
        incarnation: Id of this process; another process under the same node id has another.
        version: Version of the software.
        peer_address: ``host:port`` of its gRPC server for other nodes; empty if they use ``address``.
    """

    node_id: str
    address: str
    http_address: str
    incarnation: str
    version: str
    peer_address: str = ""

    @property
    def address_for_nodes(self) -> str:
        """``host:port`` at which other nodes call this one."""
        return self.peer_address or self.address

    def encode(self) -> bytes:
        """Return the record as it is stored."""
        stored = {"record": _RECORD_VERSION, **asdict(self)}
        if not self.peer_address:
            # Nodes of versions without the field reject a record that has it.
            del stored["peer_address"]
        return json.dumps(stored, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, key: str, value: bytes) -> "NodeRecord":
        """Decode what ``encode`` made. Raises DataLossError if ``value`` is invalid."""
        try:
            stored = json.loads(value)
            version = stored["record"]
            # A later version may add fields; one that changes the meaning of these has another number.
            record = cls(**{each.name: stored[each.name] for each in fields(cls) if each.name in stored})
        except (ValueError, TypeError, KeyError) as error:
            raise DataLossError(f"the metadata record {key} cannot be read ({error})", key=key) from error
        if version != _RECORD_VERSION:
            raise DataLossError(f"the metadata record {key} has the unknown version {version}", key=key)
        return record


class NodeTerm(NamedTuple):
    """One registration of a node.

    Attributes:
        node_id: The node.
        term: Number of the registration, which grows with each registration in the cluster.
    """

    node_id: str
    term: int


@dataclass(frozen=True, slots=True)
class Node:
    """A node that holds its registration.

    Attributes:
        record: The record that it publishes.
        term: Number of its registration, which grows with each registration in the cluster.
    """

    record: NodeRecord
    term: int


@dataclass(frozen=True, slots=True)
class ChannelOwner:
    """The owner of a channel.

    Attributes:
        channel: Name of the channel.
        node_id: Id of the owner.
        address: Address of the owner; empty while it is not running.
        term: Term of the owner; 0 while it is not running.
    """

    channel: str
    node_id: str
    address: str = ""
    term: int = 0


def is_node_id(text: str) -> bool:
    """Return whether ``text`` is a valid node id."""
    return _NODE_ID.fullmatch(text) is not None
