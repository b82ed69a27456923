"""Idempotent producers: which append is new, which is a repetition, which is refused.

The table is in memory and on disk: a window is written with the batch that changed it, in one atomic write, so after a
crash it tells of exactly the batches that are in the log.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidelog_server.core.errors import (
    ProducerFencedError,
    SequenceForgottenError,
    SequenceGapError,
    SequenceReusedError,
)
from tidelog_server.core.limits import MAX_PRODUCERS
from tidelog_server.core.producers import ProducerKey, ProducerSequence, ProducerWindow, Result
from tidelog_server.log.batch import Batch
from tidelog_server.log.committer import PendingAppend, WindowChange

_UNKNOWN: Final = ProducerWindow(0)


def known_result(
    window: ProducerWindow | None, vchannel: str, producer: ProducerSequence, batch: Batch
) -> Result | None:
    """Return the result of a batch that was taken before; None if it is the next one. Pure.

    Raises:
        ProducerFencedError: Its epoch is older than the window's.
        SequenceGapError: It is neither the next batch nor one before.
        SequenceReusedError: The batch that was taken under its sequence was another one.
        SequenceForgottenError: It was taken, and its result is forgotten.
    """
    window = window or _UNKNOWN
    who = {"vchannel": vchannel, "producer_id": producer.producer_id}
    if producer.epoch < window.epoch:
        raise ProducerFencedError(**who, epoch=producer.epoch, actual_epoch=window.epoch)
    expected = window.last_sequence + 1
    if producer.sequence == expected:
        return None
    if expected < producer.sequence:
        raise SequenceGapError(**who, sequence=producer.sequence, expected_sequence=expected)
    if producer.sequence < window.oldest_sequence:
        raise SequenceForgottenError(**who, sequence=producer.sequence, oldest_sequence=window.oldest_sequence)
    result = window.result(producer.sequence)
    if (result.messages, result.columns_crc32c) != (batch.count, batch.columns_crc32c):
        raise SequenceReusedError(**who, sequence=producer.sequence)
    return result


@dataclass(slots=True)
class _Producer:
    """A window, and those of its batches that are not settled yet, by sequence."""

    window: ProducerWindow
    in_flight: dict[int, PendingAppend] = field(default_factory=dict)


class ProducerTable:
    """The producers of a node, the one used last at the end. Lives on the event loop.

    Invariant: at most MAX_PRODUCERS, plus those with batches in flight.
    """

    def __init__(self, windows: Mapping[ProducerKey, ProducerWindow]) -> None:
        by_age = sorted(windows.items(), key=lambda item: item[1].last_tick)
        self._producers = OrderedDict((key, _Producer(window)) for key, window in by_age)

    def __len__(self) -> int:
        return len(self._producers)

    def window(self, key: ProducerKey) -> ProducerWindow | None:
        """Return the window as of the last batch that was taken, durable or not."""
        producer = self._producers.get(key)
        return producer.window if producer else None

    def in_flight(self, key: ProducerKey, sequence: int) -> PendingAppend | None:
        """Return a batch that was taken and is not settled yet."""
        producer = self._producers.get(key)
        return producer.in_flight.get(sequence) if producer else None

    def put(self, key: ProducerKey, window: ProducerWindow) -> tuple[WindowChange, ...]:
        """Replace or add a window; return what must be written for it, the removal of another one included."""
        producer = self._producers.get(key)
        if producer is not None:
            producer.window = window
            self._producers.move_to_end(key)
            return ((key, window),)
        self._producers[key] = _Producer(window)
        evicted = self._evict()
        return ((key, window), (evicted, None)) if evicted else ((key, window),)

    def track(self, key: ProducerKey, sequence: int, append: PendingAppend) -> None:
        """Remember a batch until it is settled."""
        self._producers[key].in_flight[sequence] = append

    def settled(self, changes: Iterable[WindowChange]) -> None:
        """Note that the batch that brought ``changes`` is durable."""
        for key, window in changes:
            if window is not None and key in self._producers:
                self._producers[key].in_flight.pop(window.last_sequence, None)

    def forget(self, vchannel_ids: Iterable[int]) -> None:
        """Forget the producers of vchannels that are gone."""
        gone = set(vchannel_ids)
        for key in [key for key in self._producers if key[0] in gone]:
            del self._producers[key]

    def _evict(self) -> ProducerKey | None:
        if len(self._producers) <= MAX_PRODUCERS:
            return None
        oldest = next((key for key, producer in self._producers.items() if not producer.in_flight), None)
        # The newest one is about to have a batch in flight, and must stay.
        if oldest is None or oldest == next(reversed(self._producers)):
            return None
        del self._producers[oldest]
        return oldest
