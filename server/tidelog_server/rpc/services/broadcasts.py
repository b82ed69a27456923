"""BroadcastService."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from tidelog.v1 import broadcast_service_pb2 as pb
from tidelog_server.broadcast.admission import MAX_BROADCAST_VCHANNELS, BroadcastRequest
from tidelog_server.broadcast.records import Tombstone, digest_of
from tidelog_server.broadcast.service import Broadcasts
from tidelog_server.broadcast.table import Task
from tidelog_server.core.broadcasts import OPEN_STATES, BroadcastState, KeyName, ResourceKey
from tidelog_server.core.errors import (
    BatchTooLargeError,
    BroadcastNotExistError,
    InvalidRequestError,
    ResourceAcquiredError,
)
from tidelog_server.core.limits import KIB, MAX_BARRIER_WAIT_S, MAX_OPEN_BROADCASTS, MIB
from tidelog_server.core.message_checks import check_at_most, check_within
from tidelog_server.core.names import shown
from tidelog_server.log.batch import Batch
from tidelog_server.log.node import LogNode
from tidelog_server.rpc.columns.checks import check
from tidelog_server.rpc.columns.pages import check_tick
from tidelog_server.rpc.columns.rows import encode_rows
from tidelog_server.rpc.columns.view import ColumnsView
from tidelog_server.rpc.context import Context
from tidelog_server.rpc.lists.looks import Looks
from tidelog_server.rpc.lists.pages import id_in_token
from tidelog_server.rpc.services.options import longest_wait_s
from tidelog_server.security.access import current_access, current_tenant
from tidelog_server.security.grants import Verb

# A message is one metadata value until it is in the log, and etcd accepts at most 1.5 MiB per request.
MAX_BROADCAST_MESSAGE_BYTES: Final = 1 * MIB + 64 * KIB
MAX_RESOURCE_KEYS: Final = 64
MAX_RESOURCE_DOMAIN_BYTES: Final = 64
MAX_RESOURCE_KEY_BYTES: Final = 256
MAX_RESOURCE_WAIT_MS: Final = 10 * 60 * 1_000
MAX_ACK_WAIT_MS: Final = 60_000
MAX_ABORT_REASON_BYTES: Final = 256
MAX_BROADCASTS_PAGE: Final = 100

_STATES: Final = {
    BroadcastState.PENDING: pb.BROADCAST_STATE_PENDING,
    BroadcastState.WAIT_ACK: pb.BROADCAST_STATE_WAIT_ACK,
    BroadcastState.DONE: pb.BROADCAST_STATE_DONE,
    BroadcastState.ABORTED: pb.BROADCAST_STATE_ABORTED,
}
_OF_WIRE: Final = {wire: state for state, wire in _STATES.items()}

_READERS: Final = frozenset((Verb.READ,))


class BroadcastService:
    """Handlers of BroadcastService: broadcasts and their acknowledgements."""

    def __init__(self, broadcasts: Broadcasts, node: LogNode) -> None:
        self._broadcasts = broadcasts
        self._node = node

    async def broadcast(self, request: pb.BroadcastRequest, context: Context) -> pb.BroadcastResponse:
        """Broadcast a message."""
        _check_vchannels(request.vchannels)
        if not request.HasField("message"):
            raise InvalidRequestError("the broadcast has no message: give one, which may be empty", field="message")
        check_tick(request.barrier_tick, "barrier_tick")
        check_tick(request.broadcast_id, "broadcast_id")
        check_at_most(request.wait_timeout_ms, MAX_RESOURCE_WAIT_MS, "wait_timeout_ms")
        keys = _resource_keys(request.resource_keys)
        columns = encode_rows([request.message])
        view = ColumnsView.parse(columns)
        check(view, len(columns), self._node.admission.limits, is_encoded_here=True)
        if len(columns) > MAX_BROADCAST_MESSAGE_BYTES:
            raise BatchTooLargeError(actual=len(columns), maximum=MAX_BROADCAST_MESSAGE_BYTES, unit="bytes")
        wanted = BroadcastRequest(
            list(request.vchannels),
            Batch(1, view.message_type, view.crc32c, columns),
            keys,
            digest_of(request.vchannels, keys, columns),
            request.broadcast_id,
            min(request.wait_timeout_ms / 1_000, longest_wait_s(context, MAX_RESOURCE_WAIT_MS / 1_000)),
            request.barrier_tick,
            longest_wait_s(context, MAX_BARRIER_WAIT_S),
            current_tenant(),
        )
        try:
            result = await self._broadcasts.broadcast(wanted)
        except ResourceAcquiredError as error:
            # The holder may be a broadcast that waits for the key and has no record yet.
            if await self._may_know(int(error.values["broadcast_id"]), Looks.of(self._node, context), if_unknown=False):
                raise
            values = error.values
            raise ResourceAcquiredError(
                domain=values["domain"], key=values["key"], mode=values["mode"], broadcast_id=None
            ) from None
        return pb.BroadcastResponse(broadcast_id=result.broadcast_id, tick=result.tick, duplicate=result.is_duplicate)

    async def withdraw_broadcast(
        self, request: pb.WithdrawBroadcastRequest, _: Context
    ) -> pb.WithdrawBroadcastResponse:
        """End the wait of a broadcast of the caller."""
        _check_id(request.broadcast_id)
        return pb.WithdrawBroadcastResponse(waited=self._broadcasts.withdraw(request.broadcast_id, current_tenant()))

    async def ack(self, request: pb.AckRequest, _: Context) -> pb.AckResponse:
        """Acknowledge a broadcast."""
        _check_id(request.broadcast_id)
        _check_vchannels(request.vchannels)
        await self._broadcasts.acks.ack(request.broadcast_id, request.vchannels)
        return pb.AckResponse()

    async def wait_acked(self, request: pb.WaitAckedRequest, context: Context) -> pb.WaitAckedResponse:
        """Wait for acknowledgements."""
        if request.mode not in pb.AckMode.values():
            raise InvalidRequestError(f"mode {request.mode} is unknown: use 1 (once) or 2 (all)", field="mode")
        check_at_most(request.timeout_ms, MAX_ACK_WAIT_MS, "timeout_ms")
        check_at_most(len(request.broadcast_ids), MAX_OPEN_BROADCASTS, "broadcast_ids")
        name = None
        if request.HasField("resource_key"):
            name = _key_name(request.resource_key)
        elif not request.broadcast_ids:
            raise InvalidRequestError("nothing to wait for: set resource_key or broadcast_ids", field="resource_key")
        for broadcast_id in request.broadcast_ids:
            _check_id(broadcast_id)
        looks = Looks.of(self._node, context)
        known = await self._known(request.broadcast_ids, looks)
        if name is None and not known:
            return pb.WaitAckedResponse(acked=True)
        waiting_for = await self._broadcasts.acks.wait(
            known, name, request.timeout_ms / 1_000, once=request.mode == pb.ACK_MODE_ONCE, tenant=current_tenant()
        )
        # All ids or no ids: a caller that repeats the call without ids waits for the holders of the key at that time.
        are_known = all([await self._may_know(broadcast_id, looks) for broadcast_id in waiting_for])
        return pb.WaitAckedResponse(acked=not waiting_for, broadcast_ids=waiting_for if are_known else ())

    async def _known(self, broadcast_ids: Sequence[int], looks: Looks) -> list[int]:
        """Return those of ``broadcast_ids`` that the caller may see.

        Other ids are treated as if they had never been accepted: those at or below the highest floor count as finished.

        Raises:
            BroadcastNotExistError: Such an id is above the highest floor.
        """
        known = []
        for broadcast_id in broadcast_ids:
            if await self._may_know(broadcast_id, looks):
                known.append(broadcast_id)
            elif broadcast_id > self._broadcasts.table.floors.highest:
                raise BroadcastNotExistError(broadcast_id)
        return known

    async def _may_know(self, broadcast_id: int, looks: Looks, *, if_unknown: bool = True) -> bool:
        """Return whether the caller may see a broadcast: its own, or an open one on a vchannel that it may read."""
        await looks.take()
        access, found = current_access(), self._broadcasts.find(broadcast_id)
        if access is None or access.principal.grants.allow_somewhere(Verb.ADMIN_READ):
            return True
        if found is None:
            return if_unknown
        if isinstance(found, Tombstone):
            return found.tenant == access.tenant.hex()
        if found.record.tenant == access.tenant.hex():
            return True
        for channel in found.channels if access.candidates(_READERS) != [] else ():
            await looks.take()
            if access.may(_READERS, channel):
                return True
        return False

    async def list_broadcasts(self, request: pb.ListBroadcastsRequest, _: Context) -> pb.ListBroadcastsResponse:
        """List a page of broadcasts."""
        check_at_most(request.page_size, MAX_BROADCASTS_PAGE, "page_size")
        unknown = set(request.states).difference(_OF_WIRE)
        if unknown:
            raise InvalidRequestError(f"state {min(unknown)} is unknown: use 1 to {len(_OF_WIRE)}", field="states")
        # The token is the last id of the previous page, so broadcasts may be added or removed between pages.
        found, has_more = self._broadcasts.table.page(
            frozenset(_OF_WIRE[state] for state in request.states) or frozenset(OPEN_STATES),
            id_in_token(request, advice=", or none"),
            request.page_size or MAX_BROADCASTS_PAGE,
        )
        return pb.ListBroadcastsResponse(
            broadcasts=map(self._summary, found), next_page_token=str(_id_of(found[-1])) if has_more else ""
        )

    async def describe_broadcast(
        self, request: pb.DescribeBroadcastRequest, _: Context
    ) -> pb.DescribeBroadcastResponse:
        """Describe a broadcast."""
        _check_id(request.broadcast_id)
        found = self._broadcasts.describe(request.broadcast_id)
        response = pb.DescribeBroadcastResponse(summary=self._summary(found))
        if isinstance(found, Task):
            for name, has_acked in found.acknowledgements():
                (response.acked if has_acked else response.missing).append(name)
        return response

    async def abort_broadcast(self, request: pb.AbortBroadcastRequest, _: Context) -> pb.AbortBroadcastResponse:
        """Abort a broadcast."""
        _check_id(request.broadcast_id)
        _check_text(request.reason, MAX_ABORT_REASON_BYTES, "reason")
        tombstone = await self._broadcasts.abort(request.broadcast_id, request.reason)
        return pb.AbortBroadcastResponse(summary=self._summary(tombstone))

    def _summary(self, found: Task | Tombstone) -> pb.BroadcastSummary:
        now_ms = self._node.shared.clock.wall_ms()
        if isinstance(found, Task):
            record = found.record
            return pb.BroadcastSummary(
                broadcast_id=record.broadcast_id, state=_STATES[found.state], tick=found.tick,
                vchannels=len(record.vchannels), acked_vchannels=found.durable.acked,
                resource_keys=[
                    pb.ResourceKey(domain=key.name.domain, key=key.name.key, shared=key.is_shared)
                    for key in record.resource_keys
                ],
                created_time_ms=record.created_ms, age_ms=max(0, now_ms - record.created_ms),
            )  # fmt: skip
        return pb.BroadcastSummary(
            broadcast_id=found.broadcast_id, state=_STATES[found.state], tick=found.tick, vchannels=found.vchannels,
            acked_vchannels=found.acked, created_time_ms=found.created_ms, finished_time_ms=found.finished_ms,
            abort_reason=found.abort_reason, age_ms=max(0, now_ms - found.created_ms),
        )  # fmt: skip


def _id_of(found: Task | Tombstone) -> int:
    return found.record.broadcast_id if isinstance(found, Task) else found.broadcast_id


def _resource_keys(wire: Sequence[pb.ResourceKey]) -> tuple[ResourceKey, ...]:
    """Return validated keys, sorted by name. Raises InvalidRequestError."""
    check_at_most(len(wire), MAX_RESOURCE_KEYS, "resource_keys")
    keys = sorted(ResourceKey(_key_name(key), key.shared) for key in wire)
    for key, other in pairwise(keys):
        if key.name == other.name:
            raise InvalidRequestError(
                f"the broadcast names the resource key '{shown(key.name.key)}' of domain '{shown(key.name.domain)}' "
                "twice: name it once, shared or exclusive",
                field="resource_keys",
            )
    return tuple(keys)


def _key_name(key: pb.ResourceKey) -> KeyName:
    _check_text(key.domain, MAX_RESOURCE_DOMAIN_BYTES, "domain")
    _check_text(key.key, MAX_RESOURCE_KEY_BYTES, "key")
    return KeyName(key.domain, key.key)


def _check_vchannels(names: Sequence[str]) -> None:
    check_within(len(names), 1, MAX_BROADCAST_VCHANNELS, "vchannels", "the request names {value} vchannels")


def _check_id(broadcast_id: int) -> None:
    if not broadcast_id:
        raise InvalidRequestError("the broadcast id is 0: expected the id of a broadcast", field="broadcast_id")


def _check_text(text: str, max_bytes: int, field: str) -> None:
    size_bytes = len(text.encode())
    check_within(size_bytes, 1, max_bytes, field, "{field} has {value} bytes")
