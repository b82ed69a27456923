"""Blobs through the client: content, references, collection, restarts, snapshots, backups and permissions.

Method: a real server with a log on disk. Collection is started by the test instead of waited for.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from tidelog import (
    AsyncClient,
    At,
    BlobDescription,
    BlobNotFoundError,
    Client,
    InvalidRequestError,
    PermissionDeniedError,
)
from tidelog.v1 import blob_service_pb2 as pb
from tidelog_server.app import Server
from tidelog_server.blobs.events import BlobEvent
from tidelog_server.blobs.store import Blobs
from tidelog_server.core.limits import BLOB_CHUNK_BYTES
from tidelog_server.fold import keeping
from tidelog_server.rpc.services.blobs import MAX_BLOB_BYTES
from tidelog_testing.parts.grpc_calls import Client as Calls
from tidelog_testing.parts.grpc_calls import running_server
from tidelog_testing.servers.secured import secured_server

CONTENTS = [b"", b"small", b"x" * BLOB_CHUNK_BYTES, bytes(range(256)) * (4 * BLOB_CHUNK_BYTES // 256) + b"end"]


@asynccontextmanager
async def blob_client(folder: Path, **settings: Any) -> AsyncIterator[tuple[AsyncClient, Blobs]]:
    async with running_server(folder, **settings) as server, AsyncClient(server.grpc_endpoint) as client:
        yield client, blobs_of(server)


def blobs_of(server: Server) -> Blobs:
    opened = server._node.opened_mailboxes
    assert opened is not None
    return opened.blobs


def let_pass(blobs: Blobs) -> None:
    """Let the grace period of all blobs end."""
    blobs._grace_ticks = 0


async def test_blobs_are_returned_as_stored_once_for_equal_bytes(tmp_path: Path) -> None:
    async with blob_client(tmp_path) as (client, _):
        for content in CONTENTS:
            key = await client.blobs.put(content)
            assert key == hashlib.sha256(content).digest()
            assert await client.blobs.put(content) == key
            old_key = await client.blobs.put(content, algorithm="sha1")
            assert old_key == hashlib.sha1(content, usedforsecurity=False).digest()
            assert await client.blobs.get(key) == await client.blobs.get(old_key) == content
            assert await client.blobs.describe(key) == BlobDescription(len(content), 0, 0)
        with pytest.raises(ValueError, match="md5"):
            await client.blobs.put(b"", algorithm="md5")  # type: ignore[arg-type]  # the claim


async def test_the_answer_states_whether_the_blob_was_stored_before(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, grpc.aio.insecure_channel(server.grpc_endpoint) as channel:
        stub = Calls(channel).blobs
        for is_created in (True, False):
            parts = [
                pb.PutBlobRequest(data=b"two "),
                pb.PutBlobRequest(data=b"parts", algorithm=pb.BLOB_ALGORITHM_SHA1),
            ]
            call = stub.PutBlob(iter(parts))
            answers = [answer async for answer in call]
            # The algorithm of the first request counts.
            key = hashlib.sha256(b"two parts").digest()
            assert answers == [pb.PutBlobResponse(key=key, size_bytes=9, is_created=is_created)]


async def test_a_blob_without_references_is_deleted_after_its_grace_period(tmp_path: Path) -> None:
    async with blob_client(tmp_path) as (client, blobs):
        kept, gone, negative = [await client.blobs.put(content) for content in CONTENTS[:3]]
        assert await client.blobs.update_ref_count(kept, 2) == 2
        assert await client.blobs.update_ref_count(negative, -1) == -1
        await blobs.keep()
        assert await client.blobs.get(gone) == CONTENTS[1]

        let_pass(blobs)
        await blobs.keep()
        for key in (gone, negative):
            for call in (client.blobs.get(key), client.blobs.describe(key), client.blobs.update_ref_count(key, 1)):
                with pytest.raises(BlobNotFoundError) as missing:
                    await call
                assert (missing.value.key, missing.value.effect) == (key.hex(), "none")
        assert await client.blobs.get(kept) == CONTENTS[0]
        assert await client.blobs.put(CONTENTS[1]) == gone
        assert await client.blobs.update_ref_count(kept, -2) == 0
        await blobs.keep()
        with pytest.raises(BlobNotFoundError):
            await client.blobs.get(kept)


async def test_the_background_task_deletes_idle_blobs(tmp_path: Path) -> None:
    async with blob_client(tmp_path, mailboxes__blob_grace_s=0.1) as (client, _):
        key = await client.blobs.put(b"idle")
        async with client.tail("_blobs/0", start=At.earliest()) as events:
            kinds = [list((await anext(events)).types) for _ in range(2)]
        assert kinds == [[BlobEvent.PUT], [BlobEvent.COLLECTED]]
        with pytest.raises(BlobNotFoundError):
            await client.blobs.get(key)


async def test_blobs_and_references_survive_restarts_snapshots_and_trims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "CLEAN_ABOVE_BYTES", 0)
    monkeypatch.setattr(keeping, "TRIM_ABOVE_BYTES", 0)
    async with blob_client(tmp_path) as (client, blobs):
        keys = [await client.blobs.put(content) for content in CONTENTS]
        for key in keys:
            await client.blobs.update_ref_count(key, 1)
        garbage = [await client.blobs.put(bytes([number]) * BLOB_CHUNK_BYTES) for number in range(20)]
    async with blob_client(tmp_path) as (client, blobs):
        let_pass(blobs)
        await blobs.keep()
        with pytest.raises(BlobNotFoundError):
            await client.blobs.get(garbage[0])
        log = await blobs.create()
        vchannel = log.place.vchannel
        assert log.snapshot_tick
        assert vchannel.trim_tick
        # What is left is about what is stored: the garbage was written after the other blobs, which were copied.
        tail = blobs._node.store.tail(vchannel.vchannel_id)
        assert tail.columns_bytes - tail.trimmed_bytes < 1.5 * log.state.stored_bytes
        assert [await client.blobs.get(key) for key in keys] == CONTENTS
        await client.blobs.update_ref_count(keys[0], 4)
    async with blob_client(tmp_path) as (client, _):
        assert [await client.blobs.get(key) for key in keys] == CONTENTS
        assert [(await client.blobs.describe(key)).references for key in keys] == [5, 1, 1, 1]


async def test_too_large_blobs_and_references_are_refused(tmp_path: Path) -> None:
    async with blob_client(tmp_path) as (client, blobs):
        key = await client.blobs.put(bytes(MAX_BLOB_BYTES))
        assert await client.blobs.get(key) == bytes(MAX_BLOB_BYTES)
        with pytest.raises(InvalidRequestError, match=f"at most {MAX_BLOB_BYTES} are accepted"):
            await client.blobs.put(bytes(MAX_BLOB_BYTES + 1))
        with pytest.raises(InvalidRequestError, match="delta"):
            await client.blobs.update_ref_count(key, 1_000_000_001)
        assert len((await blobs.create()).state.blobs) == 1


async def test_a_server_without_blobs_has_no_channel_for_them(tmp_path: Path) -> None:
    async with blob_client(tmp_path) as (client, blobs):
        for call in (client.blobs.get(b"k" * 32), client.blobs.describe(b""), client.blobs.update_ref_count(b"", 1)):
            with pytest.raises(BlobNotFoundError):
                await call
        await blobs.keep()
        assert [each.name async for each in client.list_channels("_")] == []
        await client.blobs.put(b"first")
        assert [each.name async for each in client.list_channels("_")] == ["_blobs"]
        for refused in (
            client.append("_blobs/0", b"x"),
            client.destroy_channels(["_blobs"]),
            client.trim("_blobs/0", everything=True),
        ):
            with pytest.raises(InvalidRequestError):
                await refused


async def test_the_synchronous_twin_does_the_same(tmp_path: Path) -> None:
    def use(endpoint: str) -> None:
        with Client(endpoint) as client:
            key = client.blobs.put(b"content", algorithm="sha1")
            assert client.blobs.get(key) == b"content"
            assert client.blobs.update_ref_count(key, -3) == -3
            assert client.blobs.describe(key) == BlobDescription(7, -3, 0)

    async with running_server(tmp_path) as server:
        await asyncio.to_thread(use, server.grpc_endpoint)


@pytest.mark.parametrize("grant", ["blob.put", "blob.get", "read:*"])
async def test_calls_need_their_permission(tmp_path: Path, grant: str) -> None:
    async with secured_server(tmp_path) as secured:
        async with secured.client(await secured.token("blob.put", "blob.get")) as client:
            key = await client.blobs.put(b"content")
        async with secured.client(await secured.token(grant)) as client:
            calls = {
                "blob.put": (client.blobs.put(b"content"), client.blobs.update_ref_count(key, 0)),
                "blob.get": (client.blobs.get(key), client.blobs.describe(key)),
            }
            for verb, theirs in calls.items():
                for call in theirs:
                    if verb == grant:
                        await call
                    else:
                        with pytest.raises(PermissionDeniedError):
                            await call
