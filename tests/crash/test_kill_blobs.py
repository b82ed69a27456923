"""Blobs across SIGKILL: an acknowledged blob is there, and what an interrupted call left is deleted in the end.

Method: a server kills itself while it stores a large blob, or between a write and its acknowledgement; the next one
stores the blob again, and deletes it once nothing refers to it. The same with blobs that are bodies of messages, while
these are sent, fetched and confirmed.

Promises of docs/reference/guarantees.md: G1, G3.
"""

from pathlib import Path

import pytest

import tidelog
from tidelog import AsyncClient, At, BlobNotFoundError, Retry
from tidelog_server.blobs.events import BlobEvent, decode_chunk
from tidelog_server.runtime.failpoints import VARIABLE, Failpoint
from tidelog_testing.servers.processes import ServerProcess

pytestmark = pytest.mark.crash

IMPATIENT = Retry(give_up_s=0.1)
SOON = {"mailboxes.blob_grace_s": 0.1}
LARGE = bytes(range(251)) * 40_000


@pytest.mark.parametrize(
    "point",
    [
        Failpoint.BLOB_MID_PUT,
        Failpoint.AFTER_WRITE_BEFORE_SYNC,
        Failpoint.AFTER_SYNC_BEFORE_ACK,
    ],
)
async def test_a_blob_that_a_kill_interrupts_is_whole_or_missing(tmp_path: Path, point: Failpoint) -> None:
    with ServerProcess(tmp_path / "log") as server:
        async with AsyncClient(server.grpc) as client:
            kept = await client.blobs.put(b"kept")
            await client.blobs.update_ref_count(kept, 1)
    with ServerProcess(tmp_path / "log", env={VARIABLE: f"{point}:3"}) as server:
        async with AsyncClient(server.grpc, retry=IMPATIENT) as client:
            with pytest.raises(tidelog.TidelogError) as unknown:
                await client.blobs.put(LARGE)
            assert unknown.value.effect == "unknown"
    with ServerProcess(tmp_path / "log") as server:
        async with AsyncClient(server.grpc) as client:
            assert await client.blobs.get(kept) == b"kept"
            key = await client.blobs.put(LARGE)
            assert await client.blobs.get(key) == LARGE
    with ServerProcess(tmp_path / "log", SOON) as server:
        async with AsyncClient(server.grpc) as client:
            async with client.tail("_blobs/0", start=At.earliest()) as events:
                while BlobEvent.COLLECTED not in (await anext(events)).types:
                    pass
            with pytest.raises(BlobNotFoundError):
                await client.blobs.get(key)
            assert await client.blobs.get(kept) == b"kept"


@pytest.mark.parametrize("point", [Failpoint.AFTER_WRITE_BEFORE_SYNC, Failpoint.AFTER_SYNC_BEFORE_ACK])
@pytest.mark.parametrize("hits", [3, 5, 8])
async def test_no_message_is_without_its_body_and_no_body_without_a_message_stays(
    tmp_path: Path, point: Failpoint, hits: int
) -> None:
    bodies = [LARGE[:200_000] + bytes([number]) for number in range(4)]
    with ServerProcess(tmp_path / "log") as server:
        async with AsyncClient(server.grpc) as client:
            await client.mailboxes.create("jobs")
    acknowledged: list[bytes] = []
    confirmed: list[bytes] = []
    with ServerProcess(tmp_path / "log", env={VARIABLE: f"{point}:{hits}"}) as server:
        async with AsyncClient(server.grpc, retry=IMPATIENT, timeout_s=2.0) as client:
            with pytest.raises(tidelog.TidelogError):
                for body in bodies:
                    await client.mailbox("jobs").send(body)
                    acknowledged.append(body)
                while True:
                    [delivery] = await client.mailbox("jobs").fetch(lease=0.2)
                    await delivery.ack()
                    confirmed.append(delivery.body)
    with ServerProcess(tmp_path / "log", SOON) as server:
        async with AsyncClient(server.grpc) as client:
            mailbox, left = client.mailbox("jobs"), list[bytes]()
            while deliveries := await mailbox.fetch(10, wait=0.5):
                assert not any(delivery.is_body_missing for delivery in deliveries)
                left += [delivery.body for delivery in deliveries]
                await mailbox.ack_many(deliveries)
            assert set(acknowledged).difference(confirmed) <= {*left, *bodies[len(confirmed) : len(confirmed) + 1]}
            assert set(left) <= set(bodies)
            # In the end every blob is deleted.
            async with client.tail("_blobs/0", start=At.earliest()) as events:
                stored = set[bytes]()
                while True:
                    batch = await anext(events)
                    for kind, payload in zip(batch.types, batch.payloads, strict=True):
                        if kind == BlobEvent.PUT:
                            stored.add(decode_chunk(payload).key)
                        if kind == BlobEvent.COLLECTED:
                            stored -= {payload[at + 1 : at + 33] for at in range(0, len(payload), 33)}
                    if not stored and BlobEvent.COLLECTED in batch.types:
                        break
