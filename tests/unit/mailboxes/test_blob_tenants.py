"""Goal: principals that share the blobs of a node cannot lower each other's references, nor use up the node.

Method: steps of several tenants on one state, and the events and snapshots in ``docs/reference/format.md``, byte by
byte. ``tests/property/test_blob_state.py`` compares random operations of tenants with a model.
"""

import pytest

from tidelog_server.core.callers import tenant_of
from tidelog_server.core.errors import DataLossError, RateLimitRejectedError
from tidelog_server.mailboxes.blobs import step as step_module
from tidelog_server.mailboxes.blobs.events import (
    BlobEvent,
    decode_blobs,
    encode_blobs,
    encode_counted,
    encode_counted_by,
    encode_stored_by,
    replay_blob,
)
from tidelog_server.mailboxes.blobs.state import Blob, BlobState
from tidelog_server.mailboxes.blobs.step import NOBODY, BlobStep, Storer

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
        replay_blob(state, 2, BlobEvent.STORED_BY, payload)


def test_an_event_after_which_references_are_negative_is_data_loss() -> None:
    state = BlobState()
    put(state, A)
    with pytest.raises(DataLossError):
        replay_blob(state, 2, BlobEvent.COUNTED_BY, encode_counted_by(KEY, A.tenant, -1))
