"""Broadcast calls of the asynchronous client."""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from tidelog.admin import broadcast_types as _wire_broadcast
from tidelog.admin.broadcast_types import (
    AckMode,
    BroadcastDescription,
    BroadcastResult,
    BroadcastState,
    BroadcastSummary,
    ResourceKey,
)
from tidelog.append.contents import as_messages
from tidelog.append.message_checks import checked_bytes
from tidelog.append.sizes import Appendable
from tidelog.errors import DeadlineError, UnavailableError
from tidelog.message import Message
from tidelog.tick import Tick
from tidelog.transport import tracing as _tracing
from tidelog.transport.service_calls import ServiceCalls
from tidelog.transport.transport import Transport
from tidelog.v1 import broadcast_service_pb2 as pb
from tidelog.v1 import wal_service_pb2
from tidelog.wire import protocol as _wire
from tidelog.wire.batch import Batch
from tidelog.wire.durations import Duration, check_seconds, seconds_or

_TAKEN_AT_ONCE: Final = 32
# Ids expire: the server forgets which of them it accepted, but only after much longer than this.
_USABLE_S: Final = 2.0


class BroadcastIds:
    """The ids of one client in one event loop of one process: a forked child must not use its parent's ids.

    The server allocates them in blocks: one round trip per id would be a third of a broadcast's time.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._ids: Iterator[int] = iter(())
        self._usable_until_s = 0.0

    async def take(self, timeout_s: float) -> int:
        """Return an id that no other caller ever gets. Raises as ``Transport.call``, with ``effect`` ``none``."""
        clock = asyncio.get_running_loop().time
        if clock() < self._usable_until_s and (spare := next(self._ids, None)) is not None:
            return spare
        begin_s = clock()
        request = wal_service_pb2.AllocateTicksRequest(count=_TAKEN_AT_ONCE)
        transport = self._transport
        # A close waits for the broadcast that needs the id, so it also waits for this call.
        answer = await transport.call(
            transport.services.wal.AllocateTicks, request, timeout_s=timeout_s, is_read=True, holds_close=True
        )
        # This may replace the rest of a block that a concurrent call stored; unused ids harm nothing.
        self._ids = iter(range(answer.first_tick, answer.first_tick + answer.count))
        self._usable_until_s = begin_s + _USABLE_S
        return next(self._ids)


# Below the server's maximum of one minute, so that a lost connection is noticed sooner.
_POLL_S: Final = 30.0
# Time that the answer may take beyond the wait that was requested.
_SLACK_S: Final = 1.0
_MAX_WAIT_MS: Final = 600_000
OPEN_STATES: Final = (BroadcastState.PENDING, BroadcastState.WAIT_ACK)
"""The states of broadcasts that are not finished."""


class AsyncBroadcastCalls(ServiceCalls):
    """Broadcasts, for ``AsyncClient``."""

    @abstractmethod
    def _broadcast_ids(self) -> BroadcastIds:
        """Return the broadcast id allocator of this event loop."""

    async def broadcast(
        self,
        vchannels: str | Iterable[str],
        message: Appendable,
        *,
        resource_keys: Iterable[ResourceKey] = (),
        wait_s: Duration | None = None,
        barrier_tick: int | None = None,
        timeout_s: Duration | None = None,
    ) -> BroadcastResult:
        """Append one message atomically to 1 to 1,024 vchannels, at one tick, and return its position.

        The broadcast acquires all its ``resource_keys`` at once, and holds them until every vchannel has acknowledged
        it. The client resends it within the timeout until the outcome is known; the message is appended once.
        Cancelling a broadcast that still waits withdraws it; one that is accepted is appended. A close of the client
        withdraws it likewise, and its error states its effect.

        Args:
            vchannels: Distinct names of vchannels.
            message: The message; encoded at most 1 MiB, and 8 MiB over all vchannels.
            resource_keys: At most 64 distinct keys that the broadcast holds.
            wait_s: Maximum seconds to wait for keys that other broadcasts hold, 0 to 600; None to fail at once.
            barrier_tick: Tick that the broadcast's tick must exceed.
            timeout_s: Timeout in seconds in addition to ``wait_s``; None for the client's.

        Raises:
            ResourceAcquiredError: Another broadcast holds a key, until the wait or the client ended. Nothing was
                appended.
            AppendUnknownError: The broadcast may or may not be accepted. If it is, it reaches every vchannel.
            BarrierNotReachedError: The barrier is too far in the future. Nothing was appended.
            InvalidRequestError, ValueError: A name, key, size or time is invalid. Nothing was appended.
            TypeError: ``message`` is neither bytes nor a Message, or a key is not a ResourceKey.
            ChannelNotFoundError, UnavailableError, DeadlineError, StorageFailedError: See ``effect``.
        """
        wait_s = check_seconds("wait_s", wait_s or 0.0, maximum=_MAX_WAIT_MS / 1_000)
        timeout_s = seconds_or("timeout_s", timeout_s, self.timeout_s)
        if not isinstance(message, bytes | Message):
            raise TypeError(f"the message of a broadcast is {type(message).__name__}, expected bytes or Message")
        (full,) = as_messages([message])
        checked_bytes(full)
        request = pb.BroadcastRequest(
            vchannels=[vchannels] if isinstance(vchannels, str) else vchannels,
            message=_wire.message_to_wire(full),
            resource_keys=map(_wire_broadcast.resource_key, resource_keys),
            wait_timeout_ms=round(wait_s * 1_000),
            barrier_tick=barrier_tick or 0,
        )
        return await self._send(request, asyncio.get_running_loop().time() + timeout_s + wait_s)

    async def ack(self, broadcast_id: int, vchannels: str | Iterable[str]) -> None:
        """Acknowledge a broadcast on vchannels, durably. Succeeds if it is acknowledged or finished already.

        Raises:
            BroadcastNotFoundError: The server has not accepted a broadcast with this id. Nothing was acknowledged.
            BroadcastVchannelError: The broadcast was not sent to one of the vchannels. Nothing was acknowledged.
            InvalidRequestError: The id or a name is invalid.
            UnavailableError, DeadlineError, StorageFailedError: See ``effect``; acknowledging again is safe.
        """
        names = [vchannels] if isinstance(vchannels, str) else vchannels
        request = pb.AckRequest(broadcast_id=broadcast_id, vchannels=names)
        await self._change(self._services.broadcasts.Ack, request, is_idempotent=True)

    async def ack_batch(self, batch: Batch) -> None:
        """Acknowledge a broadcast delivered by a scan, on the vchannel that delivered it. See ``ack``.

        Raises:
            ValueError: The batch does not belong to a broadcast.
        """
        if batch.broadcast_id is None:
            raise ValueError(f"{batch!r} is not a broadcast: acknowledge batches whose broadcast_id is set")
        await self.ack(batch.broadcast_id, batch.vchannel)

    async def wait_acked(
        self, key_or_id: ResourceKey | int, *, mode: AckMode = AckMode.ALL, timeout_s: Duration | None = None
    ) -> None:
        """Wait until a broadcast is acknowledged, or all broadcasts that hold a resource key now (exclusive or shared).

        ``AckMode.ALL`` waits for all vchannels, ``AckMode.ONCE`` for one vchannel of one broadcast. Returns at once if
        no broadcast holds the key, or if the broadcast was finished long ago. The wait continues across lost
        connections and restarts of the server.

        Args:
            key_or_id: Resource key, or id of a broadcast.
            mode: Acknowledgements to wait for.
            timeout_s: Timeout in seconds; None for the client's. The server's last answer has a second more.

        Raises:
            DeadlineError: The acknowledgements did not arrive in time.
            BroadcastAbortedError: The broadcast was aborted. Not raised for a key, which an abort releases.
            BroadcastNotFoundError: The server has not accepted a broadcast with this id.
            TypeError, ValueError: ``key_or_id`` or ``mode`` is invalid.
        """
        if not isinstance(key_or_id, ResourceKey | int):
            raise TypeError(f"key_or_id is {key_or_id!r}, expected a ResourceKey(domain, key) or a broadcast id")
        request = pb.WaitAckedRequest(mode=_wire_broadcast.MODES[AckMode(mode)])
        if isinstance(key_or_id, ResourceKey):
            request.resource_key.CopyFrom(_wire_broadcast.resource_key(key_or_id))
        else:
            request.broadcast_ids.append(key_or_id)
        timeout_s = seconds_or("timeout_s", timeout_s, self.timeout_s)
        end_s = asyncio.get_running_loop().time() + timeout_s
        pauses_s = self._transport().retry.pauses_s()
        while True:
            left_s = max(0.0, end_s - asyncio.get_running_loop().time())
            try:
                answer = await self._poll(request, left_s)
            except (UnavailableError, DeadlineError):
                pause_s = next(pauses_s)
                if end_s - asyncio.get_running_loop().time() <= pause_s:
                    raise
                # A restarted server still knows the broadcasts: they are in its metadata.
                await asyncio.sleep(pause_s)
                continue
            if answer.acked:
                return
            if not left_s:
                raise DeadlineError(f"the broadcast was not acknowledged within {timeout_s:.1f} s: wait longer")
            # Broadcasts that acquire the key from now on are not waited for.
            request.broadcast_ids[:] = answer.broadcast_ids

    async def list_broadcasts(self, states: Sequence[BroadcastState] = OPEN_STATES) -> AsyncIterator[BroadcastSummary]:
        """Yield broadcasts in one of ``states``, in order of id. Finished ones are remembered for at most a day."""
        request = pb.ListBroadcastsRequest(states=[_wire_broadcast.STATES[state] for state in states])
        async for answer in self._pages(lambda services: services.broadcasts.ListBroadcasts, request):
            for summary in answer.broadcasts:
                yield _wire_broadcast.summary(summary)

    async def describe_broadcast(self, broadcast_id: int) -> BroadcastDescription:
        """Return a broadcast, with the vchannels that have acknowledged it and those that have not.

        Raises:
            BroadcastNotFoundError: The id is unknown, or the server has forgotten the broadcast.
        """
        request = pb.DescribeBroadcastRequest(broadcast_id=broadcast_id)
        answer = await self._read(self._services.broadcasts.DescribeBroadcast, request)
        summary = _wire_broadcast.summary(answer.summary)
        return BroadcastDescription(summary, tuple(answer.acked), tuple(answer.missing))

    async def abort_broadcast(self, broadcast_id: int, reason: str) -> BroadcastSummary:
        """Stop waiting for a broadcast's acknowledgements, durably: release its keys; its message stays in the log.

        For operators, when no consumer will acknowledge it. A finished broadcast is not changed; its state is in the
        returned summary.

        Args:
            broadcast_id: Id of the broadcast.
            reason: Reason, 1 to 256 bytes, which is stored with the broadcast.

        Raises:
            BroadcastNotFoundError: The id is unknown, or the server has forgotten the broadcast.
            InvalidRequestError: ``reason`` is empty or too long.
        """
        request = pb.AbortBroadcastRequest(broadcast_id=broadcast_id, reason=reason)
        answer = await self._change(self._services.broadcasts.AbortBroadcast, request, is_idempotent=True)
        return _wire_broadcast.summary(answer.summary)

    async def _send(self, request: pb.BroadcastRequest, end_s: float) -> BroadcastResult:
        """Send a broadcast under a new id, and resend it under that id until its outcome is known."""
        if (hooks := _tracing.hooks) is None:
            return await self._sent(request, end_s)
        endpoint = self._transport().endpoint
        with hooks.within(_tracing.Operation.BROADCAST, list(request.vchannels), endpoint, messages=1) as span:
            result = await self._sent(request, end_s)
            span.note(first_tick=result.tick)
            return result

    async def _sent(self, request: pb.BroadcastRequest, end_s: float) -> BroadcastResult:
        clock = asyncio.get_running_loop().time
        transport = self._transport()
        request.broadcast_id = await self._broadcast_ids().take(end_s - clock())
        with transport.leased() as connection:
            withdrawal = pb.WithdrawBroadcastRequest(broadcast_id=request.broadcast_id)
            answer = await transport.call(
                connection.broadcasts.Broadcast, request, timeout_s=end_s - clock(), is_read=False, is_append=True,
                is_idempotent=True, withdraw=partial(connection.broadcasts.WithdrawBroadcast, withdrawal),
            )  # fmt: skip
        return BroadcastResult(answer.broadcast_id, Tick(answer.tick), answer.duplicate)

    async def _poll(self, request: pb.WaitAckedRequest, left_s: float) -> pb.WaitAckedResponse:
        """Poll once; the server answers when the broadcast is acknowledged, after ``_POLL_S``, or after ``left_s``."""
        transport = self._transport()
        poll_s = min(left_s, _POLL_S)
        request.timeout_ms = round(poll_s * 1_000)
        with transport.leased() as connection:
            answer: pb.WaitAckedResponse = await transport.call(
                connection.broadcasts.WaitAcked, request, timeout_s=poll_s + min(self.timeout_s, _SLACK_S), is_read=True
            )
        return answer
