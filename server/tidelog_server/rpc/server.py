"""The gRPC server: options, services, health and reflection."""

from typing import Final

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from tidelog.v1 import broadcast_service_pb2, channel_service_pb2, transaction_service_pb2, wal_service_pb2
from tidelog_server.broker.broker import Broker
from tidelog_server.core.limits import MAX_RESPONSE_BYTES, MIB, Limits
from tidelog_server.log.node import LogNode
from tidelog_server.rpc.broadcast_service import BroadcastService
from tidelog_server.rpc.calls import CallSupervisor
from tidelog_server.rpc.channel_service import ChannelService
from tidelog_server.rpc.transaction_service import TransactionService
from tidelog_server.rpc.wal_service import WalService

_METADATA_BYTES: Final = 8_192
_SERVICES: Final = tuple(
    file.services_by_name[name]
    for file, name in (
        (channel_service_pb2.DESCRIPTOR, "ChannelService"),
        (wal_service_pb2.DESCRIPTOR, "WalService"),
        (transaction_service_pb2.DESCRIPTOR, "TransactionService"),
        (broadcast_service_pb2.DESCRIPTOR, "BroadcastService"),
    )
)


def _options(limits: Limits) -> list[tuple[str, int]]:
    """Return what gRPC's defaults leave open; each was measured to matter (ARCHITECTURE.md, "gRPC limits")."""
    largest = max(limits.max_batch_bytes, MAX_RESPONSE_BYTES) + MIB
    return [
        ("grpc.max_concurrent_streams", 100),
        # It also counts streams that Python has not let go of yet, and so refuses a third of a busy client's calls.
        ("grpc.http.overload_protection", 0),
        ("grpc.max_allowed_incoming_connections", 10_000),
        ("grpc.server.max_pending_requests", 5_000),
        ("grpc.server.max_pending_requests_hard_limit", 10_000),
        ("grpc.max_receive_message_length", largest),
        # A page holds at least one batch, whatever its size, after those that came before it.
        ("grpc.max_send_message_length", largest + MAX_RESPONSE_BYTES),
        ("grpc.max_metadata_size", _METADATA_BYTES),
        ("grpc.absolute_max_metadata_size", _METADATA_BYTES),
        ("grpc.server_handshake_timeout_ms", 10_000),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.ping_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.http2.max_ping_strikes", 2),
        ("grpc.max_connection_idle_ms", 30 * 60 * 1_000),
        ("grpc.so_reuseport", 0),
        ("grpc.enable_channelz", 0),
    ]


class RpcServer:
    """Serves a broker over gRPC."""

    def __init__(self, broker: Broker, node: LogNode, *, syncs_by_default: bool) -> None:
        self._server = grpc.aio.server(options=_options(node.admission.limits))
        self._health = health.aio.HealthServicer()
        supervisor = CallSupervisor(node.metrics)
        channels = ChannelService(broker)
        wal = WalService(broker, node, syncs_by_default=syncs_by_default)
        transactions = TransactionService(broker, syncs_by_default=syncs_by_default)
        broadcasts = BroadcastService(broker, node)
        methods = (channels.methods(), wal.methods(), transactions.methods(), broadcasts.methods())
        self._server.add_generic_rpc_handlers(
            tuple(supervisor.handlers(*each) for each in zip(_SERVICES, methods, strict=True))
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = [service.full_name for service in _SERVICES]
        reflection.enable_server_reflection((*names, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)
        self._health_names = ("", *names)

    def bind(self, address: str) -> int:
        """Listen on ``host:port`` and return the port. Raises OSError or RuntimeError if it is taken."""
        return self._server.add_insecure_port(address)

    async def start(self) -> None:
        """Begin to serve."""
        await self._server.start()
        await self.set_serving(is_serving=True)

    async def set_serving(self, *, is_serving: bool) -> None:
        """Tell health checks whether this node takes work."""
        state = health_pb2.HealthCheckResponse.SERVING if is_serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in self._health_names:
            await self._health.set(name, state)

    async def stop(self, grace_s: float) -> None:
        """Take no new calls; let those that run end within ``grace_s``, then cancel them."""
        await self._server.stop(grace_s)
