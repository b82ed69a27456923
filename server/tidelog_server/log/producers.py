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
from tidelog_server.core.names import RESERVED_PREFIX
from tidelog_server.core.producers import UNKNOWN_PRODUCER, ProducerKey, ProducerSequence, ProducerWindow, Result
from tidelog_server.log.committer import PendingAppend, WindowChange

# Producers that are looked at to find one that may be forgotten.
_LOOKS: Final = 32


def known_result(
    window: ProducerWindow | None, vchannel: str, producer: ProducerSequence, count: int, crc32c: int
) -> Result | None:
    """Return the result of a batch that was taken before; None if it is the next one. Pure.

    Args:
        window: The producer's window on the vchannel.
        vchannel: Its name, for errors.
        producer: Which batch it is.
        count: Messages of the batch, as ``ProducerTable.note`` remembers them.
        crc32c: Its CRC, in the same way.

    Raises:
        ProducerFencedError: Its epoch is not the window's.
        SequenceGapError: It is neither the next batch nor one before.
        SequenceReusedError: The batch that was taken under its sequence was another one.
        SequenceForgottenError: It was taken, and its result is forgotten.
    """
    window = window or UNKNOWN_PRODUCER
    who = {"vchannel": vchannel, "producer_id": producer.producer_id}
    if producer.epoch != window.epoch:
        raise ProducerFencedError(**who, epoch=producer.epoch, actual_epoch=window.epoch)
    expected = window.last_sequence + 1
    if producer.sequence == expected:
        return None
    if expected < producer.sequence:
        raise SequenceGapError(**who, sequence=producer.sequence, expected_sequence=expected)
    if producer.sequence < window.oldest_sequence:
        raise SequenceForgottenError(**who, sequence=producer.sequence, oldest_sequence=window.oldest_sequence)
    result = window.result(producer.sequence)
    if (result.messages, result.columns_crc32c) != (count, crc32c):
        raise SequenceReusedError(**who, sequence=producer.sequence)
    return result


@dataclass(slots=True)
class _Producer:
    """A window, and those of its batches that are not settled yet, by sequence."""

    window: ProducerWindow
    in_flight: dict[int, PendingAppend] = field(default_factory=dict)


class ProducerTable:
    """The producers of a node. Lives on the event loop.

    Past MAX_PRODUCERS the one unused for longest is forgotten: first among those that nobody opened, whose names are
    mostly used once, and only when none is left among the opened ones. One with batches in flight is in use. Those of
    the server itself, whose names begin with ``_``, do not count and stay until they are removed.
    """

    def __init__(self, windows: Mapping[ProducerKey, ProducerWindow]) -> None:
        # Those used last are at the end of each.
        self._unopened: OrderedDict[ProducerKey, _Producer] = OrderedDict()
        self._opened: OrderedDict[ProducerKey, _Producer] = OrderedDict()
        # Of the server itself: whoever writes them removes them too, and nothing else does.
        self._reserved: OrderedDict[ProducerKey, _Producer] = OrderedDict()
        for key, window in sorted(windows.items(), key=lambda item: item[1].last_tick):
            self._home(key, window)[key] = _Producer(window)

    def __len__(self) -> int:
        return len(self._unopened) + len(self._opened)

    def window(self, key: ProducerKey) -> ProducerWindow | None:
        """Return the window as of the last batch that was taken, durable or not."""
        producer = self._find(key)
        return producer.window if producer else None

    def in_flight(self, key: ProducerKey, sequence: int) -> PendingAppend | None:
        """Return a batch that was taken and is not settled yet; asking for it is using the producer."""
        producer = self._find(key)
        if producer is None:
            return None
        self._home(key, producer.window).move_to_end(key)
        return producer.in_flight.get(sequence)

    def note(
        self, vchannel_id: int, producer: ProducerSequence, append: PendingAppend, crc32c: int | None = None
    ) -> None:
        """Let the producer's window be written with ``append``, the next of its batches on the vchannel.

        What is remembered of it is its first entry, or ``crc32c`` over more than that.
        """
        key, first = (vchannel_id, producer.producer_id), append.entries[0]
        assert first.vchannel_id == vchannel_id
        result = Result(
            first.base_tick, first.count, first.columns_crc32c if crc32c is None else crc32c, append.needs_sync
        )
        append.windows = self.put(key, (self.window(key) or UNKNOWN_PRODUCER).extended(result))
        self._track(key, producer.sequence, append)

    def settle_with_first(self, key: ProducerKey, sequence: int, repeated: PendingAppend) -> None:
        """Settle the repetition of a batch: with the first one if that is in flight, else now."""
        first = self.in_flight(key, sequence)
        if first is None:
            repeated.settled = True
            repeated.on_settled(repeated)
        else:
            first.repetitions = first.repetitions or []
            first.repetitions.append(repeated)

    def put(self, key: ProducerKey, window: ProducerWindow) -> tuple[WindowChange, ...]:
        """Replace or add a window; return what must be written for it, the removal of others included."""
        producer = self._pop(key)
        if producer is None:
            producer = _Producer(window)
        producer.window = window
        home = self._home(key, window)
        forgotten = self._forget_some() if MAX_PRODUCERS <= len(self) and home is not self._reserved else ()
        home[key] = producer
        return ((key, window), *forgotten)

    def remove(self, key: ProducerKey) -> WindowChange:
        """Forget a producer that has no batches in flight; return what must be written for it."""
        producer = self._pop(key)
        assert producer is None or not producer.in_flight
        return key, None

    def keys(self, prefix: str) -> list[ProducerKey]:
        """Return the producers of the server itself whose ids begin with ``prefix``."""
        return [key for key in self._reserved if key[1].startswith(prefix)]

    def _track(self, key: ProducerKey, sequence: int, append: PendingAppend) -> None:
        """Remember a batch until it is settled."""
        producer = self._find(key)
        assert producer is not None
        producer.in_flight[sequence] = append

    def settled(self, changes: Iterable[WindowChange]) -> None:
        """Note that the batch that brought ``changes`` is durable."""
        for key, window in changes:
            if window is not None and (producer := self._find(key)) is not None:
                producer.in_flight.pop(window.last_sequence, None)

    def forget(self, vchannel_ids: Iterable[int]) -> None:
        """Forget the producers of vchannels that are gone."""
        gone = set(vchannel_ids)
        for home in (self._unopened, self._opened, self._reserved):
            for key in [key for key in home if key[0] in gone]:
                del home[key]

    def _home(self, key: ProducerKey, window: ProducerWindow) -> "OrderedDict[ProducerKey, _Producer]":
        if key[1].startswith(RESERVED_PREFIX):
            return self._reserved
        return self._opened if window.epoch else self._unopened

    def _find(self, key: ProducerKey) -> _Producer | None:
        return self._unopened.get(key) or self._opened.get(key) or self._reserved.get(key)

    def _pop(self, key: ProducerKey) -> _Producer | None:
        return self._unopened.pop(key, None) or self._opened.pop(key, None) or self._reserved.pop(key, None)

    def _forget_some(self) -> tuple[WindowChange, ...]:
        """Make room for one more, and for more if there are too many since a time when all were in use."""
        forgotten: list[WindowChange] = []
        for home in (self._unopened, self._opened):
            for _ in range(min(_LOOKS, len(home))):
                if len(self) < MAX_PRODUCERS:
                    break
                key, producer = next(iter(home.items()))
                if producer.in_flight:
                    home.move_to_end(key)
                else:
                    del home[key]
                    forgotten.append((key, None))
        return tuple(forgotten)
