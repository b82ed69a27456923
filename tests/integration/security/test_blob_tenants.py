"""Goal: no principal lowers another's references to blobs, blocks another's uploads, or learns what another stored.

Method: a server with authentication, and principals with ``blob.put`` and ``blob.get``.
"""

import grpc.aio
import pytest

from tidelog import BlobNotFoundError, OverloadedError
from tidelog.v1 import blob_service_pb2 as pb
from tidelog_server.core.limits import MIB
from tidelog_server.rpc.services import blobs as service
from tidelog_server.rpc.services.blobs import MAX_UPLOAD_BYTES
from tidelog_testing.parts.fixtures import secured_with
from tidelog_testing.parts.grpc_calls import Client
from tidelog_testing.servers.secured import ONCE, Secured

GRANTS = ("blob.put", "blob.get")
PART = bytes(MIB)
secured = secured_with()


async def test_a_blob_stays_whatever_another_principal_counts(secured: Secured) -> None:
    opened = secured.server._node.opened_mailboxes
    assert opened is not None
    async with (
        secured.client(await secured.token(*GRANTS)) as attacker,
        secured.client(await secured.token(*GRANTS)) as owner,
    ):
        key = await owner.blobs.put(b"content")
        assert await owner.blobs.update_ref_count(key, 1) == 1
        assert await attacker.blobs.update_ref_count(key, -1_000_000_000) == 0
        assert await owner.blobs.update_ref_count(key, 1) == 2
        assert (await attacker.blobs.describe(key)).references == 0
        opened.blobs._grace_ticks = 0
        await opened.blobs.keep()
        assert await owner.blobs.get(key) == b"content"
        assert await owner.blobs.update_ref_count(key, -9) == 0
        await opened.blobs.keep()
        with pytest.raises(BlobNotFoundError):
            await owner.blobs.get(key)


async def test_a_put_does_not_tell_what_another_principal_has_stored(secured: Secured) -> None:
    async def put(token: str) -> bool:
        async with secured.channel() as channel:
            metadata = (("authorization", f"Bearer {token}"),)
            call = Client(channel).blobs.PutBlob(iter([pb.PutBlobRequest(data=b"content")]), metadata=metadata)
            (answer,) = [answer async for answer in call]
            return bool(answer.is_created)

    first, second = await secured.token(*GRANTS), await secured.token(*GRANTS)

    assert [await put(token) for token in (first, second, first, second)] == [True, True, False, False]


async def test_unfinished_uploads_of_one_principal_leave_room_for_others_and_end(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "UPLOAD_IDLE_S", 2.0)
    metadata = (("authorization", f"Bearer {await secured.token(*GRANTS)}"),)
    async with secured.channel() as channel, secured.client(await secured.token(*GRANTS), retry=ONCE) as other:
        calls = [Client(channel).blobs.PutBlob(metadata=metadata) for _ in range(3)]
        for call in calls:
            for _ in range(MAX_UPLOAD_BYTES // MIB // 2 // len(calls)):
                await call.write(pb.PutBlobRequest(data=PART))

        content = b"x" * (16 * MIB)
        assert await other.blobs.get(await other.blobs.put(content)) == content
        for call in calls:
            assert await call.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "no part of the blob came within 2 s" in await call.details()


async def test_an_upload_beyond_the_share_of_its_principal_is_refused(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MAX_UPLOAD_BYTES", 8 * MIB)
    async with secured.client(await secured.token(*GRANTS), retry=ONCE) as client:
        await client.blobs.put(PART * 4)
        with pytest.raises(OverloadedError, match="bytes of unfinished uploads"):
            await client.blobs.put(PART * 5)
