"""The calls of the asynchronous client that are about broadcasts."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from tidelog import _tracing, _wire, _wire_broadcast
from tidelog._append_contents import as_messages
from tidelog._batch import Batch
from tidelog._broadcast_ids import BroadcastIds
from tidelog._broadcast_types import (
    AckMode,
    BroadcastDescription,
    BroadcastResult,
    BroadcastState,
    BroadcastSummary,
    ResourceKey,
)
from tidelog._errors import DeadlineError, UnavailableError
from tidelog._message import Message
from tidelog._sizes import Appendable
from tidelog._transport import Connection, Transport
from tidelog.v1 import broadcast_service_pb2 as pb

# The server answers after a minute at most; shorter, so that a lost connection is noticed sooner.
_POLL_S: Final = 30.0
# How much later than it was asked to may the server answer.
_SLACK_S: Final = 1.0
_MAX_WAIT_MS: Final = 600_000
OPEN_STATES: Final = (BroadcastState.PENDING, BroadcastState.WAIT_ACK)
"""Those of broadcasts that are not finished."""


class AsyncBroadcastCalls(ABC):
    """Broadcasts, for ``AsyncClient``.

    Attributes:
        timeout_s: How long a call may take, unless it says otherwise.
    """

    timeout_s: float

    @abstractmethod
    def _transport(self) -> Transport:
        """Return the open connections of this event loop."""

    @abstractmethod
    def _broadcast_ids(self) -> BroadcastIds:
        """Return the ids for broadcasts of this event loop."""

    async def broadcast(
        self,
        vchannels: str | Iterable[str],
        message: Appendable,
        *,
        resource_keys: Iterable[ResourceKey] = (),
        wait_s: float | None = None,
        barrier_tick: int | None = None,
        timeout_s: float | None = None,
    ) -> BroadcastResult:
        """Append one message to 1 to 1,024 vchannels, to all or to none, at one tick, and return where it is.

        With ``resource_keys`` it holds these until every vchannel has acknowledged it; all are taken at once. A key
        that another broadcast holds refuses it, unless ``wait_s`` says how long to wait for it, 600 s at most.

        It is sent again until its outcome is known, while there is time, and is there once. Cancelling ends the wait
        only. With ``barrier_tick`` its tick will be greater.

        Args:
            vchannels: Where it goes, none twice.
            message: The message; as columns at most 1 MiB, and 8 MiB over all vchannels.
            resource_keys: What it holds, at most 64, none twice.
            wait_s: How long to wait for keys; None not to.
            barrier_tick: What its tick must exceed.
            timeout_s: How long the call may take beside ``wait_s``; None for the client's time.

        Raises:
            ResourceAcquiredError: A key is held by another broadcast. Nothing was appended.
            AppendUnknownError: It may or may not be accepted. If it is, it reaches every vchannel.
            BarrierNotReachedError: The barrier lies too far in the future. Nothing was appended.
            InvalidRequestError, ValueError: A name, key, size or time is not allowed. Nothing was appended.
            TypeError: ``message`` is neither bytes nor a Message, or a key is no ResourceKey.
            ChannelNotFoundError, UnavailableError, DeadlineError, StorageFailedError: See ``effect``.
        """
        if wait_s is not None and not 0 <= wait_s * 1_000 <= _MAX_WAIT_MS:
            raise ValueError(f"wait_s is {wait_s}, expected 0 to {_MAX_WAIT_MS // 1_000}")
        if not isinstance(message, bytes | Message):
            raise TypeError(f"a broadcast has one message, bytes or Message, not {type(message).__name__}")
        (full,) = as_messages([message])
        request = pb.BroadcastRequest(
            vchannels=[vchannels] if isinstance(vchannels, str) else vchannels,
            message=_wire.message_to_wire(full),
            resource_keys=map(_wire_broadcast.resource_key, resource_keys),
            wait_timeout_ms=round((wait_s or 0.0) * 1_000),
            barrier_tick=barrier_tick or 0,
        )
        timeout_s = (self.timeout_s if timeout_s is None else timeout_s) + (wait_s or 0.0)
        return await self._send(request, asyncio.get_running_loop().time() + timeout_s)

    async def ack(self, broadcast_id: int, vchannels: str | Iterable[str]) -> None:
        """Acknowledge a broadcast on vchannels, durably; doing so twice is no error, nor is it for a finished one.

        Raises:
            BroadcastNotFoundError: The server has accepted none with this id. Nothing was acknowledged.
            BroadcastVchannelError: The broadcast is not for one of them. Nothing was acknowledged.
            InvalidRequestError: An id or a name is none.
            UnavailableError, DeadlineError, StorageFailedError: See ``effect``; acknowledging again is safe.
        """
        transport = self._transport()
        names = [vchannels] if isinstance(vchannels, str) else vchannels
        request = pb.AckRequest(broadcast_id=broadcast_id, vchannels=names)
        await transport.call(
            transport.broadcasts.Ack, request, timeout_s=self.timeout_s, is_read=False, is_idempotent=True
        )

    async def ack_batch(self, batch: Batch) -> None:
        """Acknowledge the broadcast that a scan has delivered, on the vchannel where it did. See ``ack``.

        Raises:
            ValueError: The batch is of no broadcast.
        """
        if batch.broadcast_id is None:
            raise ValueError(f"{batch!r} is of no broadcast: acknowledge those whose broadcast_id is set")
        await self.ack(batch.broadcast_id, batch.vchannel)

    async def wait_acked(
        self, key_or_id: ResourceKey | int, *, mode: AckMode = AckMode.ALL, timeout_s: float | None = None
    ) -> None:
        """Return once a broadcast is acknowledged, or all those that hold a resource key now, in whatever mode.

        ``AckMode.ONCE`` waits for one vchannel of one of them. A key that nobody holds, or a broadcast that was
        finished long ago, is waited for no longer. It goes on across lost connections and restarts of the server.

        Args:
            key_or_id: A resource key, or the id of a broadcast.
            mode: Which acknowledgements.
            timeout_s: How long; None for the client's time.

        Raises:
            DeadlineError: They were not there in time.
            BroadcastAbortedError: The broadcast was aborted. Not with a key, which is free then.
            BroadcastNotFoundError: The id was never accepted.
            TypeError, ValueError: ``key_or_id`` is neither of them, or ``mode`` is none.
        """
        if not isinstance(key_or_id, ResourceKey | int):
            raise TypeError(f"{key_or_id!r} is neither a ResourceKey(domain, key) nor the id of a broadcast")
        request = pb.WaitAckedRequest(mode=_wire_broadcast.ack_mode(mode))
        if isinstance(key_or_id, ResourceKey):
            request.resource_key.CopyFrom(_wire_broadcast.resource_key(key_or_id))
        else:
            request.broadcast_ids.append(key_or_id)
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
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
                # A server that is restarted knows what is waited for: it is in its metadata.
                await asyncio.sleep(pause_s)
                continue
            if answer.acked:
                return
            if not left_s:
                raise DeadlineError(f"what was waited for was not acknowledged within {timeout_s:.1f} s: wait longer")
            # Those that take the key from now on are not waited for.
            request.broadcast_ids[:] = answer.broadcast_ids

    async def list_broadcasts(self, states: Sequence[BroadcastState] = OPEN_STATES) -> AsyncIterator[BroadcastSummary]:
        """Yield broadcasts in one of these states, in order of id. Finished ones are remembered for a day at most."""
        page_token = ""
        while True:
            transport = self._transport()
            request = pb.ListBroadcastsRequest(states=_wire_broadcast.states(states), page_token=page_token)
            answer = await transport.call(
                transport.broadcasts.ListBroadcasts, request, timeout_s=self.timeout_s, is_read=True
            )
            for summary in answer.broadcasts:
                yield _wire_broadcast.summary(summary)
            page_token = answer.next_page_token
            if not page_token:
                return

    async def describe_broadcast(self, broadcast_id: int) -> BroadcastDescription:
        """Return a broadcast, with the vchannels that have acknowledged it and those that have not.

        Raises:
            BroadcastNotFoundError: It is not known, or is forgotten.
        """
        transport = self._transport()
        request = pb.DescribeBroadcastRequest(broadcast_id=broadcast_id)
        answer = await transport.call(
            transport.broadcasts.DescribeBroadcast, request, timeout_s=self.timeout_s, is_read=True
        )
        return _wire_broadcast.description(answer)

    async def abort_broadcast(self, broadcast_id: int, reason: str) -> BroadcastSummary:
        """Give up waiting for acknowledgements, durably: its keys are free, its message stays in the log.

        For people who know that nobody will acknowledge it any more; ``reason`` (1 to 256 bytes) is kept. One that is
        finished stays as it is, which the summary says.

        Raises:
            BroadcastNotFoundError: It is not known, or is forgotten.
            InvalidRequestError: There is no reason, or it is too long.
        """
        transport = self._transport()
        request = pb.AbortBroadcastRequest(broadcast_id=broadcast_id, reason=reason)
        answer = await transport.call(
            transport.broadcasts.AbortBroadcast, request, timeout_s=self.timeout_s, is_read=False, is_idempotent=True
        )
        return _wire_broadcast.summary(answer.summary)

    async def _send(self, request: pb.BroadcastRequest, end_s: float) -> BroadcastResult:
        """Send a broadcast under an id of its own, and again under the same one until its outcome is known."""
        if (hooks := _tracing.hooks) is None:
            return await self._sent(request, end_s)
        with hooks.within(_tracing.Operation.BROADCAST, list(request.vchannels), messages=1) as span:
            result = await self._sent(request, end_s)
            span.note(first_tick=result.tick)
            return result

    async def _sent(self, request: pb.BroadcastRequest, end_s: float) -> BroadcastResult:
        clock = asyncio.get_running_loop().time
        transport = self._transport()
        request.broadcast_id = await self._broadcast_ids().take(end_s - clock())
        with _own_connection(transport) as connection:
            answer = await transport.call(
                connection.broadcasts.Broadcast, request, timeout_s=end_s - clock(), is_read=False, is_append=True,
                is_idempotent=True,
            )  # fmt: skip
        return _wire_broadcast.result(answer)

    async def _poll(self, request: pb.WaitAckedRequest, left_s: float) -> pb.WaitAckedResponse:
        """Ask once whether acknowledgements are there, which the server answers when they are, or after a while."""
        transport = self._transport()
        poll_s = min(left_s, _POLL_S)
        request.timeout_ms = round(poll_s * 1_000)
        with _own_connection(transport) as connection:
            answer: pb.WaitAckedResponse = await transport.call(
                connection.broadcasts.WaitAcked, request, timeout_s=poll_s + min(self.timeout_s, _SLACK_S), is_read=True
            )
        return answer


@contextmanager
def _own_connection(transport: Transport) -> Iterator[Connection]:
    """Yield a connection for a call that may wait long.

    Why: a connection carries a hundred calls at once. A hundred that wait must not keep out the acknowledgements that
    they wait for.
    """
    connection = transport.lease()
    try:
        yield connection
    finally:
        transport.release(connection)
