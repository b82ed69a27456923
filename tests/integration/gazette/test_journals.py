"""Journals through the client: applied all or none, listed by selector, watched, and kept across a restart.

Method: a real server, in memory or on a folder that a second one opens again.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

import tidelog
from tidelog.journals.labels import LabelSelector, LabelSet, LabelTerm
from tidelog.journals.types import JournalChange, JournalDelete, JournalSpec, JournalUpsert, ListRequest
from tidelog_server.channels.lifecycle import Lifecycle
from tidelog_server.core.errors import ShutdownError
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.parts.grpc_calls import running_server

NDJSON = LabelSet.of({"content-type": "application/x-ndjson", "topic": "a"})
NAMES = [f"a/topic/part-{number:03}" for number in range(60)]


@pytest.fixture
async def client() -> AsyncIterator[tidelog.AsyncClient]:
    async with running_server() as server, tidelog.AsyncClient(server.grpc_endpoint) as client:
        yield client


async def names(client: tidelog.AsyncClient, *include: LabelTerm, exclude: tuple[LabelTerm, ...] = ()) -> list[str]:
    listed = await client.journals.list(ListRequest(LabelSelector(include, exclude)))
    return [journal.name for journal in listed.journals]


async def test_a_journal_is_created_changed_and_deleted(client: tidelog.AsyncClient) -> None:
    (created,) = await client.journals.apply([JournalUpsert(NAMES[0], NDJSON, expected_revision=0)])
    assert (created.name, created.labels, created.content_type) == (NAMES[0], NDJSON, "application/x-ndjson")
    await client.append(f"{created.channel}/0", [b'{"n":1}\n', b'{"n":2}\n'])

    (altered,) = await client.journals.apply([JournalUpsert(NAMES[0], expected_revision=created.revision)])
    assert altered.channel == created.channel
    assert altered.labels == LabelSet()
    assert altered.revision > created.revision
    assert await payloads(client, f"{created.channel}/0") == [b'{"n":1}\n', b'{"n":2}\n']
    assert (await client.journals.list()).journals == (altered,)

    with pytest.raises(tidelog.JournalRevisionError) as conflict:
        await client.journals.apply([JournalDelete(NAMES[0], created.revision)])
    assert conflict.value.name == NAMES[0]
    assert (conflict.value.expected_revision, conflict.value.revision) == (created.revision, altered.revision)
    assert await client.journals.apply([JournalDelete(NAMES[0], altered.revision)]) == ()
    assert (await client.journals.list()).journals == ()
    with pytest.raises(tidelog.ChannelNotFoundError):
        await client.append(f"{created.channel}/0", b"x")
    (again,) = await client.journals.apply([JournalUpsert(NAMES[0])])
    assert again.channel != created.channel
    assert await payloads(client, f"{again.channel}/0") == []


async def test_changes_are_applied_all_or_none(client: tidelog.AsyncClient) -> None:
    created = await client.journals.apply([JournalUpsert(name, NDJSON) for name in NAMES])
    assert [journal.name for journal in created] == NAMES
    assert len({journal.channel for journal in created}) == len(NAMES)
    changes: list[JournalChange] = [
        JournalDelete(NAMES[0]),
        JournalUpsert("some/other"),
        JournalUpsert(NAMES[1], expected_revision=0),
    ]
    with pytest.raises(tidelog.JournalRevisionError):
        await client.journals.apply(changes)
    assert await names(client) == NAMES

    (other,) = await client.journals.apply(
        [*changes[:2], *(JournalDelete(name, created[0].revision) for name in NAMES[1:59])]
    )
    assert other.name == "some/other"
    assert await names(client) == [NAMES[59], "some/other"]
    assert [channel.name async for channel in client.list_channels("_journal.")] == sorted(
        [created[59].channel, other.channel]
    )
    assert await client.journals.apply([JournalDelete("not/there")]) == ()


async def test_journals_are_selected_by_their_labels(client: tidelog.AsyncClient) -> None:
    await client.journals.apply(
        [
            JournalUpsert("a/topic/part-000", LabelSet.of({"region": ("eu", "us")})),
            JournalUpsert("a/topic/part-001", LabelSet.of({"region": "eu-west", "old": ""})),
            JournalUpsert("b/topic/part-000"),
        ]
    )
    first, second, third = "a/topic/part-000", "a/topic/part-001", "b/topic/part-000"
    assert await names(client) == [first, second, third]
    assert await names(client, LabelTerm("region", "eu")) == [first]
    assert await names(client, LabelTerm("region", "eu", is_prefix=True)) == [first, second]
    assert await names(client, LabelTerm("region")) == [first, second]
    assert await names(client, exclude=(LabelTerm("old"),)) == [first, third]
    assert await names(client, LabelTerm("prefix", "a/topic/")) == [first, second]
    assert await names(client, LabelTerm("name", third), LabelTerm("name", first)) == [first, third]
    assert await names(client, LabelTerm("name", third), LabelTerm("prefix", "a/")) == []


async def test_more_journals_than_a_page_are_listed_and_watched(client: tidelog.AsyncClient) -> None:
    every = [f"many/journals/{number:04}" for number in range(1_080)]
    for begin in range(0, len(every), 60):
        await client.journals.apply([JournalUpsert(name) for name in every[begin : begin + 60]])
    assert await names(client) == every
    async with aclosing(client.journals.watch()) as watched:
        assert [journal.name for journal in (await anext(watched)).journals] == every


async def test_a_watch_yields_what_the_selector_matches_after_each_change(client: tidelog.AsyncClient) -> None:
    request = ListRequest(LabelSelector((LabelTerm("topic", "a"),)))
    async with aclosing(client.journals.watch(request)) as watched:
        assert (await anext(watched)).journals == ()
        (created,) = await client.journals.apply([JournalUpsert(NAMES[0], NDJSON)])
        assert (await anext(watched)).journals == (created,)
        await client.journals.apply([JournalUpsert(NAMES[1])])
        await client.journals.apply([JournalUpsert(NAMES[0])])
        assert (await anext(watched)).journals == ()
        (again,) = await client.journals.apply([JournalUpsert(NAMES[1], NDJSON), JournalDelete(NAMES[0])])
        assert (await anext(watched)).journals == (again,)
        assert await client.journals.apply([JournalDelete(NAMES[1])]) == ()
        assert (await anext(watched)).journals == ()


async def test_lists_of_channels_hide_those_of_journals(client: tidelog.AsyncClient) -> None:
    (journal,) = await client.journals.apply([JournalUpsert(NAMES[0])])
    await client.create_channel("orders")
    assert [each.name async for each in client.list_channels()] == ["orders"]
    assert [each.name async for each in client.list_channels(include_system=True)] == [journal.channel, "orders"]
    (described,) = await client.describe_channels([journal.channel])
    assert [vchannel.name for vchannel in described.vchannels] == [f"{journal.channel}/0"]


async def test_only_the_server_creates_and_destroys_channels_of_journals(client: tidelog.AsyncClient) -> None:
    (journal,) = await client.journals.apply([JournalUpsert(NAMES[0])])
    for name in (journal.channel, "_journal.999"):
        with pytest.raises(tidelog.InvalidRequestError, match="reserved"):
            await client.create_channel(name)
        with pytest.raises(tidelog.InvalidRequestError, match="reserved"):
            await client.destroy_channels([name])


async def test_retention_trim_groups_and_transactions_apply_as_to_channels(client: tidelog.AsyncClient) -> None:
    (journal,) = await client.journals.apply([JournalUpsert(NAMES[0])])
    vchannel = f"{journal.channel}/0"
    (altered,) = await client.alter_channels([journal.channel], retention=tidelog.Retention(bytes=1 << 20))
    assert altered.retention == tidelog.Retention(bytes=1 << 20)
    async with client.txn() as txn:
        await txn.append(vchannel, [b"1\n", b"2\n"])
    await client.create_group("readers", journal.channel)
    async with client.consumer("readers", journal.channel) as consumer:
        assert (await anext(consumer)).payloads == [b"1\n", b"2\n"]
        # A delete ends the use by members.
        await client.trim(vchannel, everything=True)
        assert await payloads(client, vchannel) == []
        await client.journals.apply([JournalDelete(NAMES[0])])
    assert (await client.describe_group("readers")).positions == {}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ([], "0 changes, expected 1 to 60"),
        ([JournalUpsert(f"a/topic/{number}") for number in range(61)], "61 changes"),
        ([JournalUpsert(NAMES[0]), JournalDelete(NAMES[0])], "a journal twice"),
        ([JournalUpsert("a/b")], "4 to 512"),
        ([JournalUpsert("a//b")], "clean relative path"),
        ([JournalDelete(NAMES[0], 0)], "expected_revision of a delete is 0"),
        ([JournalUpsert(NAMES[0], expected_revision=-2)], "expected_revision is -2"),
        ([JournalUpsert(NAMES[0], LabelSet.of({"name": "x"}))], "is reserved"),
    ],
)
async def test_invalid_changes_are_refused(
    client: tidelog.AsyncClient, changes: list[JournalUpsert | JournalDelete], problem: str
) -> None:
    with pytest.raises(tidelog.InvalidRequestError, match=problem):
        await client.journals.apply(changes)
    assert (await client.journals.list()).journals == ()


async def test_a_selector_with_too_many_terms_is_refused(client: tidelog.AsyncClient) -> None:
    request = ListRequest(LabelSelector((LabelTerm("topic"),) * 257))
    with pytest.raises(tidelog.InvalidRequestError, match="257 terms"):
        await client.journals.list(request)
    with pytest.raises(tidelog.InvalidRequestError, match="257 terms"):
        await anext(client.journals.watch(request))


async def test_journals_and_their_frames_are_there_after_a_restart(tmp_path: Path) -> None:
    listed: tuple[JournalSpec, ...] = ()
    for begins in (True, False, False):
        async with running_server(tmp_path / "log") as server, tidelog.AsyncClient(server.grpc_endpoint) as client:
            if begins:
                listed = await client.journals.apply([JournalUpsert(name, NDJSON) for name in NAMES[:3]])
                await client.journals.apply([JournalDelete(NAMES[1])])
                listed = (listed[0], listed[2])
            for journal in listed:
                await client.append(f"{journal.channel}/0", b"frame\n")
            assert (await client.journals.list()).journals == listed
            found = [each.name async for each in client.list_channels(include_system=True)]
            assert found == sorted(journal.channel for journal in listed)
    async with running_server(tmp_path / "log") as server, tidelog.AsyncClient(server.grpc_endpoint) as client:
        for journal in listed:
            assert await payloads(client, f"{journal.channel}/0") == [b"frame\n"] * 3


@pytest.mark.parametrize("collector", ["the next start", "the next delete"])
async def test_a_delete_succeeds_even_if_its_channel_cannot_be_destroyed_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collector: str
) -> None:
    async def refuse(*_: object, **__: object) -> list[str]:
        raise ShutdownError

    async with running_server(tmp_path / "log") as server, tidelog.AsyncClient(server.grpc_endpoint) as client:
        deleted, other = await client.journals.apply([JournalUpsert(name) for name in NAMES[:2]])
        with monkeypatch.context() as patched:
            patched.setattr(Lifecycle, "destroy", refuse)
            # With its revision: a second attempt, by the client after an error, would not find it.
            assert await client.journals.apply([JournalDelete(deleted.name, deleted.revision)]) == ()
        assert await names(client) == [other.name]
        assert len([each async for each in client.list_channels("_journal.")]) == 2
        if collector == "the next delete":
            await client.journals.apply([JournalDelete(other.name)])
            assert [each async for each in client.list_channels("_journal.")] == []
    async with running_server(tmp_path / "log") as server, tidelog.AsyncClient(server.grpc_endpoint) as client:
        left = {each.channel for each in (await client.journals.list()).journals}
        assert {each.name async for each in client.list_channels("_journal.")} == left


def test_the_synchronous_client_has_the_same_calls(tidelog_client: tidelog.Client) -> None:
    journals = tidelog_client.journals
    (created,) = journals.apply([JournalUpsert(NAMES[0], NDJSON)])
    assert journals.list().journals == (created,)
    watched = journals.watch()
    assert next(watched).journals == (created,)
    journals.apply([JournalDelete(NAMES[0])])
    assert next(watched).journals == ()
