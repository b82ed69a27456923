"""MailboxService: sending, fetching and acknowledging messages, and the administration of messages."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from typing import Any, Final

from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.limits import MAX_MAILBOX_BATCH, MIB
from tidelog_server.core.mailboxes import MessageState
from tidelog_server.core.message_checks import check_at_most, check_count, check_within
from tidelog_server.core.ticks import LOGICAL_BITS, physical_ms
from tidelog_server.fold.calls import SMALL_BYTES, Call
from tidelog_server.mailboxes.dead_letters import MOVE_MESSAGES
from tidelog_server.mailboxes.events import EventType, Sent
from tidelog_server.mailboxes.mailbox import Mailbox
from tidelog_server.mailboxes.mailboxes import Mailboxes
from tidelog_server.mailboxes.messages.rows import Rows
from tidelog_server.mailboxes.operations import (
    Fetched,
    Outgoing,
    acknowledge,
    check_bodies,
    check_outgoing,
    extend,
    fetch,
    lease_of,
    pause,
    purge,
    redrive_here,
    reenqueue,
    send,
    send_bodies,
)
from tidelog_server.mailboxes.waiting import FetchCall
from tidelog_server.rpc.context import Context
from tidelog_server.rpc.services.mailboxes.bodies import Bodies, any_large, blob_events
from tidelog_server.rpc.services.mailboxes.conversions import (
    add_deliveries,
    dead_letter_of,
    failures_of,
    header_of,
    lease_ms_of,
    limit_of,
    outgoings_of,
    rejections_of,
    sent_response,
    states_of,
)
from tidelog_server.security.access import count_sent, current_tenant

MAX_FETCH_WAIT_MS: Final = 60_000
DEFAULT_FETCH_BYTES: Final = 1 * MIB
MAX_FETCH_BYTES: Final = 4 * MIB
_DEFAULT_HEADERS: Final = 100
_MAX_PEEKED: Final = 100
_DEFAULT_PEEKED: Final = 10
_DEFAULT_IN_FLIGHT: Final = 100
_MAX_IN_FLIGHT: Final = 10_000
# Rows of messages that are looked at in one step of the event loop: about a millisecond.
_ROWS_AT_ONCE: Final = 65_536
_STREAM_WAIT_MS: Final = 10_000
# Bytes of an event for each id or lock.
_ID_BYTES: Final = 32
NameOf = Callable[[int], str]
"""Returns the name of a mailbox by its id; empty if it was deleted."""


class MessageCalls:
    """Handlers of the calls on messages."""

    def __init__(self, mailboxes: Mailboxes, name_of: NameOf) -> None:
        self.mailboxes = mailboxes
        self.bodies = Bodies(mailboxes.blobs)
        self.name_of = name_of

    # -- Messages ------------------------------------------------------------------------------------------

    async def send(self, request: pb.SendRequest, _: Context) -> pb.SendResponse:
        """Add messages."""
        mailbox = await self.mailboxes.open(request.mailbox)
        await self.bodies.prepare((request,))
        return sent_response(await mailbox.run(self.send_call(mailbox, request)))

    def send_call(self, mailbox: Mailbox, request: pb.SendRequest) -> Call[Any]:
        """Return the operation of a request. ``bodies.prepare`` must have been awaited if ``bodies.must_wait``.

        Raises:
            InvalidRequestError: The request is invalid.
            BlobNotExistError: A body is not stored.
        """
        # Before they are converted, which takes longer than all other checks.
        check_count("messages", max(len(request.bodies), len(request.messages)))
        bodies = list(request.bodies)
        if bodies and request.messages:
            raise InvalidRequestError(
                "the request has both messages and bodies: move the bodies into messages", field="bodies"
            )
        if bodies:
            check_bodies(mailbox.name, mailbox.settings, bodies)
        if bodies and not any_large(bodies):
            size_bytes = sum(map(len, bodies))
            call: Call[Any] = Call(lambda step: send_bodies(step, bodies), len(bodies), size_bytes, needs_disk=True)
        else:
            plain = map(Outgoing, bodies) if bodies else outgoings_of(request.messages)
            messages = list(map(self.bodies.outgoing, plain))
            check_outgoing(mailbox.name, mailbox.settings, messages)
            size_bytes = sum(len(each.body) + SMALL_BYTES for each in messages)
            call = Call(
                lambda step: send(step, messages), len(messages), size_bytes, blob_events(messages), needs_disk=True
            )
        self.mailboxes.shared.node.admission.check_room(size_bytes)
        return call

    async def fetch(self, request: pb.FetchRequest, _: Context) -> pb.FetchResponse:
        """Lease messages."""
        mailbox = await self.mailboxes.open(request.mailbox)
        return await self.fetched_response(mailbox, await mailbox.run(self.fetch_call(mailbox, request)))

    def fetch_call(self, mailbox: Mailbox, request: pb.FetchRequest) -> FetchCall:
        """Return the operation of a request. Raises InvalidRequestError or a subclass."""
        count = limit_of("max_messages", request.max_messages, 1, MAX_MAILBOX_BATCH)
        size_bytes = limit_of("max_bytes", request.max_bytes, DEFAULT_FETCH_BYTES, MAX_FETCH_BYTES)
        check_within(request.wait_ms, 0, MAX_FETCH_WAIT_MS, "wait_ms")
        lease_ms = lease_of(mailbox.name, mailbox.settings, lease_ms_of(request))
        return FetchCall(
            lambda step: fetch(step, count, lease_ms, size_bytes),
            1,
            SMALL_BYTES + count * _ID_BYTES,
            wait_s=request.wait_ms / 1_000,
            tenant=current_tenant(),
        )

    async def fetched_response(self, mailbox: Mailbox, fetched: Fetched) -> pb.FetchResponse:
        """Return the answer to a fetch, with the bodies of the messages."""
        if not fetched.grants:
            return pb.FetchResponse()
        response = pb.FetchResponse(leased_until_ms=physical_ms(fetched.until))
        try:
            messages = await self.messages(mailbox, fetched)
        except asyncio.CancelledError:
            # The client has left before it received a message.
            mailbox.give_back((fetched,))
            raise
        add_deliveries(response.deliveries, fetched, messages, self.name_of)
        return response

    async def messages(self, mailbox: Mailbox, fetched: Fetched) -> Mapping[int, Sent]:
        """Return fetched messages with their bodies, by id. Raises DataLossError."""
        messages = await self.mailboxes.reader.messages(mailbox, [grant.message_id for grant in fetched.grants])
        return await self.bodies.complete(messages)

    def events_in_memory(self, mailbox: Mailbox, fetched: Fetched) -> list[bytes] | None:
        """Return the event that has each fetched message; None if some are not in memory."""
        if self.bodies.are_blobs(mailbox, fetched):
            return None
        return mailbox.recent.get_all([grant.place for grant in fetched.grants])

    async def stream_deliveries(self, request: pb.StreamDeliveriesRequest, context: Context) -> None:
        """Lease messages as they become available, up to a number in flight."""
        mailbox = await self.mailboxes.open(request.mailbox)
        limit = limit_of("max_in_flight", request.max_in_flight, _DEFAULT_IN_FLIGHT, _MAX_IN_FLIGHT)
        in_flight: set[bytes] = set()
        fetching = pb.FetchRequest(wait_ms=_STREAM_WAIT_MS, lease_ms=lease_ms_of(request))
        while True:
            in_flight = {lock_id for lock_id in in_flight if mailbox.state.locks.message_of(lock_id)}
            fetching.max_messages = min(limit - len(in_flight), MAX_MAILBOX_BATCH)
            if not fetching.max_messages:
                await mailbox.changed()
                continue
            fetched = await mailbox.run(self.fetch_call(mailbox, fetching))
            if not fetched.grants:
                continue
            in_flight.update(grant.lock_id for grant in fetched.grants)
            # StreamDeliveriesResponse has the fields of FetchResponse.
            encoded = (await self.fetched_response(mailbox, fetched)).SerializeToString()
            await context.write(encoded)
            await count_sent(len(encoded))

    async def ack_deliveries(self, request: pb.AckDeliveriesRequest, _: Context) -> pb.AckDeliveriesResponse:
        """Confirm and reject deliveries."""
        mailbox = await self.mailboxes.open(request.mailbox)
        return pb.AckDeliveriesResponse(failures=failures_of(await mailbox.run(self.ack_call(request))))

    def ack_call(self, request: pb.AckDeliveriesRequest) -> Call[Any]:
        """Return the operation of a request."""
        confirmed, rejected = list(request.confirmed), rejections_of(request.rejected)
        size_bytes = SMALL_BYTES + _ID_BYTES * (len(confirmed) + len(rejected))
        return Call(lambda step: acknowledge(step, confirmed, rejected), 1 + len(rejected), size_bytes)

    async def extend(self, request: pb.ExtendRequest, _: Context) -> pb.ExtendResponse:
        """Extend leases."""
        mailbox = await self.mailboxes.open(request.mailbox)
        until, result = await mailbox.run(self.extend_call(mailbox, request))
        return pb.ExtendResponse(leased_until_ms=physical_ms(until), failures=failures_of(result))

    def extend_call(self, mailbox: Mailbox, request: pb.ExtendRequest) -> Call[Any]:
        """Return the operation of a request. Raises LeaseTooLongError."""
        lock_ids = list(request.lock_ids)
        lease_ms = lease_of(mailbox.name, mailbox.settings, lease_ms_of(request))
        return Call(lambda step: extend(step, lock_ids, lease_ms), 1, SMALL_BYTES + _ID_BYTES * len(lock_ids))

    # -- Administration ------------------------------------------------------------------------------------

    async def counts(self, name: str) -> pb.MailboxCounts:
        """Return the exact counts of a mailbox."""
        mailbox = await self.mailboxes.open(name)
        # In a step, so that leases and delays that are over count as such.
        counts, oldest_id = await mailbox.run(Call(lambda step: (step.state.counts(), step.state.oldest_id), 0))
        now_ms = self.mailboxes.shared.node.clock.wall_ms()
        return pb.MailboxCounts(
            available=counts.available, delayed=counts.delayed, leased=counts.leased, dead=counts.dead,
            oldest_age_ms=max(0, now_ms - physical_ms(oldest_id)) if oldest_id else 0, body_bytes=counts.body_bytes,
            is_paused=mailbox.state.is_paused,
        )  # fmt: skip

    async def fetch_headers(self, request: pb.FetchHeadersRequest, _: Context) -> pb.FetchHeadersResponse:
        """List messages that could be fetched."""
        count = limit_of("max_messages", request.max_messages, _DEFAULT_HEADERS, MAX_MAILBOX_BATCH)
        if request.after_ms < 0:
            raise InvalidRequestError(f"after_ms is {request.after_ms}, expected 0 or more", field="after_ms")
        # Received after the time: from the next millisecond on.
        after_id = max(request.after_id, ((request.after_ms + 1) << LOGICAL_BITS) - 1 if request.after_ms else 0)
        mailbox = await self.mailboxes.open(request.mailbox)
        headers = await _headers(mailbox, lambda rows: rows.after(after_id, (MessageState.AVAILABLE,), count))
        return pb.FetchHeadersResponse(headers=headers)

    async def peek(self, request: pb.PeekRequest, _: Context) -> pb.PeekResponse:
        """List messages with their bodies."""
        count = limit_of("max_messages", request.max_messages, _DEFAULT_PEEKED, _MAX_PEEKED)
        states = states_of(request.state)
        mailbox = await self.mailboxes.open(request.mailbox)

        def wanted(rows: Rows) -> Iterable[int]:
            if not request.id:
                return rows.after(request.after_id, states, count)
            row = rows.find(request.id)
            return [row] if row >= 0 and rows.states[row] in states else []

        headers = await _headers(mailbox, wanted)
        stored = await self.mailboxes.reader.messages(mailbox, [header.id for header in headers])
        messages = await self.bodies.complete(stored)
        name_of, peeked = self.name_of, []
        for header in headers:
            if (message := messages.get(header.id)) is None:
                continue
            origin = None if message.origin is None else dead_letter_of(message, name_of)
            peeked.append(
                pb.PeekedMessage(
                    header=header,
                    body=message.body,
                    headers=message.headers,
                    dead_letter=origin,
                    blob_key=message.blob_key,
                    blob_is_missing=message.is_missing,
                )
            )
        return pb.PeekResponse(messages=peeked)

    async def purge_mailbox(self, request: pb.PurgeMailboxRequest, _: Context) -> pb.PurgeMailboxResponse:
        """Delete all messages."""
        mailbox = await self.mailboxes.open(request.name)
        return pb.PurgeMailboxResponse(messages=await mailbox.run(Call(purge, 1)))

    async def pause_mailbox(self, request: pb.PauseMailboxRequest, _: Context) -> pb.PauseMailboxResponse:
        """Stop deliveries."""
        mailbox = await self.mailboxes.open(request.name)
        await mailbox.run(Call(lambda step: pause(step, is_paused=True), 1))
        return pb.PauseMailboxResponse()

    async def resume_mailbox(self, request: pb.ResumeMailboxRequest, _: Context) -> pb.ResumeMailboxResponse:
        """Resume deliveries."""
        mailbox = await self.mailboxes.open(request.name)
        await mailbox.run(Call(lambda step: pause(step, is_paused=False), 1))
        return pb.ResumeMailboxResponse()

    async def reenqueue(self, request: pb.ReenqueueRequest, _: Context) -> pb.ReenqueueResponse:
        """End leases."""
        ids = list(request.ids)
        _check_ids(ids)
        mailbox = await self.mailboxes.open(request.mailbox)
        ended = await mailbox.run(Call(lambda step: reenqueue(step, ids), 1 + len(ids)))
        return pb.ReenqueueResponse(messages=ended)

    async def redrive(self, request: pb.RedriveRequest, context: Context) -> None:
        """Return dead messages to delivery, and report progress."""
        mailbox = await self.mailboxes.open(request.mailbox)
        wanted = await self._to_redrive(mailbox, request)
        if request.destination:
            await self.mailboxes.open(request.destination)
        moved, loop = 0, asyncio.get_running_loop()
        begin_s = loop.time()
        size = min(MOVE_MESSAGES, request.max_per_s or MOVE_MESSAGES)
        for begin in range(0, len(wanted), size):
            if request.max_per_s:
                await asyncio.sleep(max(0.0, begin_s + moved / request.max_per_s - loop.time()))
            moved += await self._redrive_part(mailbox, wanted[begin : begin + size], request.destination)
            # Messages that are neither dead nor dead letters are known by reading them.
            response = pb.RedriveResponse(moved=moved, total=moved + len(wanted[begin + size :]))
            await context.write(response.SerializeToString())
        if not wanted:
            await context.write(pb.RedriveResponse().SerializeToString())

    async def _to_redrive(self, mailbox: Mailbox, request: pb.RedriveRequest) -> Sequence[int]:
        """Return the ids of the messages to redrive: dead ones, and dead letters of other mailboxes."""
        _check_ids(request.ids)
        rows = mailbox.state.rows
        if request.ids:
            return list(dict.fromkeys(request.ids))
        wanted, last_id = rows.ids_after(0, (MessageState.LEASED,), _ROWS_AT_ONCE)
        while last_id:
            # There may be millions: yield to other work on the event loop.
            await asyncio.sleep(0)
            more, last_id = rows.ids_after(last_id, (MessageState.LEASED,), _ROWS_AT_ONCE)
            wanted += more
        return wanted

    async def _redrive_part(self, mailbox: Mailbox, ids: Sequence[int], destination: str) -> int:
        """Redrive messages; return the number of those that were moved."""
        rows = mailbox.state.rows
        dead = [each for each in ids if (row := rows.find(each)) >= 0 and rows.states[row] == MessageState.DEAD]
        moved = 0
        if dead and not destination:
            moved += await mailbox.run(Call(lambda step: redrive_here(step, dead), 1))
        targets: dict[str, list[int]] = {destination: dead} if dead and destination else {}
        messages = await self.mailboxes.reader.messages(mailbox, [*{*ids}.difference(dead)])
        for message_id, message in messages.items():
            if message.origin and (target := destination or self.name_of(message.origin.mailbox_id)):
                targets.setdefault(target, []).append(message_id)
        for target, theirs in targets.items():
            other = await self.mailboxes.open(target)
            moved += await self.mailboxes.mover.move(mailbox, other, theirs, EventType.MOVED)
        return moved


async def _headers(mailbox: Mailbox, wanted: Callable[[Rows], Iterable[int]]) -> list[pb.MessageHeader]:
    """Return the headers of the rows that are wanted, in a step: leases and delays that are over count as such."""

    def execute(step: Any) -> list[pb.MessageHeader]:
        return [header_of(step.state.header(row)) for row in wanted(step.state.rows)]

    return await mailbox.run(Call(execute, 0))


def _check_ids(ids: Sized) -> None:
    check_at_most(len(ids), MAX_MAILBOX_BATCH, "ids", "the request names {value} messages")
