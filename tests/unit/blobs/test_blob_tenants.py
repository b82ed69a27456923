"""Goal: principals that share the blobs of a node cannot lower each other's references, nor use up the node.

Method: steps of several tenants on one state, and the events and snapshots in ``docs/reference/format.md``, byte by
byte. ``tests/property/test_blob_state.py`` compares random operations of tenants with a model.
"""

from dataclasses import replace

import pytest

from tidelog_server.blobs import step as step_module
from tidelog_server.blobs.events import (
    BlobEvent,
    decode_blobs,
    encode_blobs,
    encode_counted,
    encode_counted_by,
    encode_stored_by,
    replay_blobs,
)
from tidelog_server.blobs.state import BLOB_MEMORY_BYTES, BLOB_PLACE_MEMORY_BYTES, Blob, BlobState
from tidelog_server.blobs.step import NOBODY, BlobStep, Storer
from tidelog_server.core.callers import Tenant, tenant_of
from tidelog_server.core.errors import DataLossError, InvalidRequestError, RateLimitRejectedError
from tidelog_server.core.limits import BLOB_CHUNK_BYTES, BLOB_TENANT_MEMORY_BYTES
from tidelog_server.core.usage import Usage

KEY = b"K" * 20
ETL = tenant_of("jwt:etl")
A, B = Storer(tenant_of("token:a"), percent=50), Storer(tenant_of("token:b"), percent=50)


def put(state: BlobState, storer: Storer, key: bytes = KEY, data: bytes = b"hi") -> list[int]:
    """Store a blob, and return the kinds of the events."""
    step = BlobStep(state, 1, storer)
    step.check_room(key, len(data))
    step.put(key, data)
    return step.types


def test_a_tenant_changes_its_own_references_only_and_never_below_0() -> None:
    state = BlobState()
    put(state, B)
    assert BlobStep(state, 2, B).count(KEY, 1) == 1
    assert BlobStep(state, 3, A).count(KEY, -1_000_000_000) == 0
    assert BlobStep(state, 4, B).count(KEY, 1) == 2
    assert state.take_idle(100, lambda _: False, 10) == []
    assert BlobStep(state, 5, B).count(KEY, -5) == 0
    assert state.take_idle(100, lambda _: False, 10) == [KEY]


def test_references_of_no_tenant_stay_until_an_administrator_lowers_them() -> None:
    state = BlobState()
    put(state, NOBODY)
    assert BlobStep(state, 2).count(KEY, 3) == 3
    assert BlobStep(state, 3, A).count(KEY, -2) == 3
    assert BlobStep(state, 4, A).count(KEY, 1) == 4
    administrator = Storer(A.tenant, may_lower_old=True)
    assert BlobStep(state, 5, administrator).count(KEY, -2) == 2
    assert (state.blobs[KEY].references, state.blobs[KEY].counts) == (2, {A.tenant: 0})
    assert BlobStep(state, 6, administrator).count(KEY, -9) == 0


def test_the_first_tenant_pays_and_each_is_recorded_once() -> None:
    state = BlobState()
    assert put(state, A) == [BlobEvent.PUT, BlobEvent.STORED_BY]
    assert put(state, B) == [BlobEvent.STORED_BY]
    assert put(state, B) == [BlobEvent.COUNTED]
    assert put(state, NOBODY, b"other") == [BlobEvent.PUT]
    assert [state.bytes_usage.of(each.tenant) for each in (A, B, NOBODY)] == [2, 0, 2]
    BlobStep(state, 9).collect([KEY])
    assert [state.number_usage.of(each.tenant) for each in (A, B, NOBODY)] == [0, 0, 1]


def test_a_blob_whose_key_another_one_has_is_refused_before_anything_changes() -> None:
    state = BlobState()
    put(state, A)
    step = BlobStep(state, 9, A)
    with pytest.raises(InvalidRequestError, match="a blob of 2 bytes has the key of this one of 3 bytes"):
        step.check_room(KEY, 3)
    assert step.payloads == []


def test_a_tenant_uses_a_share_of_the_blobs_and_of_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_module, "MAX_BLOBS", 4)
    state = BlobState()
    for number in range(2):
        put(state, A, b"a%d" % number)
    with pytest.raises(RateLimitRejectedError, match="uses 2 blobs; with 2 of 4 free"):
        put(state, A, b"a2")
    put(state, B, b"b0")
    # What is stored already needs no room.
    put(state, A, b"b0")

    small = Storer(B.tenant, percent=50, free_bytes=9)
    put(state, small, b"b0")
    with pytest.raises(RateLimitRejectedError, match="bytes of blobs"):
        put(BlobState(), small, b"b1", b"x" * 10)


def test_the_memory_of_blobs_counts_to_who_pays_and_to_who_counts() -> None:
    state, charged = BlobState(), Usage()
    put(state, NOBODY)
    state.attach(charged.add)
    put(state, A)
    put(state, A, b"large", bytes(BLOB_CHUNK_BYTES + 1))
    BlobStep(state, 9, B).count(KEY, 2)
    BlobStep(state, 10, B).count(KEY, -1)
    a = 2 * BLOB_MEMORY_BYTES + 3 * BLOB_PLACE_MEMORY_BYTES + 2 * BLOB_TENANT_MEMORY_BYTES
    for loaded in (state, decode_blobs(encode_blobs(state))):
        used = [loaded.memory_usage.of(each.tenant) for each in (A, B, NOBODY)]
        assert used == [a, BLOB_TENANT_MEMORY_BYTES, 0]
    assert dict(charged.by_tenant.items()) == {A.tenant: a, B.tenant: BLOB_TENANT_MEMORY_BYTES}
    BlobStep(state, 11).collect([KEY])
    assert dict(charged.by_tenant.items()) == {
        A.tenant: BLOB_MEMORY_BYTES + 2 * BLOB_PLACE_MEMORY_BYTES + BLOB_TENANT_MEMORY_BYTES
    }
    BlobStep(state, 12).collect([b"large"])
    assert charged.total == state.memory_usage.total == 0


def test_what_takes_further_memory_is_checked_before_it_is_done() -> None:
    def refuse(tenant: Tenant, memory_bytes: int) -> None:
        asked.append((tenant, memory_bytes))
        raise RateLimitRejectedError("full", limit="mailbox_memory")

    state, asked = BlobState(), list[tuple[Tenant, int]]()
    put(state, A)
    full_a, full_b = replace(A, check_memory=refuse), replace(B, check_memory=refuse)
    with pytest.raises(RateLimitRejectedError, match="full"):
        BlobStep(state, 2, full_b).count(KEY, 1)
    # What it has counted or stored already takes nothing further.
    assert BlobStep(state, 3, full_a).count(KEY, 1) == 1
    assert BlobStep(state, 4, full_b).count(KEY, -1) == 0
    assert asked == [(B.tenant, BLOB_TENANT_MEMORY_BYTES)]
    assert state.blobs[KEY].counts == {A.tenant: 1}
    new = [BlobStep(state, 5, full_b).new_memory_bytes(key, BLOB_CHUNK_BYTES + 1) for key in (KEY, b"new")]
    one_blob = BLOB_MEMORY_BYTES + 2 * BLOB_PLACE_MEMORY_BYTES
    assert new == [BLOB_TENANT_MEMORY_BYTES, one_blob + BLOB_TENANT_MEMORY_BYTES]
    assert BlobStep(state, 5, NOBODY).new_memory_bytes(b"new", BLOB_CHUNK_BYTES + 1) == one_blob


def test_the_queue_of_idle_blobs_is_within_the_memory_that_is_counted() -> None:
    state = BlobState()
    for number in range(2_000):
        put(state, A, b"%d" % number)
    for tick in range(10_000):
        state.counted_by(b"7", A.tenant, 0, 10 + tick)
        assert len(state._idle) <= 2 * len(state.blobs)


def test_the_tenants_of_a_blob_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_module, "MAX_BLOB_TENANTS", 1)
    state = BlobState()
    put(state, A)
    with pytest.raises(RateLimitRejectedError, match="1 principals have stored or counted"):
        put(state, B)
    with pytest.raises(RateLimitRejectedError, match="1 principals have stored or counted"):
        BlobStep(state, 2, B).count(KEY, 1)
    assert put(state, A) == [BlobEvent.COUNTED]


def test_events_are_those_of_the_reference() -> None:
    key, etl = "14" + "4b" * 20, "3f17d463cbf9e415ff231749fd459210"
    assert encode_counted(KEY, 3).hex() == key + "0300000000000000"
    assert encode_stored_by(KEY, ETL).hex() == key + etl
    assert encode_counted_by(KEY, ETL, 2).hex() == key + etl + "0200000000000000"


def test_snapshots_of_both_versions_are_those_of_the_reference() -> None:
    etl = "3f17d463cbf9e415ff231749fd459210"
    begin = (
        "01000000" "14" + "4b" * 20 + "0200000000000000" "0300000000000000" "0807060504030201" "01000000"
        "0706050403020100"
    )  # fmt: skip
    state = BlobState()
    blob = state.blobs[KEY] = Blob(2, [0x0001020304050607], 3, 0x0102030405060708)
    state.rebuild()
    assert encode_blobs(state).hex() == "01" + begin
    assert decode_blobs(bytes.fromhex("01" + begin)).blobs[KEY] == blob
    state.stored_by(KEY, ETL, blob.touched)
    state.counted_by(KEY, ETL, 2, blob.touched)
    second = "02" + begin + etl + "0100" + etl + "0200000000000000"
    assert encode_blobs(state).hex() == second
    loaded = decode_blobs(bytes.fromhex(second))
    assert (loaded.blobs[KEY], loaded.bytes_usage.of(ETL)) == (blob, 2)


@pytest.mark.parametrize("payload", [encode_stored_by(KEY, ETL)[:-1], encode_stored_by(KEY, ETL) + b"x"])
def test_an_event_of_another_size_is_data_loss(payload: bytes) -> None:
    state = BlobState()
    put(state, NOBODY)
    with pytest.raises(DataLossError):
        replay_blobs(state, [(2, BlobEvent.STORED_BY, payload)])


def test_an_event_after_which_references_are_negative_is_data_loss() -> None:
    state = BlobState()
    put(state, A)
    with pytest.raises(DataLossError):
        replay_blobs(state, [(2, BlobEvent.COUNTED_BY, encode_counted_by(KEY, A.tenant, -1))])
