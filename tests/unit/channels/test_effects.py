"""A change of channels that fails after its commit may have happened: its effect is unknown."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tidelog_server.channels.catalog import Owner
from tidelog_server.channels.changes import ChannelChange
from tidelog_server.core.errors import Effect, StorageFailedError
from tidelog_server.core.errors.cluster import MetadataUnavailableError, OwnershipLostError
from tidelog_server.metadata.memory import MemoryMetadataStore
from tidelog_testing.parts.nodes import Node, running_node
from tidelog_testing.parts.stores import LastingStore


def create(node: Node) -> Coroutine[Any, Any, object]:
    return node.lifecycle.create(["b"], 0, 1, Owner(), if_not_exists=False)


def alter(node: Node) -> Coroutine[Any, Any, object]:
    return node.lifecycle.alter(["a"], ChannelChange(vchannels=4))


def destroy(node: Node) -> Coroutine[Any, Any, object]:
    return node.lifecycle.destroy(["a"], ignore_missing=False)


@pytest.mark.parametrize(
    ("change", "commit", "after_start"),
    [
        (create, "create", {"a": 2, "b": 1}),
        (alter, "alter", {"a": 4}),
        (destroy, "mark_destroying", {}),
    ],
)
async def test_the_effect_is_unknown_if_the_log_stops_after_the_commit(
    change: Callable[[Node], Coroutine[Any, Any, object]], commit: str, after_start: dict[str, int]
) -> None:
    store, metadata = LastingStore(), MemoryMetadataStore()
    async with running_node(store, metadata=metadata) as node:
        await node.create("a", 2)
        committing = getattr(node.catalog, commit)

        async def committed(*given: object, **named: object) -> object:
            done = await committing(*given, **named)
            node.log.committer._fail(StorageFailedError("the disk failed"))
            return done

        setattr(node.catalog, commit, committed)
        with pytest.raises(StorageFailedError) as caught:
            await change(node)

        assert caught.value.effect is Effect.UNKNOWN
    async with running_node(store, metadata=metadata) as node:
        assert {name: len(log.vchannels) for name, log in node.directory.logs.items()} == after_start


@pytest.mark.parametrize("failure", [MetadataUnavailableError("it is silent"), OwnershipLostError("n1")])
async def test_a_growth_that_is_only_not_noted_is_complete(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(_: object) -> None:
        raise failure

    async with running_node(LastingStore()) as node:
        await node.create("a", 2)
        monkeypatch.setattr(node.catalog, "finish_growth", refused)

        [state] = await node.lifecycle.alter(["a"], ChannelChange(vchannels=4))

        assert len(state.vchannels) == 4


async def test_the_effect_is_unknown_if_the_metadata_is_silent_before_the_end_of_a_destroy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def silent(_: object) -> None:
        raise MetadataUnavailableError("it is silent")

    async with running_node(LastingStore()) as node:
        await node.create("a", 2)
        monkeypatch.setattr(node.catalog, "remove", silent)

        with pytest.raises(MetadataUnavailableError) as caught:
            await destroy(node)

        assert caught.value.effect is Effect.UNKNOWN
