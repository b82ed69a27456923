"""Records of the logs of a cluster whose nodes have their logs in an engine. A node exists if its log has a record.

Keys under the root (see docs/reference/format.md)::

    <root>/log/<node id>      a log: written once, when it is created
    <root>/standby/<process>  a process without a node: where it is, and whose logs it applies; under its lease
"""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from tidelog_server.core.nodes import is_node_id
from tidelog_server.metadata.json_records import decode_record, encode_record
from tidelog_server.metadata.store import Watched

_VERSION: Final = 1
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class LogRecord:
    """The log of a node.

    Attributes:
        topic: Name of the log in the engine.
        incarnation: Identity of the log, which its first record has.
    """

    topic: str
    incarnation: bytes

    def encode(self) -> bytes:
        """Return the record as it is stored."""
        return encode_record(_VERSION, {"topic": self.topic, "incarnation": self.incarnation.hex()})

    @classmethod
    def decode(cls, key: str, value: bytes) -> "LogRecord":
        """Decode what ``encode`` made. Raises DataLossError if ``value`` is invalid."""

        def parse(fields: dict[str, Any]) -> LogRecord:
            return cls(str(fields["topic"]), bytes.fromhex(fields["incarnation"]))

        return decode_record(value, _VERSION, parse, key, key=key)


def log_key(root: str, node_id: str) -> str:
    """Return the key of a log's record; without a node id, the prefix of all."""
    assert not node_id or is_node_id(node_id)
    return f"{root}/log/{node_id}"


def standby_key(root: str, process: str) -> str:
    """Return the key of the record of a process without a node; without a process, the prefix of all."""
    return f"{root}/standby/{process}"


class Lag(NamedTuple):
    """How far a standby is behind the end of a log.

    Attributes:
        positions: Positions of the log that it has not read.
        seconds: Seconds since it had all that the log has; 0 while it has.
    """

    positions: int
    seconds: float


@dataclass(frozen=True, slots=True)
class StandbyRecord:
    """A process without a node.

    Attributes:
        follows: The nodes whose logs it applies.
        lags: Of those, how far it is behind, if that is known.
        address: ``host:port`` at which it will serve gRPC; empty from a process of an earlier version.
        http_address: ``host:port`` of its health and metrics endpoint; empty as above.
        version: Version of its software; empty as above.
    """

    follows: frozenset[str]
    lags: Mapping[str, Lag] = field(default_factory=dict)
    address: str = ""
    http_address: str = ""
    version: str = ""

    def encode(self) -> bytes:
        """Return the record as it is stored."""
        lags = {node: list(lag) for node, lag in sorted(self.lags.items())}
        return encode_record(
            _VERSION,
            {
                "follows": sorted(self.follows), "lags": lags, "address": self.address,
                "http_address": self.http_address, "server_version": self.version,
            },
        )  # fmt: skip

    @classmethod
    def decode(cls, key: str, value: bytes) -> "StandbyRecord":
        """Decode what ``encode`` made. Raises DataLossError if ``value`` is invalid."""

        def parse(fields: dict[str, Any]) -> StandbyRecord:
            lags = {str(node): Lag(int(lag[0]), float(lag[1])) for node, lag in fields.get("lags", {}).items()}
            places = (str(fields.get(name, "")) for name in ("address", "http_address", "server_version"))
            return cls(frozenset(map(str, fields["follows"])), lags, *places)

        return decode_record(value, _VERSION, parse, key, key=key)


def follows_of(standbys: Mapping[str, StandbyRecord]) -> dict[str, Set[str]]:
    """Return the nodes whose logs each process applies."""
    return {process: record.follows for process, record in standbys.items()}


def update_known(
    known: dict[str, _Value], prefix: str, watched: Watched, decode: Callable[[str, bytes], _Value]
) -> None:
    """Bring what is known of the keys below ``prefix`` up to date."""
    if watched.is_snapshot:
        known.clear()
    for key in watched.deleted:
        known.pop(key.removeprefix(prefix), None)
    for key, found in watched.values.items():
        known[key.removeprefix(prefix)] = decode(key, found.value)
