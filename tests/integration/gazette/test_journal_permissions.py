"""Grants name journals, and hold for every call on the channel of a journal.

Method: a server with authentication, and clients whose tokens have one permission each.
"""

from contextlib import aclosing
from pathlib import Path

import pytest

import tidelog
from tidelog import AsyncClient, PermissionDeniedError
from tidelog.journals.types import JournalDelete, JournalSpec, JournalUpsert
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.fixtures import secured_with
from tidelog_testing.servers.secured import ONCE, Secured, secured_server

MINE, THEIRS = "mine/topic/part-000", "theirs/topic/part-000"
secured = secured_with()


async def created(secured: Secured) -> tuple[JournalSpec, JournalSpec]:
    """Create both journals, with a frame each."""
    async with secured.client() as client:
        mine, theirs = await client.journals.apply([JournalUpsert(MINE), JournalUpsert(THEIRS)])
        for journal in (mine, theirs):
            await client.append(f"{journal.channel}/0", b"frame\n")
    return mine, theirs


async def with_grants(secured: Secured, *grants: str) -> AsyncClient:
    return secured.client(await secured.token(*grants))


async def listed(client: AsyncClient) -> list[str]:
    return [journal.name for journal in (await client.journals.list()).journals]


async def test_an_appender_only_appends(secured: Secured) -> None:
    mine, theirs = await created(secured)
    async with await with_grants(secured, "journal.append:mine/*") as client:
        assert (await client.append(f"{mine.channel}/0", b"more\n")).first_tick
        async with client.producer(f"{mine.channel}/0") as producer:
            await (await producer.send(b"numbered\n"))
        async with client.txn() as txn:
            await txn.append(f"{mine.channel}/0", [b"together\n"])
        for refused in (
            client.append(f"{theirs.channel}/0", b"no\n"),
            client.append("_journal.999/0", b"no\n"),
            payloads(client, f"{mine.channel}/0"),
            client.trim(f"{mine.channel}/0", everything=True),
            client.alter_channels([mine.channel], retention={"bytes": 1}),
            client.broadcast(f"{mine.channel}/0", b"no\n"),
            client.create_group("readers", mine.channel),
            client.journals.apply([JournalUpsert(MINE)]),
            client.append("orders/0", b"no\n"),
        ):
            with pytest.raises(PermissionDeniedError):
                await refused
        assert await listed(client) == [MINE]


async def test_a_reader_only_reads(secured: Secured) -> None:
    mine, theirs = await created(secured)
    async with await with_grants(secured, f"journal.read:{MINE}", "group.manage:*", "group.consume:*") as client:
        assert await payloads(client, f"{mine.channel}/0") == [b"frame\n"]
        assert [each.name for each in await client.describe_channels([mine.channel])] == [mine.channel]
        assert list(await client.locate_channels([mine.channel])) == [mine.channel]
        assert [each.name async for each in client.list_channels(include_system=True)] == [mine.channel]
        await client.create_group("readers", mine.channel)
        async with client.consumer("readers", mine.channel) as consumer:
            assert (await anext(consumer)).payloads == [b"frame\n"]
        for refused in (
            client.append(f"{mine.channel}/0", b"no\n"),
            payloads(client, f"{theirs.channel}/0"),
            client.describe_channels([theirs.channel]),
            client.latest_mvcc_tick(f"{theirs.channel}/0"),
            client.create_group("others", theirs.channel),
            payloads(client, "_audit/0"),
            client.journals.apply([JournalDelete(MINE)]),
        ):
            with pytest.raises(PermissionDeniedError):
                await refused


async def test_who_applies_creates_trims_and_deletes_below_a_path(secured: Secured) -> None:
    mine, theirs = await created(secured)
    async with await with_grants(secured, "journal.apply:mine/*") as client:
        assert await client.trim(f"{mine.channel}/0", everything=True)
        (altered,) = await client.alter_channels([mine.channel], retention=tidelog.Retention(bytes=1 << 20))
        assert altered.retention == tidelog.Retention(bytes=1 << 20)
        await client.journals.apply([JournalUpsert("mine/other"), JournalDelete(MINE)])
        for refused in (
            client.journals.apply([JournalUpsert("mine/another"), JournalUpsert(THEIRS)]),
            client.journals.apply([JournalUpsert("mine")]),
            client.trim(f"{theirs.channel}/0", everything=True),
            payloads(client, f"{mine.channel}/0"),
        ):
            with pytest.raises(PermissionDeniedError):
                await refused
        assert await listed(client) == ["mine/other"]


async def test_administrators_have_no_access_to_frames(secured: Secured) -> None:
    mine, _ = await created(secured)
    async with await with_grants(secured, "admin.read", "admin.write", "read:*", "append:*") as client:
        assert await listed(client) == []
        assert [each.name async for each in client.list_channels("_journal.")] == []
        for refused in (
            payloads(client, f"{mine.channel}/0"),
            client.append(f"{mine.channel}/0", b"no\n"),
            client.trim(f"{mine.channel}/0", everything=True),
        ):
            with pytest.raises(PermissionDeniedError) as denied:
                await refused
            assert denied.value.values["verb"].startswith("journal.")


async def test_a_watch_yields_visible_journals_only(secured: Secured) -> None:
    await created(secured)
    async with (
        secured.client() as admin,
        await with_grants(secured, "journal.list:mine/*") as client,
        aclosing(client.journals.watch()) as watched,
    ):
        assert [journal.name for journal in (await anext(watched)).journals] == [MINE]
        await admin.journals.apply([JournalUpsert("theirs/other"), JournalUpsert("mine/other")])
        assert [journal.name for journal in (await anext(watched)).journals] == ["mine/other", MINE]


async def test_channels_of_journals_count_to_the_share_of_a_principal(tmp_path: Path) -> None:
    names = [f"many/journals/{number:03}" for number in range(120)]
    async with (
        secured_server(tmp_path, limits__max_principal_percent=1) as secured,
        secured.client(retry=ONCE) as client,
    ):
        await client.journals.apply([JournalUpsert(name) for name in names[:60]])
        with pytest.raises(tidelog.OverloadedError, match="this principal uses 60 channels"):
            await client.journals.apply([JournalUpsert(name) for name in names[60:]])
        assert await listed(client) == names[:60]
        # A deleted journal no longer counts.
        await client.journals.apply([JournalDelete(name) for name in names[:60]])
        await client.journals.apply([JournalUpsert(name) for name in names[60:]])


async def test_changes_are_audited(secured: Secured) -> None:
    await created(secured)
    async with secured.client() as client:
        events = await payloads(client, "_audit/0")
        (event,) = [each for each in events if b"ApplyJournals" in each]
        assert MINE.encode() in event
        assert [each.name async for each in client.list_channels()] == []
        assert [each.name async for each in client.list_channels("_audit")] == ["_audit"]


@pytest.mark.parametrize("pattern", ["", "my", "my/*/part", "my*", "/my/*", "my//*", "*/my", "my.*", "../*"])
async def test_invalid_patterns_are_refused(secured: Secured, pattern: str) -> None:
    with pytest.raises(tidelog.InvalidRequestError, match=r"is not a pattern of journals|is not allowed"):
        await secured.token(f"journal.read:{pattern}")
