"""A checkpoint survives its serialized form, whose bytes do not change between releases.

Method: hypothesis round trips, and the bytes of one checkpoint written out.
"""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.gazette.checkpoints import Checkpoint, JournalProducer, ProducerState
from tidelog.gazette.messages import NO_BEGIN, AckIntent
from tidelog.gazette.uuids import ProducerID
from tidelog.v1 import gazette_checkpoint_pb2 as pb

JOURNALS = st.text(min_size=1, max_size=8)
POSITIONS = st.integers(0, 2**63 - 1)
PRODUCERS = st.binary(min_size=6, max_size=6).map(ProducerID)
STATES = st.builds(
    ProducerState,
    st.builds(JournalProducer, JOURNALS, PRODUCERS),
    st.integers(0, 2**64 - 1),
    st.just(NO_BEGIN) | POSITIONS,
    st.integers(0, 2**64 - 1),
)
CHECKPOINTS = st.builds(
    Checkpoint,
    st.dictionaries(JOURNALS, POSITIONS, max_size=4),
    st.lists(STATES, max_size=6, unique_by=lambda state: state.journal_producer).map(
        lambda states: tuple(sorted(states, key=lambda state: state.journal_producer))
    ),
    st.lists(st.builds(AckIntent, JOURNALS, st.binary(max_size=12)), max_size=3).map(tuple),
)
PRODUCER = ProducerID(bytes.fromhex("0123456789ab"))
GOLDEN = Checkpoint(
    offsets={"my/b": 7, "my/a": 0},
    states=(
        ProducerState(JournalProducer("my/a", PRODUCER), 1955086848000000160, NO_BEGIN),
        ProducerState(JournalProducer("my/c", PRODUCER), 3, 0),
    ),
    intents=(AckIntent("my/b", b"{}\n"),),
)
# Version; then a journal with an offset and a state, one with an offset, one with a state; then the intent.
GOLDEN_BYTES = bytes.fromhex(
    "0801"
    "121b 0a046d792f61 1000 1a11 0a060123456789ab 11a000143821dd211b"
    "1208 0a046d792f62 1007"
    "121b 0a046d792f63 1a13 0a060123456789ab 110300000000000000 1800"
    "1a0b 0a046d792f62 12037b7d0a"
)


@given(CHECKPOINTS)
def test_a_decoded_checkpoint_equals_the_encoded_one(checkpoint: Checkpoint) -> None:
    assert Checkpoint.decode(checkpoint.encode()) == checkpoint


@given(CHECKPOINTS, st.randoms(use_true_random=False))
def test_the_order_of_offsets_and_states_does_not_change_the_bytes(
    checkpoint: Checkpoint, chance: random.Random
) -> None:
    offsets, states = list(checkpoint.offsets.items()), list(checkpoint.states)
    chance.shuffle(offsets)
    chance.shuffle(states)
    assert Checkpoint(dict(offsets), tuple(states), checkpoint.intents).encode() == checkpoint.encode()


def test_the_bytes_are_those_of_version_1() -> None:
    assert GOLDEN.encode() == GOLDEN_BYTES
    assert Checkpoint.decode(GOLDEN_BYTES) == GOLDEN


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "the checkpoint has version 0, expected 1; pass what encode returned"),
        (pb.GazetteCheckpoint(version=2).SerializeToString(), "the checkpoint has version 2, expected 1;"),
        (GOLDEN_BYTES[:-1], f"{len(GOLDEN_BYTES) - 1} bytes are not a checkpoint: "),
        (b"\xff", "1 bytes are not a checkpoint: "),
    ],
)
def test_other_bytes_are_refused(data: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Checkpoint.decode(data)


def test_a_state_names_its_journal_and_producer() -> None:
    state = GOLDEN.states[0]
    assert (state.journal, state.producer) == ("my/a", PRODUCER)
