"""The fold of the events of blobs, against a plain model, with time as an input.

Method: random operations in steps; after each, the state equals the model, a replay of all events, and a replay of the
events after a snapshot. The model has the content of each blob, and the tick since which nothing refers to it.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidelog_server.blobs.events import (
    BlobEvent,
    Chunk,
    decode_blobs,
    decode_chunk,
    encode_blobs,
    encode_chunk,
    replay_blobs,
)
from tidelog_server.blobs.live import LiveReferences
from tidelog_server.blobs.state import BlobState, Copy, blob_memory_bytes, chunks_of
from tidelog_server.blobs.step import NOBODY, BlobStep, Storer
from tidelog_server.core.callers import NO_TENANT, TENANT_BYTES
from tidelog_server.core.errors import DataLossError
from tidelog_server.core.errors.mailboxes import BlobNotExistError
from tidelog_server.core.limits import BLOB_CHUNK_BYTES, BLOB_TENANT_MEMORY_BYTES, MAX_BLOB_REFERENCES

CONTENTS = (b"", b"small", b"a" * BLOB_CHUNK_BYTES, b"b" * (2 * BLOB_CHUNK_BYTES + 1))
KEYS = [hashlib.sha256(content).digest() for content in CONTENTS]
GRACE = 5
TENANTS = (NO_TENANT, b"a" * TENANT_BYTES, b"b" * TENANT_BYTES)

operations = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 3)),
    st.tuples(st.just("put_by"), st.integers(0, 3), st.integers(1, 2)),
    st.tuples(st.just("count_by"), st.integers(0, 3), st.integers(-2, 2), st.integers(1, 2)),
    st.tuples(st.just("count_old"), st.integers(0, 3), st.integers(-3, -1)),
    st.tuples(st.just("part"), st.integers(0, 3), st.integers(0, 2)),
    st.tuples(st.just("count"), st.integers(0, 3), st.integers(-2, 2)),
    st.tuples(st.just("message"), st.integers(0, 3)),
    st.tuples(st.just("delete"), st.integers(0, 3)),
    st.tuples(st.just("copy"), st.integers(0, 3)),
    st.tuples(st.just("durable")),
    st.tuples(st.just("wait"), st.integers(1, 9)),
    st.tuples(st.just("collect")),
    st.tuples(st.just("restart")),
)


class System:
    """The state with its events, and the model."""

    def __init__(self) -> None:
        self.state = BlobState()
        self.live = LiveReferences()
        self.live.on_released = lambda key: self.state.released(key, self.now)
        self.now = 1
        self.events: list[tuple[int, int, bytes]] = []
        # Not durable yet.
        self.copies: list[Copy] = []
        self.messages = [0] * len(KEYS)
        # Model: chunks, references and idle tick by number of the content.
        self.chunks: dict[int, set[int]] = {}
        self.references: dict[int, int] = {}
        self.idle: dict[int, int] = {}
        # References of each tenant that stored or counted the content, and the one that pays.
        self.counts: dict[int, dict[bytes, int]] = {}
        self.payers: dict[int, bytes] = {}

    def step(self, storer: Storer = NOBODY) -> BlobStep:
        return BlobStep(self.state, self.now + 1, storer)

    def finish(self, step: BlobStep) -> None:
        for index, (kind, payload) in enumerate(zip(step.types, step.payloads, strict=True)):
            self.events.append((step.base + index, kind, payload))
        self.now = step.base + len(step.payloads)

    def put_by(self, number: int, who: int) -> None:
        self.put(number, storer=Storer(TENANTS[who]))
        self.counts[number].setdefault(TENANTS[who], 0)
        self.payers[number] = self.payers[number] or TENANTS[who]

    def count_by(self, number: int, delta: int, who: int, *, may_lower_old: bool = False) -> None:
        tenant = TENANTS[who]
        step = self.step(Storer(tenant, may_lower_old=may_lower_old))
        if number not in self.chunks:
            with pytest.raises(BlobNotExistError):
                step.count(KEYS[number], delta)
            return
        counts = self.counts[number]
        own, old = counts.get(tenant, 0), self.references[number]
        if own + delta < 0 < old and may_lower_old:
            self.references[number] = max(0, old + own + delta)
        if max(0, own + delta) != own:
            counts[tenant] = max(0, own + delta)
        assert step.count(KEYS[number], delta) == counts.get(tenant, 0) + max(0, self.references[number])
        self.finish(step)
        self.idle[number] = self.now - 1

    def count_old(self, number: int, delta: int) -> None:
        self.count_by(number, delta, 1, may_lower_old=True)

    def put(self, number: int, first: int = 0, chunks: int | None = None, storer: Storer = NOBODY) -> None:
        total = chunks_of(len(CONTENTS[number]))
        if first >= total:
            return
        step = self.step(storer)
        self.counts.setdefault(number, {})
        self.payers.setdefault(number, NO_TENANT)
        step.put(KEYS[number], CONTENTS[number], first, chunks)
        self.chunks.setdefault(number, set()).update(range(first, total if chunks is None else first + 1))
        self.references.setdefault(number, 0)
        self.idle[number] = step.base + len(step.payloads) - 1
        self.finish(step)

    def apply(self, name: str, *arguments: int) -> None:
        getattr(self, name)(*arguments)

    def part(self, number: int, first: int) -> None:
        self.put(number, first, 1)

    def message(self, number: int) -> None:
        # A send refers to a complete blob only.
        if self.state.find(KEYS[number]) is not None:
            self.messages[number] += 1
            self.live.count(KEYS[number], 1)

    def delete(self, number: int) -> None:
        if self.messages[number]:
            self.messages[number] -= 1
            self.live.count(KEYS[number], -1)
            if not self.messages[number]:
                self.idle[number] = max(self.idle[number], self.now)

    def wait(self, ticks: int) -> None:
        self.now += ticks

    def count(self, number: int, delta: int) -> None:
        step = self.step()
        if number not in self.chunks:
            with pytest.raises(BlobNotExistError):
                step.count(KEYS[number], delta)
            return
        self.references[number] += delta
        all_references = self.references[number] + sum(self.counts[number].values())
        assert step.count(KEYS[number], delta) == all_references
        self.idle[number] = step.base
        self.finish(step)

    def copy(self, number: int) -> None:
        # One copy is durable before the next is made.
        self.durable()
        blob = self.state.blobs.get(KEYS[number])
        if blob is not None:
            step = self.step()
            places = {place: (kind, payload) for place, kind, payload in self.events}
            copies = step.relocate([(place, decode_chunk(places[place][1])) for place in blob.places if place])
            self.finish(step)
            self.copies += copies

    def durable(self) -> None:
        """All copies are durable: readers use them."""
        self.state.copied(self.copies)
        self.copies = []

    def collect(self) -> None:
        step, until = self.step(), self.now - GRACE
        keys = step.state.take_idle(until, self.live.is_live, 100)
        wanted = {
            number
            for number in self.chunks
            if self.references[number] <= 0
            and not any(self.counts[number].values())
            and not self.messages[number]
            and self.idle[number] <= until
        }
        assert set(keys) == {KEYS[number] for number in wanted}
        for number in wanted:
            del self.chunks[number], self.references[number], self.idle[number]
            del self.counts[number], self.payers[number]
        if keys:
            step.collect(keys)
            self.finish(step)

    def restart(self) -> None:
        """Replay everything; the references of messages follow from the mailboxes."""
        self.copies = []
        self.state = replayed(BlobState(), self.events)
        self.live = LiveReferences()
        self.live.on_released = lambda key: self.state.released(key, self.now)
        for number, messages in enumerate(self.messages):
            if messages:
                self.live.count(KEYS[number], messages)
        # Only the logged part of the idle time is known after a start.
        for number in self.chunks:
            self.idle[number] = self.state.blobs[KEYS[number]].touched

    def check(self) -> None:
        for tenant in TENANTS:
            paid = [len(CONTENTS[number]) for number in self.chunks if self.payers[number] == tenant]
            assert self.state.number_usage.of(tenant) == len(paid)
            assert self.state.bytes_usage.of(tenant) == sum(paid)
            counted = sum(tenant in self.counts[number] for number in self.chunks)
            memory_bytes = sum(map(blob_memory_bytes, paid)) + BLOB_TENANT_MEMORY_BYTES * counted
            assert self.state.memory_usage.of(tenant) == memory_bytes
        assert set(self.state.blobs) == {KEYS[number] for number in self.chunks}
        places = {place: (kind, payload) for place, kind, payload in self.events}
        for number, chunks in self.chunks.items():
            blob = self.state.blobs[KEYS[number]]
            assert {index for index, place in enumerate(blob.places) if place} == chunks
            assert blob.references == self.references[number]
            assert (blob.counts, blob.payer) == (self.counts[number], self.payers[number])
            assert blob.is_complete == (len(chunks) == chunks_of(len(CONTENTS[number])))
            for index in chunks:
                kind, payload = places[blob.places[index]]
                begin = index * BLOB_CHUNK_BYTES
                data = CONTENTS[number][begin : begin + BLOB_CHUNK_BYTES]
                assert kind in (BlobEvent.PUT, BlobEvent.RELOCATED)
                assert decode_chunk(payload) == Chunk(KEYS[number], index, len(CONTENTS[number]), data)
        for number, messages in enumerate(self.messages):
            assert self.live.messages_of(KEYS[number]) == messages
            assert not messages or self.state.find(KEYS[number]) is not None


def replayed(state: BlobState, events: Sequence[tuple[int, int, bytes]]) -> BlobState:
    replay_blobs(state, events)
    return state


def fields(state: BlobState) -> object:
    blobs = {
        key: (blob.size_bytes, blob.places, blob.references, blob.touched, blob.payer, list(blob.counts.items()))
        for key, blob in state.blobs.items()
    }
    usage = [(state.bytes_usage.of(tenant), state.memory_usage.of(tenant)) for tenant in TENANTS]
    return blobs, state.stored_bytes, usage


# A tenant stores a blob that it has counted, and that no tenant has stored.
@example([("put", 2), ("count_by", 2, 1, 1), ("put_by", 2, 1)], 0)
@given(st.lists(operations, max_size=40), st.integers(0, 40))
def test_state_replay_and_snapshot_agree_with_the_model(wanted: list[tuple[Any, ...]], snapshot_after: int) -> None:
    system = System()
    snapshot, begin = encode_blobs(system.state), 0
    for number, operation in enumerate(wanted):
        system.apply(*operation)
        system.check()
        if number == snapshot_after:
            # Copies and snapshots are made one after the other.
            system.durable()
            snapshot, begin = encode_blobs(system.state), len(system.events)

    system.durable()
    assert fields(replayed(BlobState(), system.events)) == fields(system.state)
    assert fields(replayed(decode_blobs(snapshot), system.events[begin:])) == fields(system.state)


@given(st.binary(max_size=32), st.binary(max_size=20), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
def test_a_chunk_is_decoded_as_it_was_encoded(key: bytes, data: bytes, number: int, size_bytes: int) -> None:
    chunk = Chunk(key, number, size_bytes, data)
    assert decode_chunk(encode_chunk(chunk)) == chunk


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (0, b""),
        (BlobEvent.PUT, b"\x20short"),
        (BlobEvent.PUT, encode_chunk(Chunk(KEYS[1], 1, 5, b"small"))),
        (BlobEvent.COUNTED, b"\x01k" + bytes(8)),
        (BlobEvent.COLLECTED, b"\x01k"),
        (BlobEvent.STORED_BY, b"\x01k" + bytes(TENANT_BYTES)),
        (BlobEvent.COUNTED_BY, b"\x01k" + bytes(TENANT_BYTES + 8)),
        (BlobEvent.RELOCATED, encode_chunk(Chunk(KEYS[1], 0, 5, b"small"))),
    ],
)
def test_an_event_that_contradicts_the_others_is_data_loss(kind: int, payload: bytes) -> None:
    with pytest.raises(DataLossError):
        replay_blobs(BlobState(), [(1, kind, payload)])


@pytest.mark.parametrize("damage", [b"", b"\x02\x00\x00\x00\x00", encode_blobs(BlobState()) + b"x"])
def test_a_damaged_snapshot_is_data_loss(damage: bytes) -> None:
    with pytest.raises(DataLossError):
        decode_blobs(damage)


def test_references_stay_within_their_limits() -> None:
    state = BlobState()
    step = BlobStep(state, 1)
    step.put(KEYS[1], CONTENTS[1])
    assert [step.count(KEYS[1], MAX_BLOB_REFERENCES) for _ in range(2)] == [MAX_BLOB_REFERENCES] * 2
    assert [step.count(KEYS[1], -MAX_BLOB_REFERENCES) for _ in range(3)][1:] == [-MAX_BLOB_REFERENCES] * 2


def test_the_queue_of_idle_blobs_stays_small() -> None:
    state = BlobState()
    BlobStep(state, 1).put(KEYS[1], CONTENTS[1])
    for tick in range(2, 10_000):
        state.released(KEYS[1], tick)
    assert len(state._idle) <= 1_024
    assert state.take_idle(9_998, lambda _: False, 1) == []
    assert state.take_idle(9_999, lambda _: False, 1) == [KEYS[1]]
