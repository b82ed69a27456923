"""Calls from this node to other nodes."""

import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
import structlog

from tidelog.v1 import cluster_service_pb2 as pb
from tidelog.v1 import cluster_service_pb2_grpc as services
from tidelog.v1 import error_pb2
from tidelog_server.core.errors import TidelogServerError
from tidelog_server.core.errors.cluster import MetadataUnavailableError, NotLeaderError, OwnershipLostError
from tidelog_server.core.limits import MAX_NODES
from tidelog_server.core.nodes import NodeTerm
from tidelog_server.rpc.status import detail_in

PEER_CALL_TIMEOUT_S: Final = 2.0

_log = structlog.get_logger()
_OPTIONS: Final = (
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.http2.ping_timeout_ms", 3_000),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
)


@dataclass(frozen=True, slots=True)
class PeerAccess:
    """Files with the credentials for calls to other nodes; None if not set.

    Attributes:
        ca: CA certificates of the other nodes; if set, calls use TLS.
        cert, key: Client certificate and key of this node, if another node requests them.
        token: Token with the grant ``cluster``.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    token: Path | None = None


class GrpcPeers:
    """One connection per called node. Implements ``cluster.Peers``."""

    def __init__(self, access: PeerAccess) -> None:
        self._access = access
        if access.token is not None and access.token.exists() and access.token.stat().st_mode & stat.S_IROTH:
            _log.warning(
                "token_file_open", path=str(access.token),
                advice="every user of this machine can read the token for other nodes: set its mode to 600",
            )  # fmt: skip
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def allocate_ticks(self, address: str, count: int, caller: NodeTerm) -> int:
        """See Peers."""
        request = pb.AllocateTickRangeRequest(count=count, node_id=caller.node_id, term=caller.term)
        answer = await self._call(address, "AllocateTickRange", request, caller.node_id)
        return int(answer.first_tick)

    async def note_channels(self, address: str, names: Sequence[str]) -> None:
        """See Peers."""
        await self._call(address, "NoteChannels", pb.NoteChannelsRequest(names=names))

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    async def _call(self, address: str, method: str, request: Any, node_id: str = "") -> Any:
        """Return the answer; ``node_id`` is that of this node if the answer depends on its registration."""
        try:
            stub: Any = services.ClusterServiceStub(self._channel(address))  # type: ignore[no-untyped-call]  # Generated.
            return await getattr(stub, method)(request, timeout=PEER_CALL_TIMEOUT_S, metadata=self._metadata())
        except OSError as error:
            raise MetadataUnavailableError(f"the token for other nodes cannot be read: {error}") from error
        except grpc.aio.AioRpcError as error:
            raise _error_of(error, node_id) from error

    def _channel(self, address: str) -> grpc.aio.Channel:
        if address not in self._channels:
            if len(self._channels) >= MAX_NODES:
                # Some belong to former addresses of nodes; the others are reopened when needed.
                self._channels.clear()
            self._channels[address] = self._open(address)
        return self._channels[address]

    def _open(self, address: str) -> grpc.aio.Channel:
        access = self._access
        if access.ca is None:
            return grpc.aio.insecure_channel(address, options=_OPTIONS)
        key, certificate = (None if path is None else path.read_bytes() for path in (access.key, access.cert))
        credentials = grpc.ssl_channel_credentials(access.ca.read_bytes(), key, certificate)
        return grpc.aio.secure_channel(address, credentials, options=_OPTIONS)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        # Read for each call, so that the token can be replaced.
        token = self._access.token
        return () if token is None else (("authorization", f"Bearer {token.read_text().strip()}"),)


def _error_of(error: grpc.aio.AioRpcError, node_id: str) -> TidelogServerError:
    """Return the error of a call to another node, which may have refused this node, ``node_id``, as a former owner."""
    detail = detail_in(error.trailing_metadata() or ())
    # A leader whose own lease has ended names itself.
    if detail.reason == error_pb2.REASON_OWNERSHIP_LOST and detail.values["node_id"] == node_id:
        return OwnershipLostError(node_id)
    if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
        return NotLeaderError(node_id="", address="")
    return MetadataUnavailableError(f"{error.code().name}: {error.details()}")
