"""Records of broadcasts are decoded unchanged or refused. Method: hypothesis, and damaged JSON."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_server.broadcast.records import Progress, TaskRecord, Tombstone, digest_of
from tidelog_server.core.broadcasts import BroadcastState, KeyName, ResourceKey
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.ticks import MAX_TICK

ticks = st.integers(1, MAX_TICK)
keys = st.builds(ResourceKey, st.builds(KeyName, st.text(min_size=1), st.text(min_size=1)), st.booleans())
tasks = st.integers(1, 5).flatmap(
    lambda count: st.builds(
        TaskRecord,
        broadcast_id=ticks,
        vchannels=st.tuples(*[st.text(min_size=1)] * count),
        vchannel_ids=st.tuples(*[st.integers(0)] * count),
        resource_keys=st.lists(keys, max_size=3).map(tuple),
        digest=st.text(alphabet="0123456789abcdef", min_size=32, max_size=32),
        message_type=st.integers(0, (1 << 32) - 1),
        columns_crc32c=st.integers(0, (1 << 32) - 1),
        created_ms=st.integers(0),
    )
)
tombstones = st.builds(
    Tombstone,
    broadcast_id=ticks,
    state=st.sampled_from([BroadcastState.DONE, BroadcastState.ABORTED]),
    tick=ticks,
    vchannels=st.integers(1),
    acked=st.integers(0),
    digest=st.text(),
    created_ms=st.integers(0),
    finished_ms=st.integers(0),
    abort_reason=st.text(),
)
progresses = st.builds(Progress, st.just(0) | ticks, st.integers(0, (1 << 1_024) - 1))

TASK = TaskRecord(9, ("a/0",), (1,), (ResourceKey(KeyName("d", "k"), True),), "00", 0, 0, 0)
KINDS: list[tuple[Any, Any]] = [
    (TaskRecord, TASK), (Progress, Progress(7, 5)), (Tombstone, Tombstone(9, BroadcastState.DONE, 7, 1, 1, "00", 0, 0)),
]  # fmt: skip


@given(tasks | tombstones | progresses)
def test_a_record_comes_back(record: TaskRecord | Progress | Tombstone) -> None:
    assert type(record).decode("key", record.encode()) == record


def test_the_records_of_format_1_stay() -> None:
    assert TASK.encode() == (
        b'{"version":1,"broadcast_id":9,"vchannels":["a/0"],"vchannel_ids":[1],"resource_keys":[["d","k",true]],'
        b'"digest":"00","message_type":0,"columns_crc32c":0,"created_ms":0}'
    )
    assert Progress(7, 26).encode() == b'{"version":1,"state":"wait_ack","tick":7,"acks":"1a"}'
    assert Tombstone(9, BroadcastState.ABORTED, 7, 4, 1, "00", 5, 6, "why").encode() == (
        b'{"version":1,"broadcast_id":9,"state":"aborted","tick":7,"vchannels":4,"acked":1,"digest":"00",'
        b'"created_ms":5,"finished_ms":6,"abort_reason":"why"}'
    )


def test_the_page_of_the_format_shows_the_same() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/format.md").read_bytes()
    tombstone = Tombstone(9, BroadcastState.ABORTED, 7, 4, 1, "00", 5, 6, "why")
    assert all(record.encode() in page for record in (TASK, Progress(7, 26), tombstone))


@pytest.mark.parametrize(("kind", "record"), KINDS)
def test_what_is_no_record_is_refused(kind: Any, record: Any) -> None:
    fields = json.loads(record.encode())
    broken = [b"", b"{}", b"[]", b"null", b"\xff", record.encode()[:-1]]
    broken += [json.dumps({**fields, "version": 2}).encode(), json.dumps({**fields, "more": 1}).encode()]
    # The reason of an abort is optional; all other fields are required.
    for name in fields.keys() - {"abort_reason"}:
        broken.append(json.dumps({key: value for key, value in fields.items() if key != name}).encode())
    for value in broken:
        with pytest.raises(DataLossError, match="tidelog/broadcast/9/x"):
            kind.decode("tidelog/broadcast/9/x", value)


def test_fields_that_contradict_each_other_are_refused() -> None:
    for kind, value in (
        (Progress, b'{"version":1,"state":"pending","tick":7,"acks":"0"}'),
        (Tombstone, KINDS[2][1].encode().replace(b"done", b"wait_ack")),
        (TaskRecord, TASK.encode().replace(b'"vchannel_ids":[1]', b'"vchannel_ids":[1,2]')),
    ):
        with pytest.raises(DataLossError):
            kind.decode("key", value)


def test_a_digest_tells_vchannels_keys_and_messages_apart() -> None:
    key = ResourceKey(KeyName("d", "k"), False)
    digests = [
        digest_of(["a", "b"], [], b"c"), digest_of(["b", "a"], [], b"c"), digest_of(["a"], [], b"bc"),
        digest_of(["a", "b"], [key], b"c"), digest_of(["a", "b"], [key._replace(is_shared=True)], b"c"),
        digest_of(["a", "b"], [], b""),
    ]  # fmt: skip
    assert len(set(digests)) == len(digests)
