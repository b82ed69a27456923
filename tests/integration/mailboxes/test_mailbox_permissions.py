"""Grants name mailboxes, and no grant permits changes of a mailbox's channel.

Method: a server with authentication, and clients whose tokens have one permission each.
"""

from contextlib import aclosing
from pathlib import Path

import grpc.aio
import pytest

import tidelog
from tidelog import AsyncClient, MailboxDescription, MailboxSettings, PermissionDeniedError
from tidelog.journals.types import JournalUpsert
from tidelog.v1 import mailbox_service_pb2 as pb
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.fixtures import secured_with
from tidelog_testing.parts.grpc_calls import Client
from tidelog_testing.servers.secured import ONCE, Secured, secured_server

MINE, THEIRS = "mine/b@remote", "theirs"
secured = secured_with()


@pytest.fixture
async def mine(secured: Secured) -> MailboxDescription:
    """Create both mailboxes, and return the first one."""
    async with secured.client() as client:
        await client.mailboxes.create(THEIRS)
        return await client.mailboxes.create(MINE)


async def with_grants(secured: Secured, *grants: str) -> AsyncClient:
    return secured.client(await secured.token(*grants))


async def listed(client: AsyncClient) -> list[str]:
    return [mailbox.name for mailbox in await client.mailboxes.list()]


async def test_who_manages_a_path_creates_configures_and_deletes_below_it(
    secured: Secured, mine: MailboxDescription
) -> None:
    async with await with_grants(secured, "mailbox.manage:mine/*") as client:
        assert await listed(client) == [MINE]
        altered = await client.mailboxes.configure(MINE, MailboxSettings(lease_ms=5))
        assert (await client.mailboxes.describe(MINE)).settings == altered.settings
        await client.mailboxes.create("mine/other", MailboxSettings(dead_letter=""))
        assert await client.mailboxes.delete("mine/other")
        for refused in (
            client.mailboxes.create("mine"),
            client.mailboxes.create(THEIRS, if_not_exists=True),
            client.mailboxes.configure(THEIRS, MailboxSettings(lease_ms=5)),
            client.mailboxes.describe(THEIRS),
            client.mailboxes.delete(THEIRS),
            client.mailboxes.delete("missing", ignore_missing=True),
            # Dead letters are sent to the other mailbox.
            client.mailboxes.configure(MINE, MailboxSettings(dead_letter=THEIRS)),
            client.mailboxes.create("mine/third", MailboxSettings(dead_letter=MINE)),
        ):
            with pytest.raises(PermissionDeniedError):
                await refused
    async with await with_grants(secured, "mailbox.manage:mine/*", f"mailbox.send:{MINE}") as client:
        await client.mailboxes.create("mine/third", MailboxSettings(dead_letter=MINE))


@pytest.mark.parametrize("verb", ["mailbox.send", "mailbox.receive", "mailbox.read"])
async def test_other_verbs_describe_and_list_only(secured: Secured, mine: MailboxDescription, verb: str) -> None:
    async with await with_grants(secured, f"{verb}:{MINE}") as client:
        assert await listed(client) == [MINE]
        assert (await client.mailboxes.describe(MINE)).channel == mine.channel
        assert list(await client.locate_channels([mine.channel])) == [mine.channel]
        async with aclosing(client.owners_feed()) as feed:
            assert list((await anext(feed)).owners) == [mine.channel]
        for refused in (
            client.mailboxes.create(MINE, if_not_exists=True),
            client.mailboxes.configure(MINE, MailboxSettings(lease_ms=5)),
            client.mailboxes.delete(MINE),
            client.mailboxes.describe(THEIRS),
            client.describe_channels([mine.channel]),
            payloads(client, f"{mine.channel}/0"),
            client.append(f"{mine.channel}/0", b"no"),
        ):
            with pytest.raises(PermissionDeniedError):
                await refused


CALLS = {
    "Send": ("mailbox.send", pb.SendRequest),
    "Fetch": ("mailbox.receive", pb.FetchRequest),
    "AckDeliveries": ("mailbox.receive", pb.AckDeliveriesRequest),
    "Extend": ("mailbox.receive", pb.ExtendRequest),
    "FetchHeaders": ("mailbox.read", pb.FetchHeadersRequest),
    "Peek": ("mailbox.read", pb.PeekRequest),
    "Reenqueue": ("mailbox.manage", pb.ReenqueueRequest),
    "PurgeMailbox": ("mailbox.manage", pb.PurgeMailboxRequest),
    "PauseMailbox": ("mailbox.manage", pb.PauseMailboxRequest),
    "ResumeMailbox": ("mailbox.manage", pb.ResumeMailboxRequest),
}


@pytest.mark.parametrize("method", CALLS)
async def test_each_call_on_messages_needs_its_verb(secured: Secured, mine: MailboxDescription, method: str) -> None:
    needed, request_class = CALLS[method]
    async with secured.channel() as channel:
        call = getattr(Client(channel).mailboxes, method)
        for verb in ("mailbox.send", "mailbox.receive", "mailbox.read", "mailbox.manage"):
            token = await secured.token(f"{verb}:{MINE}")
            for name in (MINE, THEIRS):
                field = "name" if "Mailbox" in method else "mailbox"
                request = request_class(**{field: name})
                try:
                    await call(request, metadata=(("authorization", f"Bearer {token}"),))
                    code = grpc.StatusCode.OK
                except grpc.aio.AioRpcError as error:
                    code = error.code()
                is_permitted = verb == needed and name == MINE
                assert (code is grpc.StatusCode.PERMISSION_DENIED) is not is_permitted, (verb, name, code)


async def test_a_grant_of_another_kind_permits_nothing(secured: Secured, mine: MailboxDescription) -> None:
    grants = ("read:*", "append:*", "txn:*", "channel.truncate:*", "channel.delete:*", "journal.apply:*", "admin.write")
    async with await with_grants(secured, *grants) as client:
        assert await listed(client) == []
        assert [each.name async for each in client.list_channels("_mailbox.")] == []
        for refused in (
            client.mailboxes.describe(MINE),
            client.describe_channels([mine.channel]),
            client.locate_channels([mine.channel]),
            payloads(client, f"{mine.channel}/0"),
            client.trim(f"{mine.channel}/0", everything=True),
        ):
            with pytest.raises(PermissionDeniedError):
                await refused


async def test_administrators_read_the_channel_and_nobody_changes_it(
    secured: Secured, mine: MailboxDescription
) -> None:
    everything = [f"{verb}:*" for verb in ("append", "read", "txn", "broadcast", "channel.truncate", "channel.delete")]
    mailboxes = [f"mailbox.{verb}:*" for verb in ("send", "receive", "read", "manage")]
    grants = [*everything, *mailboxes, "group.manage:*", "retention.hold:*", "admin.read", "admin.write"]
    async with await with_grants(secured, *grants) as client:
        assert await payloads(client, f"{mine.channel}/0") == []
        assert [each.name for each in await client.describe_channels([mine.channel])] == [mine.channel]
        assert mine.channel in [each.name async for each in client.list_channels(include_system=True)]
        await client.latest_mvcc_tick(f"{mine.channel}/0")
        for denied in (
            client.append(f"{mine.channel}/0", b"no"),
            client.open_producer(f"{mine.channel}/0", "mine"),
            client.fence(f"{mine.channel}/0", 1),
            client.trim(f"{mine.channel}/0", everything=True),
            client.alter_channels([mine.channel], retention=tidelog.Retention(bytes=1)),
            client.destroy_channels([mine.channel], force=True),
            client.broadcast(f"{mine.channel}/0", b"no"),
        ):
            with pytest.raises(PermissionDeniedError):
                await denied
        with pytest.raises(tidelog.InvalidRequestError, match="reserved"):
            await client.create_group("readers", mine.channel)


async def test_channels_of_journals_and_mailboxes_count_to_the_share_of_a_principal(tmp_path: Path) -> None:
    async with (
        secured_server(tmp_path, limits__max_principal_percent=1) as secured,
        secured.client(retry=ONCE) as client,
    ):
        names = [f"many/journals/{number:03}" for number in range(99)]
        for part in (names[:60], names[60:]):
            await client.journals.apply([JournalUpsert(name) for name in part])
        await client.mailboxes.create("jobs")
        with pytest.raises(tidelog.OverloadedError, match="this principal uses 100 channels"):
            await client.mailboxes.create("more")
        # A deleted mailbox no longer counts.
        await client.mailboxes.delete("jobs")
        await client.mailboxes.create("more")


async def test_changes_are_audited(secured: Secured, mine: MailboxDescription) -> None:
    async with secured.client() as client:
        await client.mailboxes.configure(MINE, MailboxSettings(lease_ms=5))
        await client.mailboxes.delete(MINE)
        events = await payloads(client, "_audit/0")
        for method in ("CreateMailbox", "ConfigureMailbox", "DeleteMailbox"):
            assert any(method.encode() in event and MINE.encode() in event for event in events), method
