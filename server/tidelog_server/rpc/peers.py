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
from tidelog_server.core.errors.cluster import MetadataUnavailableError, NotLeaderError
from tidelog_server.core.limits import MAX_NODES, PEER_CALL_TIMEOUT_S

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

    async def allocate_ticks(self, address: str, count: int) -> int:
        """See Peers."""
        request = pb.AllocateTickRangeRequest(count=count)
        answer = await self._call(address, "AllocateTickRange", request)
        return int(answer.first_tick)

    async def note_channels(self, address: str, names: Sequence[str]) -> None:
        """See Peers."""
        await self._call(address, "NoteChannels", pb.NoteChannelsRequest(names=names))

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    async def _call(self, address: str, method: str, request: Any) -> Any:
        try:
            stub: Any = services.ClusterServiceStub(self._channel(address))  # type: ignore[no-untyped-call]  # Generated.
            return await getattr(stub, method)(request, timeout=PEER_CALL_TIMEOUT_S, metadata=self._metadata())
        except OSError as error:
            raise MetadataUnavailableError(f"the token for other nodes cannot be read: {error}") from error
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                raise NotLeaderError(node_id="", address="") from error
            raise MetadataUnavailableError(f"{error.code().name}: {error.details()}") from error

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
