"""Every pair of a blob store and a message store delivers messages by the rules of pandora's API.

Method: the same tests on each kind of stores, with messages that the test enqueues and with a server over the stores.
Further stores need an implementation of `MailboxKind` (`tidelog_testing.parts.mailbox_stores`) and a row of `KINDS`.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta

import pytest

from tidelog.pandora import (
    AckStatus,
    BlobNotFoundError,
    DuplicateMessageError,
    InvalidHeaderEncodingError,
    InvalidMailBoxError,
    Key,
    Message,
    MessageTooBigError,
    NilBodyError,
    NoMessagesError,
    SenderNotFoundError,
    SHA1Key,
    SHA1KeyWriter,
    StaleLockError,
    UnableToChangeStatusError,
    encode_values,
    print_key_string,
)
from tidelog_testing.parts.mailbox_stores import MailboxKind, memory_mailboxes, new_mailbox, tidelog_mailboxes

KINDS: dict[str, Callable[[], AbstractAsyncContextManager[MailboxKind]]] = {
    "memory": lambda: memory_mailboxes(is_synchronous=False),
    "memory, synchronous": lambda: memory_mailboxes(is_synchronous=True),
    "tidelog": lambda: tidelog_mailboxes(is_synchronous=False),
    "tidelog, synchronous": lambda: tidelog_mailboxes(is_synchronous=True),
}
NUMBERS = itertools.count()
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
NO_DELAY = timedelta()
INVALID_NAMES = [
    ("", InvalidMailBoxError),
    ("a" * 257, InvalidMailBoxError),
    ("a\nb", InvalidMailBoxError),
    ("a\udcff", InvalidHeaderEncodingError),
]


@pytest.fixture(params=KINDS)
async def kind(request: pytest.FixtureRequest) -> AsyncIterator[MailboxKind]:
    async with KINDS[request.param]() as kind:
        yield kind


@pytest.fixture
def inbox() -> str:
    return new_mailbox()


def key_of(message: Message) -> Key:
    assert message.mid is not None
    return message.mid


def lock_of(message: Message) -> Key:
    assert message.lid is not None
    return message.lid


def new_message(inbox: str, **header: timedelta | datetime) -> Message:
    """Return a message that differs from all others; its body is in no blob store."""
    message = Message(**header)  # type: ignore[arg-type]  # the fields are those of the test
    message.set_sender("a@local")
    message.set_receiver(inbox)
    message.set("number", str(next(NUMBERS)))
    return message


async def enqueued(kind: MailboxKind, inbox: str, **header: timedelta | datetime) -> Message:
    message = new_message(inbox, **header)
    await kind.messages.enqueue(message)
    return message


async def send(kind: MailboxKind, inbox: str, text: str = "text", delay: timedelta = NO_DELAY) -> Message:
    return await kind.server.send("a@local", inbox, delay, kind.now(), {"topic": text})


async def is_collected(kind: MailboxKind, key: Key) -> bool:
    """Wait for the collection of a blob that may be collected; return whether it was."""
    for _ in range(20):
        if await kind.blobs.get_data(key) is None:
            return True
        await kind.pass_time(kind.unit)
    return False


# ---------------------------------------------------------------------------------------------------- blobs


async def test_a_blob_is_stored_under_its_hash(kind: MailboxKind) -> None:
    data = b"hello world, number %d" % next(NUMBERS)
    writer = SHA1KeyWriter()
    writer.write(data)
    key = await kind.blobs.put_data(data)
    assert key == writer.key()
    assert await kind.blobs.get_data(key) == data
    await kind.blobs.update_ref_count(key, 1)
    assert await kind.blobs.put_data(data) == key
    await kind.blobs.update_ref_count(key, -1)
    assert await kind.blobs.get_data(key) == data


async def test_an_unknown_blob_has_no_data_and_no_references(kind: MailboxKind) -> None:
    key = SHA1Key(b"\xff" * 20)
    assert await kind.blobs.get_data(key) is None
    with pytest.raises(BlobNotFoundError, match="key not found"):
        await kind.blobs.update_ref_count(key, 1)
    assert await kind.blobs.get_data(key) is None


async def test_a_blob_is_collected_once_nothing_has_referred_to_it_for_the_grace_period(kind: MailboxKind) -> None:
    unused = await kind.blobs.put_data(b"unused %d" % next(NUMBERS))
    used = await kind.blobs.put_data(b"used %d" % next(NUMBERS))
    await kind.blobs.update_ref_count(used, 2)
    await kind.pass_time(kind.grace_period)
    assert await is_collected(kind, unused)
    await kind.blobs.update_ref_count(used, -1)
    await kind.pass_time(kind.grace_period)
    assert await kind.blobs.get_data(used) is not None
    await kind.blobs.update_ref_count(used, -2)
    assert await kind.blobs.get_data(used) is not None
    await kind.pass_time(kind.grace_period)
    assert await is_collected(kind, used)


async def test_a_blob_that_is_put_again_gets_another_grace_period(kind: MailboxKind) -> None:
    data = b"put again %d" % next(NUMBERS)
    key = await kind.blobs.put_data(data)
    await kind.pass_time(kind.grace_period - 2 * kind.unit)
    assert await kind.blobs.put_data(data) == key
    await kind.pass_time(kind.grace_period - 2 * kind.unit)
    assert await kind.blobs.get_data(key) == data
    await kind.pass_time(2 * kind.unit)
    assert await is_collected(kind, key)


# ---------------------------------------------------------------------------------------------------- deliveries


async def test_a_message_is_fetched_with_a_lease(kind: MailboxKind, inbox: str) -> None:
    sent = await enqueued(kind, inbox)
    before = kind.now()
    fetched = await kind.messages.fetch_and_lock_latest(inbox, timedelta(minutes=5))
    assert fetched.mid == sent.mid
    assert (sent.status, fetched.status) == (AckStatus.NOT_DELIVERED, AckStatus.NOT_DELIVERED)
    assert (fetched.delivery_count, fetched.delay, fetched.body) == (0, timedelta(), {})
    assert fetched.received_at == fetched.send_when == sent.received_at == sent.send_when
    assert fetched.fetch_time is not None
    assert before <= fetched.fetch_time <= kind.now()
    assert fetched.leased_until == fetched.fetch_time + timedelta(minutes=5)
    lid = bytes(lock_of(fetched).bytes())
    assert len(lid) == 20
    assert lid != bytes(20)


async def test_lock_ids_cannot_be_calculated_from_the_end_of_the_lease(kind: MailboxKind, inbox: str) -> None:
    await enqueued(kind, inbox)
    fetched = await kind.messages.fetch_and_lock_latest(inbox, kind.unit)
    assert fetched.leased_until is not None
    guess = Message()
    guess.calculate_lease_for(fetched.leased_until, timedelta())
    assert fetched.lid != guess.lid


async def test_a_delayed_message_is_invisible_until_it_is_due(kind: MailboxKind, inbox: str) -> None:
    sent = await enqueued(kind, inbox, delay=2 * kind.unit)
    assert (sent.received_at, sent.send_when) != (None, None)
    assert sent.send_when == sent.received_at + 2 * kind.unit  # type: ignore[operator]  # see above
    with pytest.raises(NoMessagesError):
        await kind.messages.fetch_and_lock_latest(inbox, kind.unit)
    assert await kind.messages.fetch_headers(inbox, LONG_AGO) == []
    await kind.pass_time(2 * kind.unit)
    assert len(await kind.messages.fetch_headers(inbox, LONG_AGO)) == 1
    assert (await kind.messages.fetch_and_lock_latest(inbox, kind.unit)).mid == sent.mid


async def test_a_message_with_a_due_time_ignores_the_delay(kind: MailboxKind, inbox: str) -> None:
    later = await enqueued(kind, inbox, send_when=kind.now() + 2 * kind.unit, delay=-kind.unit)
    past = await enqueued(kind, inbox, send_when=kind.now() - kind.unit, delay=kind.unit)
    assert (await kind.messages.fetch_and_lock_latest(inbox, kind.unit)).mid == past.mid
    with pytest.raises(NoMessagesError):
        await kind.messages.fetch_and_lock_latest(inbox, kind.unit)
    await kind.pass_time(2 * kind.unit)
    fetched = {print_key_string((await kind.messages.fetch_and_lock_latest(inbox, kind.unit)).mid) for _ in range(2)}
    assert fetched == {print_key_string(past.mid), print_key_string(later.mid)}


async def test_messages_are_fetched_in_the_order_in_which_they_are_due(kind: MailboxKind, inbox: str) -> None:
    delays = [4, 1, 3, 2]
    sent = [await enqueued(kind, inbox, delay=number * kind.unit) for number in delays]
    await kind.pass_time(5 * kind.unit)
    fetched = [(await kind.messages.fetch_and_lock_latest(inbox, kind.unit)).mid for _ in sent]
    assert fetched == [sent[place].mid for place in (1, 3, 2, 0)]


async def test_the_message_with_the_smallest_send_when_is_fetched_first(kind: MailboxKind, inbox: str) -> None:
    delays = [timedelta(), timedelta(seconds=-60), timedelta(seconds=-30), timedelta(days=-3_000)]
    sent = [await enqueued(kind, inbox, delay=delay) for delay in delays]
    sent += [await enqueued(kind, inbox, send_when=kind.now() - timedelta(seconds=45))]
    assert [each.send_when for each in sent[:-1]] == [each.received_at + each.delay for each in sent[:-1]]  # type: ignore[operator]  # see above
    fetched = [await kind.messages.fetch_and_lock_latest(inbox, timedelta(hours=1)) for _ in sent]
    assert [each.mid for each in fetched] == [sent[place].mid for place in (3, 1, 4, 2, 0)]
    assert [each.send_when for each in fetched] == [sent[place].send_when for place in (3, 1, 4, 2, 0)]


async def test_rejected_and_expired_messages_keep_their_place(kind: MailboxKind, inbox: str) -> None:
    sent = [await enqueued(kind, inbox) for _ in range(4)]
    first = await kind.messages.fetch_and_lock_latest(inbox, timedelta(hours=1))
    await kind.messages.ack(key_of(first), lock_of(first), AckStatus.REJECTED)
    assert (await kind.messages.fetch_and_lock_latest(inbox, kind.unit)).mid == sent[0].mid
    second = await kind.messages.fetch_and_lock_latest(inbox, timedelta(hours=1))
    assert second.mid == sent[1].mid
    await kind.pass_time(kind.unit)
    # Rejected after the lease of the first one has ended, and sent before those that wait.
    await kind.messages.ack(key_of(second), lock_of(second), AckStatus.REJECTED)
    fetched = [await kind.messages.fetch_and_lock_latest(inbox, timedelta(hours=1)) for _ in sent]
    assert [each.mid for each in fetched] == [each.mid for each in sent]
    assert [each.status for each in fetched[:2]] == [AckStatus.TIMEOUT, AckStatus.REJECTED]


async def test_a_leased_message_is_invisible_to_others(kind: MailboxKind, inbox: str) -> None:
    await enqueued(kind, inbox)
    await kind.messages.fetch_and_lock_latest(inbox, timedelta(hours=1))
    with pytest.raises(NoMessagesError):
        await kind.messages.fetch_and_lock_latest(inbox, kind.unit)
    assert await kind.messages.fetch_headers(inbox, LONG_AGO) == []


async def test_concurrent_fetches_get_different_messages(kind: MailboxKind, inbox: str) -> None:
    sent = {print_key_string((await enqueued(kind, inbox)).mid) for _ in range(30)}
    fetches = (kind.messages.fetch_and_lock_latest(inbox, timedelta(hours=1)) for _ in range(40))
    outcomes = await asyncio.gather(*fetches, return_exceptions=True)
    fetched = [each for each in outcomes if isinstance(each, Message)]
    assert {print_key_string(each.mid) for each in fetched} == sent
    assert len({print_key_string(each.lid) for each in fetched}) == len(fetched) == 30
    assert sum(isinstance(each, NoMessagesError) for each in outcomes) == 10


async def test_a_lease_that_ends_makes_the_message_available_again(kind: MailboxKind, inbox: str) -> None:
    await enqueued(kind, inbox)
    first = await kind.messages.fetch_and_lock_latest(inbox, kind.unit)
    await kind.pass_time(kind.unit)
    with pytest.raises(StaleLockError, match="unable to change status"):
        await kind.messages.ack(key_of(first), lock_of(first), AckStatus.CONFIRMED)
    [header] = await kind.messages.fetch_headers(inbox, LONG_AGO)
    assert (header.mid, header.lid, header.status, header.delivery_count) == (first.mid, None, AckStatus.TIMEOUT, 1)
    second = await kind.messages.fetch_and_lock_latest(inbox, kind.unit)
    assert (second.mid, second.status, second.delivery_count) == (first.mid, AckStatus.TIMEOUT, 1)
    assert second.lid != first.lid
    with pytest.raises(StaleLockError):
        await kind.messages.ack(key_of(first), lock_of(first), AckStatus.CONFIRMED)
    await kind.messages.ack(key_of(second), lock_of(second), AckStatus.CONFIRMED)


async def test_releasing_leases_keeps_those_that_are_valid(kind: MailboxKind, inbox: str) -> None:
    await enqueued(kind, inbox)
    fetched = await kind.messages.fetch_and_lock_latest(inbox, 2 * kind.unit)
    await kind.messages.reenqueue(kind.now() + timedelta(days=1))
    with pytest.raises(NoMessagesError):
        await kind.messages.fetch_and_lock_latest(inbox, kind.unit)
    await kind.pass_time(2 * kind.unit)
    await kind.messages.reenqueue(kind.now())
    assert (await kind.messages.fetch_and_lock_latest(inbox, kind.unit)).mid == fetched.mid


# ---------------------------------------------------------------------------------------------------- acknowledgements


async def test_a_rejected_message_is_available_at_once(kind: MailboxKind, inbox: str) -> None:
    await enqueued(kind, inbox)
    for count in range(3):
        fetched = await kind.messages.fetch_and_lock_latest(inbox, kind.unit)
        status = AckStatus.REJECTED if count else AckStatus.NOT_DELIVERED
        assert (fetched.status, fetched.delivery_count) == (status, count)
        await kind.messages.ack(key_of(fetched), lock_of(fetched), AckStatus.REJECTED)
        [header] = await kind.messages.fetch_headers(inbox, LONG_AGO)
        assert (header.status, header.delivery_count) == (AckStatus.REJECTED, count + 1)
        with pytest.raises(StaleLockError):
            await kind.messages.ack(key_of(fetched), lock_of(fetched), AckStatus.CONFIRMED)


async def test_a_lease_that_ends_after_a_rejection_is_a_timeout(kind: MailboxKind, inbox: str) -> None:
    await enqueued(kind, inbox)
    fetched = await kind.messages.fetch_and_lock_latest(inbox, kind.unit)
    await kind.messages.ack(key_of(fetched), lock_of(fetched), AckStatus.REJECTED)
    await kind.messages.fetch_and_lock_latest(inbox, kind.unit)
    await kind.pass_time(kind.unit)
    assert (await kind.messages.fetch_and_lock_latest(inbox, kind.unit)).status == AckStatus.TIMEOUT


async def test_a_confirmed_message_never_returns(kind: MailboxKind, inbox: str) -> None:
    sent = await enqueued(kind, inbox)
    fetched = await kind.messages.fetch_and_lock_latest(inbox, kind.unit)
    await kind.messages.ack(key_of(fetched), lock_of(fetched), AckStatus.CONFIRMED)
    for _ in range(2):
        with pytest.raises(NoMessagesError):
            await kind.messages.fetch_and_lock_latest(inbox, kind.unit)
        assert await kind.messages.fetch_headers(inbox, LONG_AGO) == []
        for status in (AckStatus.CONFIRMED, AckStatus.REJECTED):
            with pytest.raises(StaleLockError):
                await kind.messages.ack(key_of(sent), lock_of(fetched), status)
        await kind.pass_time(2 * kind.unit)


@pytest.mark.parametrize("status", [AckStatus.TIMEOUT, AckStatus.NOT_DELIVERED, 0, 3, 33])
async def test_other_statuses_are_refused_and_keep_the_lease(kind: MailboxKind, inbox: str, status: int) -> None:
    await enqueued(kind, inbox)
    fetched = await kind.messages.fetch_and_lock_latest(inbox, timedelta(hours=1))
    with pytest.raises(UnableToChangeStatusError, match="unable to change status"):
        await kind.messages.ack(key_of(fetched), lock_of(fetched), status)
    await kind.messages.ack(key_of(fetched), lock_of(fetched), AckStatus.CONFIRMED)


async def test_a_lock_belongs_to_its_message(kind: MailboxKind, inbox: str) -> None:
    await enqueued(kind, inbox)
    await enqueued(kind, inbox)
    first, second = [await kind.messages.fetch_and_lock_latest(inbox, timedelta(hours=1)) for _ in range(2)]
    for mid, lid in (
        (key_of(first), lock_of(second)),
        (key_of(first), SHA1Key()),
        (SHA1Key(), lock_of(first)),
    ):
        with pytest.raises(StaleLockError):
            await kind.messages.ack(mid, lid, AckStatus.CONFIRMED)
    await kind.messages.ack(key_of(first), lock_of(first), AckStatus.CONFIRMED)
    await kind.messages.ack(key_of(second), lock_of(second), AckStatus.CONFIRMED)


async def test_no_lock_id_acknowledges_a_message_without_a_lease(kind: MailboxKind, inbox: str) -> None:
    sent = await enqueued(kind, inbox)
    with pytest.raises(StaleLockError):
        await kind.messages.ack(key_of(sent), SHA1Key(), AckStatus.CONFIRMED)


async def test_a_message_is_accepted_once(kind: MailboxKind, inbox: str) -> None:
    sent = await enqueued(kind, inbox)

    async def is_refused() -> bool:
        with pytest.raises(DuplicateMessageError) as caught:
            await kind.messages.enqueue(Message(body=sent.body))
        return caught.value.mid == print_key_string(sent.mid)

    assert await is_refused()
    fetched = await kind.messages.fetch_and_lock_latest(inbox, timedelta(hours=1))
    assert await is_refused()
    await kind.messages.ack(key_of(fetched), lock_of(fetched), AckStatus.REJECTED)
    assert await is_refused()
    fetched = await kind.messages.fetch_and_lock_latest(inbox, timedelta(hours=1))
    await kind.messages.ack(key_of(fetched), lock_of(fetched), AckStatus.CONFIRMED)
    assert await is_refused()


# ---------------------------------------------------------------------------------------------------- mailboxes


async def test_an_unknown_mailbox_is_reported(kind: MailboxKind, inbox: str) -> None:
    with pytest.raises(SenderNotFoundError, match="sender not found"):
        await kind.messages.fetch_and_lock_latest(inbox, kind.unit)
    with pytest.raises(SenderNotFoundError):
        await kind.messages.fetch_headers(inbox, LONG_AGO)


async def test_a_mailbox_that_only_sent_is_empty(kind: MailboxKind, inbox: str) -> None:
    sender = new_mailbox("sender")
    message = new_message(inbox)
    message.set_sender(sender)
    await kind.messages.enqueue(message)
    with pytest.raises(NoMessagesError, match="no messages at this moment"):
        await kind.messages.fetch_and_lock_latest(sender, kind.unit)
    assert await kind.messages.fetch_headers(sender, LONG_AGO) == []


async def test_a_sender_can_receive(kind: MailboxKind, inbox: str) -> None:
    message = new_message(inbox)
    message.set_sender(inbox)
    await kind.messages.enqueue(message)
    assert (await kind.messages.fetch_and_lock_latest(inbox, kind.unit)).mid == message.mid


@pytest.mark.parametrize(("name", "error"), INVALID_NAMES)
async def test_invalid_names_are_refused(kind: MailboxKind, inbox: str, name: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        await kind.messages.enqueue(new_message(name))
    message = new_message(inbox)
    message.set_sender(name)
    with pytest.raises(error):
        await kind.messages.enqueue(message)
    with pytest.raises(error):
        await kind.messages.fetch_and_lock_latest(name, kind.unit)
    with pytest.raises(error):
        await kind.messages.fetch_headers(name, LONG_AGO)
    with pytest.raises(SenderNotFoundError):
        await kind.messages.fetch_and_lock_latest(inbox, kind.unit)


async def test_a_name_may_have_256_bytes_and_any_characters(kind: MailboxKind) -> None:
    for name in ("é" * 126 + f"{next(NUMBERS):04}", f"olá mundo/%+&= {next(NUMBERS)}"):
        sent = await enqueued(kind, name)
        assert (await kind.messages.fetch_and_lock_latest(name, kind.unit)).mid == sent.mid


async def test_headers_are_listed_in_the_order_of_their_receipt(kind: MailboxKind, inbox: str) -> None:
    sent = []
    for number in range(4):
        sent.append(await enqueued(kind, inbox, delay=-number * kind.unit))
        await kind.pass_time(kind.unit)
    headers = await kind.messages.fetch_headers(inbox, LONG_AGO)
    assert [header.mid for header in headers] == [message.mid for message in sent]
    assert [header.received_at for header in headers] == [message.received_at for message in sent]
    assert {(header.lid, header.leased_until, header.fetch_time) for header in headers} == {(None, None, None)}
    assert [header.body for header in headers] == [{}] * 4
    assert [header.mid for header in await kind.messages.fetch_headers(inbox, LONG_AGO, 2)] == [
        sent[0].mid, sent[1].mid,
    ]  # fmt: skip
    assert await kind.messages.fetch_headers(inbox, LONG_AGO, 0) == []
    assert sent[1].received_at is not None
    after = await kind.messages.fetch_headers(inbox, sent[1].received_at)
    assert [header.mid for header in after] == [sent[2].mid, sent[3].mid]


async def test_headers_are_at_most_ten_by_default(kind: MailboxKind, inbox: str) -> None:
    for _ in range(11):
        await enqueued(kind, inbox)
    assert len(await kind.messages.fetch_headers(inbox, LONG_AGO)) == 10
    assert len(await kind.messages.fetch_headers(inbox, LONG_AGO, 20)) == 11


# ---------------------------------------------------------------------------------------------------- the server


async def test_a_message_is_sent_listed_fetched_and_confirmed(kind: MailboxKind, inbox: str) -> None:
    sent = await send(kind, inbox, "olá", -5 * kind.unit)
    writer = SHA1KeyWriter()
    writer.write(encode_values(sent.body))
    assert sent.mid == writer.key()
    assert sent.delay == -5 * kind.unit
    [header] = await kind.server.fetch_headers(inbox, kind.now() - timedelta(minutes=1))
    assert (header.mid, header.body) == (sent.mid, {})
    fetched = await kind.server.fetch_latest(inbox, timedelta(minutes=5))
    assert (fetched.mid, fetched.body, fetched.valid_body()) == (sent.mid, sent.body, True)
    assert (fetched.sender(), fetched.receiver(), fetched.get("topic")) == ("a@local", inbox, "olá")
    assert fetched.get("p-server") == "Pandora-Default-Server"
    await kind.server.ack(key_of(fetched), lock_of(fetched), AckStatus.CONFIRMED)
    with pytest.raises(NoMessagesError):
        await kind.server.fetch_latest(inbox, timedelta(minutes=5))


@pytest.mark.parametrize("lease", [timedelta(), timedelta(seconds=-1)])
async def test_a_lease_of_zero_or_less_is_one_of_five_minutes(kind: MailboxKind, inbox: str, lease: timedelta) -> None:
    await send(kind, inbox)
    fetched = await kind.server.fetch_latest(inbox, lease)
    assert fetched.fetch_time is not None
    assert fetched.leased_until == fetched.fetch_time + timedelta(minutes=5)


async def test_a_body_is_kept_while_its_message_is_not_confirmed(kind: MailboxKind, inbox: str) -> None:
    sent = await send(kind, inbox)
    for _ in range(2):
        await kind.pass_time(kind.grace_period + kind.unit)
        fetched = await kind.server.fetch_latest(inbox, kind.unit)
        assert fetched.body == sent.body
        await kind.server.ack(key_of(fetched), lock_of(fetched), AckStatus.REJECTED)
    fetched = await kind.server.fetch_latest(inbox, kind.unit)
    await kind.server.ack(key_of(fetched), lock_of(fetched), AckStatus.CONFIRMED)
    assert await kind.blobs.get_data(key_of(sent)) is not None
    await kind.pass_time(kind.grace_period)
    assert await is_collected(kind, key_of(sent))


async def test_a_message_that_is_sent_twice_is_refused_and_keeps_one_reference(kind: MailboxKind, inbox: str) -> None:
    body = {"number": str(next(NUMBERS))}
    sent = await kind.server.send("a@local", inbox, NO_DELAY, LONG_AGO, body)
    for _ in range(2):
        with pytest.raises(DuplicateMessageError, match="was sent before"):
            await kind.server.send("a@local", inbox, NO_DELAY, LONG_AGO, body)
    await kind.pass_time(kind.grace_period + kind.unit)
    fetched = await kind.server.fetch_latest(inbox, kind.unit)
    assert (fetched.mid, fetched.body) == (sent.mid, sent.body)
    await kind.server.ack(key_of(fetched), lock_of(fetched), AckStatus.CONFIRMED)
    with pytest.raises(DuplicateMessageError):
        await kind.server.send("a@local", inbox, NO_DELAY, LONG_AGO, body)
    await kind.pass_time(kind.grace_period)
    assert await is_collected(kind, key_of(sent))
    later = await kind.server.send("a@local", inbox, NO_DELAY, LONG_AGO + timedelta(microseconds=1), body)
    assert later.mid != sent.mid


async def test_a_message_without_its_body_is_returned_and_stays_leased(kind: MailboxKind, inbox: str) -> None:
    sent = await enqueued(kind, inbox)
    fetched = await kind.server.fetch_latest(inbox, timedelta(hours=1))
    assert (fetched.mid, fetched.body, fetched.valid_body()) == (sent.mid, {}, False)
    assert isinstance(fetched.body_error, BlobNotFoundError)
    with pytest.raises(NoMessagesError):
        await kind.server.fetch_latest(inbox, timedelta(hours=1))
    await kind.server.ack(key_of(fetched), lock_of(fetched), AckStatus.CONFIRMED)


async def test_a_body_has_at_most_4096_bytes(kind: MailboxKind, inbox: str) -> None:
    used = len(encode_values((await send(kind, inbox, "")).body))
    await kind.server.send("a@local", inbox, NO_DELAY, kind.now(), {"topic": "x" * (4096 - used)})
    with pytest.raises(MessageTooBigError, match="max size is 4096") as caught:
        await kind.server.send("a@local", inbox, NO_DELAY, kind.now(), {"topic": "y" * (4097 - used)})
    assert (caught.value.size_bytes, caught.value.max_bytes) == (4097, 4096)
    assert len(await kind.server.fetch_headers(inbox, LONG_AGO)) == 2


@pytest.mark.parametrize(("name", "error"), INVALID_NAMES)
async def test_sending_needs_valid_names_and_a_body(
    kind: MailboxKind, inbox: str, name: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await kind.server.send(name, inbox, NO_DELAY, kind.now(), {})
    with pytest.raises(error):
        await kind.server.send(inbox, name, NO_DELAY, kind.now(), {})
    with pytest.raises(NilBodyError, match="body is nil"):
        await kind.server.send("a@local", inbox, NO_DELAY, kind.now(), None)
    with pytest.raises(SenderNotFoundError):
        await kind.server.fetch_latest(inbox, kind.unit)


async def test_a_body_is_written_under_the_id_of_its_message(kind: MailboxKind, inbox: str) -> None:
    message = new_message(inbox)
    await kind.server.write_blob(message)
    written = message.mid
    message.calculate_mid()
    assert written == message.mid
    assert await kind.blobs.get_data(key_of(message)) == encode_values(message.body)
