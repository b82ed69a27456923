"""Payloads for benchmarks: incompressible, in lists for a producer."""

import itertools
import os
from array import array
from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from tidelog import Message
from tidelog.v1.message_pb2 import Columns

DISTINCT: Final = 1_000

_Message = TypeVar("_Message")


def distinct_payloads(size_bytes: int, count: int = DISTINCT) -> list[bytes]:
    """Return different random payloads of ``size_bytes`` each."""
    return [os.urandom(size_bytes) for _ in range(count)]


def with_keys(payloads: list[bytes]) -> list[Message]:
    """Return messages with these payloads, each with a key of its own."""
    return [Message(payload, key=b"key-%d" % number) for number, payload in enumerate(payloads)]


def payload_lists(messages: Sequence[_Message], *, count: int, per_batch: int) -> Iterator[list[_Message]]:
    """Yield lists of ``per_batch`` messages or payloads, in total ``count``; the last list may be shorter."""
    source = itertools.cycle(messages)
    while count > 0:
        size = min(count, per_batch)
        yield list(itertools.islice(source, size))
        count -= size


def encoded_batches(payloads: list[bytes], *, per_batch: int, count: int) -> list[bytes]:
    """Return ``count`` batches in the format of the wire and the store, for floors, without a computed CRC."""
    batches = []
    for batch in payload_lists(payloads, count=per_batch * count, per_batch=per_batch):
        offsets = array("i", itertools.accumulate(map(len, batch), initial=0)).tobytes()
        columns = Columns(count=len(batch), payload_offsets=offsets, payloads=b"".join(batch), crc32c=1)
        batches.append(columns.SerializeToString())
    return batches
