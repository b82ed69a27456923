"""The gRPC server: options, services, health and reflection."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio
from google.protobuf import descriptor_pool
from grpc_channelz.v1 import channelz, channelz_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

from tidelog_server.backup.checkpoints import Checkpoints
from tidelog_server.core.limits import KIB, MAX_CONNECTIONS, MAX_RESPONSE_BYTES, MIB, Limits
from tidelog_server.mailboxes.mailboxes import Mailboxes
from tidelog_server.node.node import Node
from tidelog_server.rpc.calls import CallSupervisor, methods_of
from tidelog_server.rpc.columns.fold_events import FoldEvents
from tidelog_server.rpc.reflected import reflected_pool
from tidelog_server.rpc.services.append import AppendCalls
from tidelog_server.rpc.services.backup import BackupService
from tidelog_server.rpc.services.blobs import BlobService
from tidelog_server.rpc.services.broadcasts import BroadcastService
from tidelog_server.rpc.services.channels import ChannelService
from tidelog_server.rpc.services.cluster import ClusterService
from tidelog_server.rpc.services.consume import ConsumeCalls
from tidelog_server.rpc.services.groups import GroupService
from tidelog_server.rpc.services.journals import JournalService
from tidelog_server.rpc.services.mailboxes.calls import MessageCalls
from tidelog_server.rpc.services.mailboxes.service import MailboxService
from tidelog_server.rpc.services.mailboxes.transactions import MailboxTransactions
from tidelog_server.rpc.services.options import Syncs
from tidelog_server.rpc.services.scan import ScanCalls
from tidelog_server.rpc.services.tokens import TokenService
from tidelog_server.rpc.services.transactions import TransactionService
from tidelog_server.rpc.services.wal import WalService
from tidelog_server.rpc.tls import server_credentials
from tidelog_server.rpc.web.bounds import ApiBounds, Hold
from tidelog_server.rpc.web.calls import SERVICE as WEB_SERVICE
from tidelog_server.rpc.web.calls import WebCalls
from tidelog_server.runtime.connections import is_connected
from tidelog_server.security.guard import Guard
from tidelog_server.security.permissions import ROWS, check_table
from tidelog_server.security.service import Security

if TYPE_CHECKING:
    from tidelog_server.rpc.tracing import CallTracer

# Bytes of requests that a connection accepts before the server reads them. Left to itself, gRPC lets this grow with the
# bandwidth times the round trip, without a bound. With 512 KiB a connection has 25 MB/s at a round trip of 20 ms.
MAX_UNREAD_REQUEST_BYTES: Final = 512 * KIB

_METADATA_BYTES: Final = 8_192
# A stop continues at once if no call was answered within _LATELY_S, or no client is connected. Otherwise it waits for
# _QUIET_STEPS without a new call, so that a client that keeps calling has been refused. Steps, not seconds: in a second
# in which the process does not run, no call arrives. A step that takes longer than _TIMELY_S does not count: on a
# machine as busy as that, clients wait for a core as well.
_LATELY_S: Final = 0.5
_STEP_S: Final = 0.02
_TIMELY_S: Final = 0.03
_QUIET_STEPS: Final = 50


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of connections.

    Attributes:
        max_connections: Maximum connections per address that the server listens on. gRPC counts a connection from its
            accept on, before any handshake, and closes excess connections immediately.
        max_streams: Maximum concurrent calls per connection.
        max_age_s: Seconds after which a connection is closed and its streams have ten minutes to end; 0 for no limit.
        has_reflection: True to serve reflection.
        has_channelz: True to serve channelz, and to record what it shows.
        protects_from_floods: True to refuse streams while a connection has too many unfinished ones.
    """

    max_connections: int = MAX_CONNECTIONS
    max_streams: int = 100
    max_age_s: int = 0
    has_reflection: bool = True
    has_channelz: bool = False
    protects_from_floods: bool = False


_AGE_GRACE_MS: Final = 10 * 60 * 1_000


def _options(limits: Limits, connections: ConnectionLimits) -> list[tuple[str, int]]:
    """Return the gRPC options. Each was measured to matter (docs/architecture/grpc.md)."""
    largest = max(limits.max_batch_bytes, MAX_RESPONSE_BYTES) + MIB
    age = (
        [
            ("grpc.max_connection_age_ms", connections.max_age_s * 1_000),
            ("grpc.max_connection_age_grace_ms", _AGE_GRACE_MS),
        ]
        if connections.max_age_s
        else []
    )
    return [
        *age,
        ("grpc.max_concurrent_streams", connections.max_streams),
        # It also counts streams that Python has not released yet, and so refuses a third of a busy client's calls.
        ("grpc.http.overload_protection", int(connections.protects_from_floods)),
        ("grpc.max_allowed_incoming_connections", connections.max_connections),
        ("grpc.server.max_pending_requests", 5_000),
        ("grpc.server.max_pending_requests_hard_limit", 10_000),
        ("grpc.max_receive_message_length", largest),
        # A page is at most MAX_RESPONSE_BYTES plus one batch of any size.
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
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", MAX_UNREAD_REQUEST_BYTES),
        ("grpc.enable_channelz", int(connections.has_channelz)),
    ]


_Channelz: Final[Any] = channelz.aio.ChannelzServicer


class RpcServer:
    """Serves a node over gRPC.

    Attributes:
        web_calls: Makes calls of MailboxService for requests by HTTP.
    """

    def __init__(
        self,
        node: Node,
        checkpoints: Checkpoints,
        security: Security,
        *,
        guard: Guard | None,
        syncs: Syncs,
        connections: ConnectionLimits,
        hold: Hold,
        metrics_text: Callable[[], Awaitable[bytes]],
        tracer: "CallTracer | None" = None,
    ) -> None:
        """Create the services.

        Args:
            node: Node to serve; open.
            checkpoints: Checkpoints for backups.
            security: Tokens, and the certificate of the port.
            guard: Authenticates and authorizes calls; None if all calls are permitted.
            syncs: Which acknowledgements wait for a sync.
            connections: Limits of connections.
            hold: Applied to each call by HTTP.
            metrics_text: Returns the metrics; callers share its results.
            tracer: Creates spans; None to disable tracing.

        Raises:
            PermissionTableError: A method has no row in the table of permissions.
        """
        log = node.log
        self._server = grpc.aio.server(options=_options(log.admission.limits, connections))
        self._security = security
        self._health = health.aio.HealthServicer()
        self._port = 0
        self._supervisor = supervisor = CallSupervisor(log.metrics, log.clock, log.admission.limits, guard, tracer)
        opened = node.open_mailboxes(FoldEvents())
        services = _services(node, opened, checkpoints, security, syncs=syncs, metrics_text=metrics_text)
        pool = descriptor_pool.Default()
        described = [
            *(pool.FindServiceByName(f"tidelog.v1.{name}") for name in services),
            *(pool.FindServiceByName(name) for name in (health.SERVICE_NAME, reflection.SERVICE_NAME)),
        ]
        of_grpc = channelz_pb2.DESCRIPTOR.services_by_name["Channelz"]
        theirs: Any = _Captured()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, theirs)
        if connections.has_reflection:
            servicer: Any = reflection.aio.ReflectionServicer(
                [each.full_name for each in described], reflected_pool(each.file for each in described)
            )
            add_reflection: Any = reflection_pb2_grpc.add_ServerReflectionServicer_to_server
            add_reflection(servicer, theirs)
        check_table([*described, of_grpc], ROWS)
        methods = {each: methods_of(each, parts) for each, parts in zip(described, services.values(), strict=False)}
        ours = [supervisor.handlers(descriptor, table) for descriptor, table in methods.items()]
        if connections.has_channelz:
            ours.append(
                supervisor.handlers(of_grpc, {name: getattr(_Channelz, name) for name in of_grpc.methods_by_name})
            )
        bounds = ApiBounds(hold, lambda: log.admission.limits)
        self.web_calls = WebCalls(supervisor, methods[WEB_SERVICE], node.mailboxes, opened, bounds)
        self._server.add_generic_rpc_handlers(
            (*ours, *(supervisor.external(name, handlers) for name, handlers in theirs.handlers.items()))
        )
        self._health_names = ("", *(each.full_name for each in methods))

    def bind(self, address: str) -> int:
        """Listen on ``host:port`` and return the port. Raises OSError or RuntimeError if it is in use."""
        if self._security.certificate is None:
            self._port = self._server.add_insecure_port(address)
        else:
            self._port = self._server.add_secure_port(address, server_credentials(self._security))
        return self._port

    async def start(self) -> None:
        """Start serving."""
        await self._server.start()
        await self.set_serving(is_serving=True)

    async def set_serving(self, *, is_serving: bool) -> None:
        """Set the result of health checks."""
        state = health_pb2.HealthCheckResponse.SERVING if is_serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in self._health_names:
            await self._health.set(name, state)

    async def refuse(self, longest_s: float) -> None:
        """Keep answering calls, which the node refuses now, until calls stop arriving, at most ``longest_s`` seconds.

        Why: a client cannot know the effect of a call to a closed server; a refused call has no effect.
        """
        loop, calls = asyncio.get_running_loop(), self._supervisor
        end_s = loop.time() + longest_s
        if not calls.unanswered and (
            calls.last_answered_s < loop.time() - _LATELY_S
            # In a thread: the list of 10,000 connections takes 0.1 s.
            or not await asyncio.to_thread(is_connected, self._port)
        ):
            return
        last_begun, steps = calls.begun, 0
        # A client that is waiting for an answer may call again after it.
        while (steps < _QUIET_STEPS or calls.unanswered) and loop.time() < end_s:
            begin_s = loop.time()
            await asyncio.sleep(_STEP_S)
            if calls.begun != last_begun:
                last_begun, steps = calls.begun, 0
            elif calls.unanswered:
                steps = 0
            elif loop.time() - begin_s <= _TIMELY_S:
                steps += 1

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls; wait up to ``grace_s`` seconds for running calls, then cancel them."""
        await self._server.stop(grace_s)


def _services(
    node: Node,
    opened: Mailboxes,
    checkpoints: Checkpoints,
    security: Security,
    *,
    syncs: Syncs,
    metrics_text: Callable[[], Awaitable[bytes]],
) -> dict[str, tuple[object, ...]]:
    """Return the parts of the services, each with the features that it needs, by the name of the service."""
    log, directory, vchannels, transactions, groups = (
        node.log, node.directory, node.vchannels, node.transactions, node.groups
    )  # fmt: skip
    mailboxes = MessageCalls(opened, node.mailboxes.name_of)
    joins = MailboxTransactions(mailboxes)
    append = AppendCalls(directory, transactions, groups, log, mailboxes=joins, syncs=syncs)
    return {
        "ChannelService": (ChannelService(node.lifecycle, directory, log),),
        "WalService": (
            WalService(directory, vchannels, log), append, ScanCalls(directory, vchannels, node.planner, log)
        ),
        "TransactionService": (
            TransactionService(transactions, node.prepared, groups, directory, log, mailboxes=joins, syncs=syncs),
        ),
        "BroadcastService": (BroadcastService(node.broadcasts, log),),
        "GroupService": (GroupService(groups, log), ConsumeCalls(groups, directory, vchannels, log)),
        "TokenService": (TokenService(security, log),),
        "ClusterService": (ClusterService(node.cluster, directory.ownership, node.lifecycle, log, metrics_text),),
        "BackupService": (BackupService(checkpoints),),
        "JournalService": (JournalService(node.journals, log),),
        "MailboxService": (MailboxService(node.mailboxes, mailboxes, log), mailboxes),
        "BlobService": (BlobService(opened, log),),
    }  # fmt: skip


class _Captured:
    """Captures the handlers that generated code adds to a server, so that our checks can wrap them."""

    def __init__(self) -> None:
        self.handlers: dict[str, Mapping[str, grpc.RpcMethodHandler[Any, Any]]] = {}

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Ignore them: the same handlers are registered by name."""

    def add_registered_method_handlers(
        self, service: str, handlers: "Mapping[str, grpc.RpcMethodHandler[Any, Any]]"
    ) -> None:
        """Store the handlers of a service."""
        self.handlers[service] = handlers
