"""State of a producer, which makes appends idempotent: a retried append is in the log once."""

import struct
from typing import Final, NamedTuple

from tidelog_server.core.callers import NO_TENANT, Tenant

# Batches of an idempotent producer that its window remembers.
MAX_WINDOW_BATCHES: Final = 64

# first_tick, messages, columns_crc32c, is_synced; the results of a window on disk since format 1.
_RESULT: Final = struct.Struct(">QIIB")
RESULT_BYTES: Final = _RESULT.size

ProducerKey = tuple[int, str]
"""Vchannel id and producer id: sequences are counted for each vchannel."""


class ProducerSequence(NamedTuple):
    """The producer of a batch, and the batch's sequence.

    Attributes:
        producer_id: Any name.
        epoch: Epoch of the producer: 0, or the last one that OpenProducer returned.
        sequence: Number of the batch on its vchannel, from 1, across epochs.
        is_repeated: True if the caller may have sent the batch before.
        tenant: Tenant of the principal that appends.
        call: Number of the append to a channel that the batch is a part of; 0 for none.
    """

    producer_id: str
    epoch: int
    sequence: int
    is_repeated: bool = False
    tenant: Tenant = NO_TENANT
    call: int = 0


class Result(NamedTuple):
    """Position of a batch, and what identifies a retry of it.

    Attributes:
        first_tick: Tick of its first message.
        messages: Number of messages.
        columns_crc32c: See NewEntry.
        is_synced: True if its acknowledgement waited for a sync.
    """

    first_tick: int
    messages: int
    columns_crc32c: int
    is_synced: bool


class ProducerWindow(NamedTuple):
    """The last batches of a producer on a vchannel. Immutable: each batch makes a new window.

    Source: the idempotent producer of Kafka (KIP-98), which remembers five batches; and, for sequences that continue
    across epochs, the message deduplication of Pulsar (PIP-6).

    Attributes:
        epoch: Number of times the producer was opened.
        last_sequence: Sequence of the last batch; 0 before the first.
        results: Results of at most the last MAX_WINDOW_BATCHES batches, oldest first, packed.
        tenant: Tenant of the principal that used it last.
        vchannels: Number of vchannels of the channel on which it was opened first; 0 if it was opened on a vchannel.
        last_call: ``ProducerSequence.call`` of the last batch.
    """

    epoch: int
    last_sequence: int = 0
    results: bytes = b""
    tenant: Tenant = NO_TENANT
    vchannels: int = 0
    last_call: int = 0

    @property
    def oldest_sequence(self) -> int:
        """The first sequence whose result is remembered; above ``last_sequence`` if there is no such sequence."""
        return self.last_sequence - len(self.results) // RESULT_BYTES + 1

    @property
    def last_tick(self) -> int:
        """Last tick of the last batch; 0 if no result is remembered."""
        if not self.results:
            return 0
        last = self.result(self.last_sequence)
        return last.first_tick + last.messages - 1

    def result(self, sequence: int) -> Result:
        """Return the result of a batch from ``oldest_sequence`` to ``last_sequence``."""
        assert self.oldest_sequence <= sequence <= self.last_sequence
        first_tick, messages, crc, is_synced = _RESULT.unpack_from(
            self.results, (sequence - self.oldest_sequence) * RESULT_BYTES
        )
        return Result(first_tick, messages, crc, bool(is_synced))

    def extended(self, result: Result, tenant: Tenant = NO_TENANT, call: int = 0) -> "ProducerWindow":
        """Return the window after ``tenant`` has appended the next batch, which is a part of ``call``."""
        results = (self.results + _RESULT.pack(*result))[-MAX_WINDOW_BATCHES * RESULT_BYTES :]
        return ProducerWindow(
            self.epoch, self.last_sequence + 1, results, tenant, self.vchannels, call or self.last_call
        )

    def opened(self, tenant: Tenant = NO_TENANT) -> "ProducerWindow":
        """Return the window after ``tenant`` has taken over the producer."""
        return self._replace(epoch=self.epoch + 1, tenant=tenant)


ONE_PROCESS_PREFIX: Final = "~"
"""Prefix of random producer ids that clients make for one process; no other process opens or reuses them."""


def is_of_one_process(producer_id: str) -> bool:
    """Return whether a producer id was made at random for one process."""
    return producer_id.startswith(ONE_PROCESS_PREFIX)


UNKNOWN_PRODUCER: Final = ProducerWindow(0)
"""The window of an unknown producer."""
