"""Mailboxes through the client: created, configured, described, listed and deleted.

Method: a real server, in memory or on a folder that a second one opens again; both clients.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import tidelog
from tidelog import MailboxSettings
from tidelog_server.core.mailboxes import DEFAULT_SETTINGS
from tidelog_testing.parts.grpc_calls import running_server

NAMES = ["b@remote", "orders/eu", "orders/us", "größe: 1", "_mailbox.1", "*"]


@pytest.fixture
async def client() -> AsyncIterator[tidelog.AsyncClient]:
    async with running_server() as server, tidelog.AsyncClient(server.grpc_endpoint) as client:
        yield client


async def names(client: tidelog.AsyncClient, prefix: str = "") -> list[str]:
    return [mailbox.name for mailbox in await client.mailboxes.list(prefix)]


async def test_settings_have_defaults_and_are_changed_one_by_one(client: tidelog.AsyncClient) -> None:
    dead = await client.mailboxes.create("dead")
    for field in MailboxSettings.__dataclass_fields__:
        assert getattr(dead.settings, field) == getattr(DEFAULT_SETTINGS, field), field
    wanted = MailboxSettings(
        lease_ms=1, max_lease_ms=2, max_deliveries=3, dead_letter="dead", backoff_ms=(4, 5), delay_ms=6, ttl_ms=7,
        dedup_window_ms=8_000, max_in_flight=9, max_messages=10, max_body_bytes=11,
    )  # fmt: skip
    created = await client.mailboxes.create("jobs", wanted)
    assert created.settings == wanted
    assert created.channel != dead.channel
    assert await client.mailboxes.list() == (dead, created)

    altered = await client.mailboxes.configure("jobs", MailboxSettings(backoff_ms=(), delay_ms=0, dead_letter=""))
    assert altered.revision > created.revision
    assert altered.settings.backoff_ms == ()
    assert (altered.settings.delay_ms, altered.settings.dead_letter, altered.settings.lease_ms) == (0, "", 1)
    described = await client.mailboxes.describe("jobs")
    assert (described.settings, described.channel) == (altered.settings, created.channel)
    assert described.created_time_ms == created.created_time_ms


async def test_any_text_is_a_name(client: tidelog.AsyncClient) -> None:
    for name in NAMES:
        assert (await client.mailboxes.create(name)).name == name
    assert await names(client) == sorted(NAMES)
    assert await names(client, "orders/") == ["orders/eu", "orders/us"]
    for name in NAMES:
        assert (await client.mailboxes.describe(name)).name == name
        assert await client.mailboxes.delete(name)
    assert await names(client) == []
    assert [each.name async for each in client.list_channels(include_system=True)] == []


@pytest.mark.parametrize("name", ["", "a\n", "\x00", "a" * 257, "ä" * 129])
async def test_invalid_names_are_refused(client: tidelog.AsyncClient, name: str) -> None:
    for refused in (
        client.mailboxes.create(name),
        client.mailboxes.configure(name, MailboxSettings(lease_ms=1)),
        client.mailboxes.describe(name),
        client.mailboxes.delete(name, ignore_missing=True),
        client.mailboxes.create("jobs", MailboxSettings(dead_letter=name or "\n")),
    ):
        with pytest.raises(tidelog.InvalidRequestError):
            await refused
    assert await names(client) == []


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (MailboxSettings(lease_ms=0), "lease_ms is 0"),
        (MailboxSettings(lease_ms=-1), "lease_ms is -1"),
        (MailboxSettings(max_lease_ms=604_800_001), "max_lease_ms is 604800001"),
        (MailboxSettings(lease_ms=2, max_lease_ms=1), "at most max_lease_ms"),
        (MailboxSettings(max_deliveries=1_001), "max_deliveries is 1001"),
        (MailboxSettings(backoff_ms=(-1,)), "backoff is -1"),
        (MailboxSettings(backoff_ms=(1,) * 33), "33 delays"),
        (MailboxSettings(delay_ms=-1), "delay_ms is -1"),
        (MailboxSettings(ttl_ms=31_622_400_001), "ttl_ms is 31622400001"),
        (MailboxSettings(dedup_window_ms=999), "dedup_window_ms is 999"),
        (MailboxSettings(max_in_flight=0), "max_in_flight is 0"),
        (MailboxSettings(max_messages=10_000_001), "max_messages is 10000001"),
        (MailboxSettings(max_body_bytes=0), "max_body_bytes is 0"),
    ],
)
async def test_invalid_settings_are_refused(
    client: tidelog.AsyncClient, settings: MailboxSettings, problem: str
) -> None:
    created = await client.mailboxes.create("jobs")
    for refused in (client.mailboxes.create("more", settings), client.mailboxes.configure("jobs", settings)):
        with pytest.raises(tidelog.InvalidRequestError, match=problem):
            await refused
    assert await client.mailboxes.list() == (created,)


async def test_each_refusal_has_its_error(client: tidelog.AsyncClient) -> None:
    await client.mailboxes.create("dead")
    created = await client.mailboxes.create("jobs", MailboxSettings(dead_letter="dead"))
    with pytest.raises(tidelog.MailboxAlreadyExistsError) as taken:
        await client.mailboxes.create("jobs")
    assert taken.value.name == "jobs"
    assert await client.mailboxes.create("jobs", MailboxSettings(lease_ms=1), if_not_exists=True) == created
    with pytest.raises(tidelog.DeadLetterCycleError) as cycle:
        await client.mailboxes.configure("dead", MailboxSettings(dead_letter="jobs"))
    assert (cycle.value.name, cycle.value.dead_letter) == ("dead", "jobs")
    with pytest.raises(tidelog.MailboxInUseError) as used:
        await client.mailboxes.delete("dead")
    assert (used.value.name, used.value.mailbox) == ("dead", "jobs")
    for missing in (
        client.mailboxes.describe("missing"),
        client.mailboxes.delete("missing"),
        client.mailboxes.configure("missing", MailboxSettings(lease_ms=1)),
        client.mailboxes.create("more", MailboxSettings(dead_letter="missing")),
    ):
        with pytest.raises(tidelog.MailboxNotFoundError) as unknown:
            await missing
        assert unknown.value.name == "missing"
    assert not await client.mailboxes.delete("missing", ignore_missing=True)
    with pytest.raises(tidelog.InvalidRequestError, match="changes nothing"):
        await client.mailboxes.configure("jobs", MailboxSettings())


async def test_more_mailboxes_than_a_page_are_listed(client: tidelog.AsyncClient) -> None:
    every = [f"many/{number:04}" for number in range(1_010)]
    for name in every:
        await client.mailboxes.create(name)
    assert await names(client) == every
    assert await names(client, "many/100") == every[1_000:]


async def test_only_the_server_changes_the_channel_of_a_mailbox(client: tidelog.AsyncClient) -> None:
    created = await client.mailboxes.create("jobs")
    vchannel = f"{created.channel}/0"
    assert [each.name async for each in client.list_channels()] == []
    assert [each.name async for each in client.list_channels(include_system=True)] == [created.channel]
    (described,) = await client.describe_channels([created.channel])
    assert [each.name for each in described.vchannels] == [vchannel]
    async with client.scan(vchannel) as scan:
        assert [batch async for batch in scan] == []
    await client.create_channel("orders")
    for refused in (
        client.create_channel(created.channel),
        client.create_channel("_mailbox.999"),
        client.destroy_channels([created.channel], force=True),
        client.alter_channels([created.channel], retention=tidelog.Retention(bytes=1)),
        client.append(vchannel, b"no"),
        client.open_producer(vchannel, "mine"),
        client.fence(vchannel, 1),
        client.trim(vchannel, everything=True),
        client.trim(vchannel, tidelog.Tick(1)),
        client.broadcast([vchannel, "orders/0"], b"no"),
        client.create_group("readers", created.channel),
    ):
        with pytest.raises(tidelog.InvalidRequestError, match="reserved"):
            await refused
    with pytest.raises(tidelog.InvalidRequestError, match="reserved"):
        async with client.txn() as txn:
            await txn.append(vchannel, [b"no"])


async def test_an_existing_name_that_is_not_plain_is_used_but_not_created_again(tmp_path: Path) -> None:
    name = "admin\u200b"
    async with running_server(tmp_path) as server, tidelog.AsyncClient(server.grpc_endpoint) as client:
        with pytest.raises(tidelog.InvalidRequestError, match="without format characters"):
            await client.mailboxes.create(name)
        # As an earlier server created it.
        registry = server._node.mailboxes
        await registry._tasks.finish(registry._commit_new(name, DEFAULT_SETTINGS, b""))
    async with running_server(tmp_path) as server, tidelog.AsyncClient(server.grpc_endpoint) as client:
        assert await names(client) == [name]
        assert (await client.mailboxes.create(name, if_not_exists=True)).name == name
        await client.mailbox(name).send(b"x")
        assert [each.body for each in await client.mailbox(name).fetch()] == [b"x"]
        assert await client.mailboxes.delete(name)
        with pytest.raises(tidelog.InvalidRequestError, match="without format characters"):
            await client.mailboxes.create(name)


@pytest.mark.parametrize("group", ["a\u202e", "\x1b[2J", " a", "a\u2028"])
async def test_a_group_that_is_not_plain_is_refused(client: tidelog.AsyncClient, group: str) -> None:
    await client.mailboxes.create("jobs")
    with pytest.raises(tidelog.InvalidRequestError, match="without control or format characters"):
        await client.mailbox("jobs").send(b"x", group=group)
    await client.mailbox("jobs").send(b"x", group="größe 1")


def managed(endpoint: str) -> None:
    with tidelog.Client(endpoint) as client:
        created = client.mailboxes.create("jobs", MailboxSettings(lease_ms=5))
        assert client.mailboxes.list("j") == (created,)
        assert client.mailboxes.configure("jobs", MailboxSettings(lease_ms=6)).settings.lease_ms == 6
        assert client.mailboxes.describe("jobs").channel == created.channel
        assert client.mailboxes.delete("jobs")


async def test_the_synchronous_client_has_the_same_calls() -> None:
    async with running_server() as server:
        await asyncio.to_thread(managed, server.grpc_endpoint)
