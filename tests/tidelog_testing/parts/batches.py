"""Batches, built by the client's codec, for any layer of the server."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from tidelog.v1 import message_pb2
from tidelog.wire.column_message import columns_to_wire
from tidelog.wire.columns import encode_messages, encode_payloads
from tidelog_server.log.batch import Batch
from tidelog_server.rpc.columns.checks import MAX_EVENT_TIME_MS, MIN_EVENT_TIME_MS
from tidelog_server.rpc.columns.view import ColumnsView


@dataclass(frozen=True)
class Message:
    """One message with all its parts; the unit of the models that tests compare against."""

    payload: bytes
    key: bytes | None = None
    type: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)
    event_time_ms: int | None = None


def a_columns(messages: Sequence[Message | bytes]) -> message_pb2.Columns:
    """Return the columns of ``messages``, as a client sends them."""
    if all(isinstance(message, bytes) for message in messages):
        return columns_to_wire(encode_payloads([bytes(message) for message in messages if isinstance(message, bytes)]))
    return columns_to_wire(
        encode_messages([message if isinstance(message, Message) else Message(message) for message in messages])
    )


def a_batch(*messages: Message | bytes) -> Batch:
    """Return a batch as the rpc layer passes it to the log."""
    encoded = a_columns(messages or [b"payload"]).SerializeToString()
    view = ColumnsView.parse(encoded)
    return Batch(view.count, view.message_type, view.crc32c, encoded)


def payloads_of(encoded: bytes) -> list[bytes]:
    """Return the payloads of serialised Columns."""
    columns = message_pb2.Columns.FromString(encoded)
    offsets = memoryview(columns.payload_offsets).cast("i").tolist()
    return [columns.payloads[begin:end] for begin, end in itertools.pairwise(offsets)]


_texts = st.text(max_size=6)
_property_keys = st.text(min_size=1, max_size=6).filter(lambda key: not key.startswith("_"))

messages = st.builds(
    Message,
    payload=st.binary(max_size=12),
    key=st.none() | st.binary(max_size=6),
    type=st.integers(0, 3) | st.integers(0, (1 << 32) - 1),
    properties=st.dictionaries(_property_keys, _texts, max_size=3),
    event_time_ms=st.none() | st.integers(MIN_EVENT_TIME_MS, MAX_EVENT_TIME_MS),
)
"""Messages with and without each optional part."""

batches_of_messages = st.lists(messages, min_size=1, max_size=9)
"""The messages of one batch."""
