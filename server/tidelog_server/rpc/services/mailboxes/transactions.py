"""Messages of mailboxes that are sent and acknowledged in transactions."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog_server.core.limits import MAX_MAILBOX_BATCH
from tidelog_server.core.message_checks import check_at_most
from tidelog_server.fold.calls import SMALL_BYTES, Call
from tidelog_server.log.protocols import NOTHING_JOINED, Joined
from tidelog_server.mailboxes.joint import JointPart, JointStep
from tidelog_server.mailboxes.mailbox import Mailbox
from tidelog_server.mailboxes.operations import (
    Outgoing,
    Rejection,
    SentIds,
    Step,
    acknowledge,
    add_messages,
    check_acknowledge,
    check_outgoing,
    check_send,
)
from tidelog_server.rpc.services.mailboxes.bodies import blob_events
from tidelog_server.rpc.services.mailboxes.calls import MessageCalls
from tidelog_server.rpc.services.mailboxes.conversions import outgoings_of, rejections_of, sent_response


@dataclass(slots=True)
class _Part:
    """What a transaction does to one mailbox.

    Attributes:
        mailbox: The mailbox.
        confirmed, rejected: Deliveries to acknowledge.
        sends: Messages to send, by index of the request in the transaction.
    """

    mailbox: Mailbox
    confirmed: list[bytes] = field(default_factory=list)
    rejected: list[Rejection] = field(default_factory=list)
    sends: dict[int, list[Outgoing]] = field(default_factory=dict)

    @property
    def has_acks(self) -> bool:
        return bool(self.confirmed or self.rejected)

    def check(self, step: Step) -> None:
        """Raise TidelogServerError if the part is refused."""
        if self.has_acks:
            check_acknowledge(step, self.confirmed, self.rejected)
        check_send(step, [message for messages in self.sends.values() for message in messages])

    def execute(self, step: Step) -> dict[int, SentIds]:
        """Acknowledge and send; return the ids by index of the request."""
        if self.has_acks:
            result = acknowledge(step, self.confirmed, self.rejected)
            # ``check`` has accepted the locks, and no other step came in between.
            assert not result.failures
        return {index: add_messages(step, messages) for index, messages in self.sends.items()}

    def joint(self) -> JointPart:
        """Return the part of the joint step."""
        messages = [message for messages in self.sends.values() for message in messages]
        events = len(messages) + len(self.rejected) + bool(self.confirmed)
        size_bytes = sum(len(message.body) + SMALL_BYTES for message in messages)
        return JointPart(
            self.mailbox, Call(self.execute, events, size_bytes, blob_events(messages), needs_disk=True), self.check
        )


class MailboxTransactions:
    """Prepares what transactions do to mailboxes."""

    def __init__(self, calls: MessageCalls) -> None:
        self._calls = calls

    async def join(self, sends: Sequence[pb.SendRequest], acks: Sequence[pb.AckDeliveriesRequest]) -> Joined:
        """Return what is written with a transaction.

        Raises:
            MailboxNotExistError, NotOwnerError: A mailbox does not exist on this node. Nothing happened.
            InvalidRequestError: A message or the number of messages is invalid. Nothing happened.
        """
        if not sends and not acks:
            return NOTHING_JOINED
        total = sum(len(each.messages) + len(each.bodies) for each in sends)
        total += sum(len(each.confirmed) + len(each.rejected) for each in acks)
        check_at_most(total, MAX_MAILBOX_BATCH, "sends", "the transaction has {value} messages and locks of mailboxes")
        await self._calls.bodies.prepare(sends)
        parts: dict[str, _Part] = {}
        for ack in acks:
            part = await self._part(parts, ack.mailbox)
            part.confirmed += ack.confirmed
            part.rejected += rejections_of(ack.rejected)
        for index, request in enumerate(sends):
            part = await self._part(parts, request.mailbox)
            plain = [*map(Outgoing, request.bodies), *outgoings_of(request.messages)]
            messages = list(map(self._calls.bodies.outgoing, plain))
            check_outgoing(part.mailbox.name, part.mailbox.settings, messages)
            part.sends[index] = messages
        joint = JointStep([part.joint() for part in parts.values()])
        await joint.prepare()
        return joint

    async def _part(self, parts: dict[str, _Part], mailbox: str) -> _Part:
        if mailbox not in parts:
            parts[mailbox] = _Part(await self._calls.mailboxes.open(mailbox))
        return parts[mailbox]


def sent_by(joined: Joined) -> list[pb.SendResponse]:
    """Return the ids of what a transaction sends to mailboxes, by request; [] before it is durable, or for nothing."""
    if not isinstance(joined, JointStep):
        return []
    found: dict[int, SentIds] = {}
    for ids in joined.results():
        found |= ids
    return [sent_response(found[index]) for index in sorted(found)]
