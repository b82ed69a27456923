"""Mailboxes are created, configured and deleted with their channels, and the data plane learns of it.

Method: a node on stores in memory, whose metadata the test changes as another node would; a second node on the same
stores for a restart.
"""

from collections.abc import AsyncIterator

import pytest

from tidelog_server.core.callers import NO_TENANT
from tidelog_server.core.errors import DataLossError, InvalidRequestError
from tidelog_server.core.errors.mailboxes import (
    DeadLetterCycleError,
    MailboxAlreadyExistsError,
    MailboxInUseError,
    MailboxNotExistError,
)
from tidelog_server.core.mailboxes import DEFAULT_SETTINGS
from tidelog_server.mailboxes.catalog import MailboxRecord
from tidelog_server.metadata.memory import MemoryMetadataStore, SharedMemory
from tidelog_server.metadata.store import Delete, Put, Watched
from tidelog_server.node.record_check import check_records
from tidelog_server.storage.memory import MemoryLogStore
from tidelog_testing.parts.nodes import Node, running_node


@pytest.fixture
async def node(shared: SharedMemory) -> AsyncIterator[Node]:
    async with running_node(MemoryLogStore(), metadata=MemoryMetadataStore(shared)) as node:
        yield node


async def made(node: Node, name: str, **settings: object) -> MailboxRecord:
    record, is_created = await node.mailboxes.create(name, settings, NO_TENANT)
    assert is_created
    return record


def names(node: Node) -> list[str]:
    return list(node.mailboxes.catalog.names)


async def test_a_mailbox_is_created_found_configured_and_deleted(node: Node) -> None:
    configured, deleted = list[MailboxRecord](), list[MailboxRecord]()
    node.mailboxes.on_configured, node.mailboxes.on_deleted = configured.append, deleted.append
    created = await made(node, "b@remote", lease_ms=5)
    assert created.settings == DEFAULT_SETTINGS.changed(lease_ms=5)
    found, place = node.mailboxes.find("b@remote")
    assert found is created
    assert (place.log.name, place.vchannel.name) == (created.channel, f"{created.channel}/0")

    altered = await node.mailboxes.configure("b@remote", {"max_deliveries": 3})
    assert altered.settings == DEFAULT_SETTINGS.changed(lease_ms=5, max_deliveries=3)
    assert (altered.channel, altered.created_ms) == (created.channel, created.created_ms)
    assert altered.revision > created.revision
    assert node.mailboxes.find("b@remote")[0] is altered
    # No change is no commit.
    assert await node.mailboxes.configure("b@remote", {"lease_ms": 5}) is altered
    assert configured == [altered]

    assert await node.mailboxes.delete("b@remote")
    assert deleted == [altered]
    assert created.channel not in node.directory.logs
    for absent in (node.mailboxes.configure("b@remote", {"lease_ms": 6}), node.mailboxes.delete("b@remote")):
        with pytest.raises(MailboxNotExistError):
            await absent
    with pytest.raises(MailboxNotExistError):
        node.mailboxes.find("b@remote")
    assert not await node.mailboxes.delete("b@remote", ignore_missing=True)
    assert (await made(node, "b@remote")).channel != created.channel


async def test_a_name_is_taken_once(node: Node, shared: SharedMemory) -> None:
    created = await made(node, "jobs", lease_ms=5)
    with pytest.raises(MailboxAlreadyExistsError):
        await node.mailboxes.create("jobs", {}, NO_TENANT)
    assert await node.mailboxes.create("jobs", {"lease_ms": 9}, NO_TENANT, if_not_exists=True) == (created, False)
    # Also one that another node has created.
    elsewhere = MemoryMetadataStore(shared)
    theirs = MailboxRecord("theirs", 99, DEFAULT_SETTINGS, 0)
    await elsewhere.commit([Put(node.mailboxes.catalog.key("theirs"), theirs.encode(), 0)])
    with pytest.raises(MailboxAlreadyExistsError):
        await node.mailboxes.create("theirs", {}, NO_TENANT)


async def test_dead_letters_go_to_a_mailbox_that_exists_and_form_no_cycle(node: Node) -> None:
    await made(node, "dead")
    await made(node, "jobs", dead_letter="dead")
    with pytest.raises(MailboxNotExistError) as missing:
        await node.mailboxes.create("more", {"dead_letter": "missing"}, NO_TENANT)
    assert missing.value.values["name"] == "missing"
    with pytest.raises(DeadLetterCycleError):
        await node.mailboxes.create("more", {"dead_letter": "more"}, NO_TENANT)
    with pytest.raises(MailboxNotExistError):
        await node.mailboxes.configure("jobs", {"dead_letter": "missing"})
    for name, dead_letter in (("dead", "jobs"), ("jobs", "jobs")):
        with pytest.raises(DeadLetterCycleError):
            await node.mailboxes.configure(name, {"dead_letter": dead_letter})
    with pytest.raises(MailboxInUseError) as used:
        await node.mailboxes.delete("dead")
    assert used.value.values["mailbox"] == "jobs"
    assert names(node) == ["dead", "jobs"]

    await node.mailboxes.configure("jobs", {"dead_letter": ""})
    await node.mailboxes.configure("dead", {"dead_letter": "jobs"})
    assert await node.mailboxes.delete("dead")
    assert await node.mailboxes.delete("jobs")
    assert names(node) == []


async def test_invalid_settings_change_nothing(node: Node) -> None:
    created = await made(node, "jobs")
    for changes in ({"lease_ms": 0}, {"max_lease_ms": 1}, {"backoff_ms": (1,) * 33}):
        with pytest.raises(InvalidRequestError):
            await node.mailboxes.create("more", changes, NO_TENANT)
        with pytest.raises(InvalidRequestError):
            await node.mailboxes.configure("jobs", changes)
    assert list(node.mailboxes.catalog.records.values()) == [created]


async def test_a_channel_without_its_mailbox_is_destroyed(node: Node, shared: SharedMemory) -> None:
    kept, gone = await made(node, "kept"), await made(node, "gone")
    # A crash between the commit of a delete and the end of its channel.
    key = node.mailboxes.catalog.key("gone")
    revision = await MemoryMetadataStore(shared).commit([Delete(key, gone.revision)])
    node.mailboxes.catalog.follow(Watched(revision, {}, frozenset((key,))))
    await node.mailboxes.orphans.destroy()
    assert list(node.directory.logs) == [kept.channel]
    assert node.mailboxes.find("kept")[1].log.name == kept.channel


async def test_the_start_check_reports_a_mailbox_without_its_channel() -> None:
    metadata = MemoryMetadataStore()
    await metadata.commit([Put("tidelog/mailbox/jobs", MailboxRecord("jobs", 7, DEFAULT_SETTINGS, 0).encode(), 0)])
    with pytest.raises(DataLossError, match="'jobs' has no record of its channel"):
        await check_records(metadata, "tidelog", {}, [])
