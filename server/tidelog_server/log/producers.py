"""Idempotent producers: decides whether an append is new, a retry, or refused.

The table is in memory and on disk. A window is persisted in the same atomic write as the batch that changed it, so
after a crash it contains exactly the batches that are in the log.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidelog_server.core.errors import (
    ProducerFencedError,
    SequenceForgottenError,
    SequenceGapError,
    SequenceReusedError,
)
from tidelog_server.core.errors.forgotten import ProducerForgottenError
from tidelog_server.core.limits import MAX_REPEAT_AGE_MS
from tidelog_server.core.names import RESERVED_PREFIX
from tidelog_server.core.producers import (
    UNKNOWN_PRODUCER,
    ProducerKey,
    ProducerSequence,
    ProducerWindow,
    Result,
    is_of_one_process,
)
from tidelog_server.core.shares import Shares
from tidelog_server.core.ticks import physical_ms
from tidelog_server.log.append import Append
from tidelog_server.log.rows import WINDOWS
from tidelog_server.storage.rows import Row

# Windows of idempotent producers of a node; above that, the principal with the most windows loses its oldest one.
MAX_PRODUCERS: Final = 10_000

FORGOTTEN_NAMED: Final = f"{RESERVED_PREFIX}forgotten"
FORGOTTEN_OF_ONE_PROCESS: Final = f"{RESERVED_PREFIX}forgotten-of-one-process"
"""Names of windows that record evictions of other windows on a vchannel. Their sequence is the greatest last tick of
the evicted windows, at least 1."""

# Within a tenant, producers that were never opened are evicted first: most of their names are used once.
_UNOPENED: Final = 0
_OPENED: Final = 1


def known_result(
    window: ProducerWindow | None, vchannel: str, producer: ProducerSequence, count: int, crc32c: int
) -> Result | None:
    """Return the result of a batch that was appended before; None if it is the next one. Pure.

    Args:
        window: Window of the producer on the vchannel.
        vchannel: Name of the vchannel, for errors.
        producer: Producer and sequence of the batch.
        count: Messages of the batch, as recorded by ``ProducerTable.note``.
        crc32c: CRC-32C of the batch, as recorded there.

    Raises:
        ProducerFencedError: Its epoch is not the window's.
        SequenceGapError: It is neither the next batch nor an earlier one.
        SequenceReusedError: A different batch was appended with its sequence.
        SequenceForgottenError: It was appended, but its result is forgotten.
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
    """A window, and its unsettled batches by sequence."""

    window: ProducerWindow
    in_flight: dict[int, Append] = field(default_factory=dict)


class ProducerTable:
    """The producers of a node. Lives on the event loop.

    Above MAX_PRODUCERS, the principal with the most producers loses its least recently used one: see ``Shares``. A
    producer with batches in flight is in use. Producers of the server itself, whose names begin with ``_``, do not
    count and are never evicted.

    Invariant: a vchannel on which a window was evicted has a window FORGOTTEN_NAMED or FORGOTTEN_OF_ONE_PROCESS,
    depending on the evicted producer's name, persisted in the same write as the removal.
    """

    def __init__(
        self, windows: Mapping[ProducerKey, ProducerWindow], on_evicted: Callable[[int], None] = lambda _: None
    ) -> None:
        """Start with the windows of earlier runs; ``on_evicted`` is called with the number of evicted windows."""
        self._shared: Shares[ProducerKey, _Producer] = Shares(ranks=2)
        # Windows of the server itself: only the code that writes them removes them.
        self._reserved: dict[ProducerKey, _Producer] = {}
        self._on_evicted = on_evicted
        for key, window in sorted(windows.items(), key=lambda item: item[1].last_tick):
            self._set(key, _Producer(window))

    def __len__(self) -> int:
        return len(self._shared)

    def window(self, key: ProducerKey) -> ProducerWindow | None:
        """Return the window as of the last batch accepted, durable or not."""
        producer = self._find(key)
        return producer.window if producer else None

    def window_for(
        self, vchannel_id: int, vchannel: str, producer: ProducerSequence, latest_tick: int
    ) -> ProducerWindow | None:
        """Return the window for a batch, see ``window``. If None is returned, the producer never had one.

        Args:
            vchannel_id: Id of the vchannel.
            vchannel: Name of the vchannel, for errors.
            producer: Producer and sequence of the batch.
            latest_tick: The greatest tick ever allocated.

        Raises:
            ProducerForgottenError: It is the first batch of an unknown producer, whose window may have been evicted.
        """
        window = self.window((vchannel_id, producer.producer_id))
        if window is None and producer.epoch == 0 and producer.sequence == 1:
            self._check_is_new(vchannel_id, vchannel, producer, latest_tick)
        return window

    def may_be_forgotten(self, key: ProducerKey) -> bool:
        """Return whether an unknown producer may have had a window on the vchannel."""
        return self._find(key) is None and (key[0], FORGOTTEN_NAMED) in self._reserved

    def in_flight(self, key: ProducerKey, sequence: int) -> Append | None:
        """Return a batch that is accepted and not settled yet; this counts as a use of the producer."""
        producer = self._find(key)
        if producer is None:
            return None
        if key not in self._reserved:
            self._shared.use(key)
        return producer.in_flight.get(sequence)

    def note(self, vchannel_id: int, producer: ProducerSequence, append: Append, crc32c: int | None = None) -> None:
        """Write the producer's window with ``append``, its next batch on the vchannel.

        The window records the append's first entry, with ``crc32c`` instead of the entry's CRC if given.
        """
        key, first = (vchannel_id, producer.producer_id), append.entries[0]
        assert first.vchannel_id == vchannel_id
        result = Result(
            first.base_tick, first.count, first.columns_crc32c if crc32c is None else crc32c, append.needs_sync
        )
        window = self.window(key) or UNKNOWN_PRODUCER
        # ``known_result`` has refused every other epoch and sequence.
        assert producer.epoch == window.epoch
        assert producer.sequence == window.last_sequence + 1
        append.rows = (*append.rows, *self.put(key, window.extended(result, producer.tenant, producer.call)))
        self._track(key, producer.sequence, append)

    def settle_with_first(self, key: ProducerKey, sequence: int, repeated: Append) -> None:
        """Settle a retry: together with the first append if that is in flight, else now."""
        first = self.in_flight(key, sequence)
        if first is None:
            repeated.settled = True
            repeated.on_settled(repeated)
        else:
            first.repetitions = first.repetitions or []
            first.repetitions.append(repeated)

    def put(self, key: ProducerKey, window: ProducerWindow) -> tuple[Row, ...]:
        """Replace or add a window; return the changes to persist, including evictions."""
        producer = self._find(key)
        evicted: tuple[Row, ...] = ()
        if producer is None:
            producer = _Producer(window)
            if not key[1].startswith(RESERVED_PREFIX):
                evicted = self._make_room(window)
        producer.window = window
        self._set(key, producer)
        return (WINDOWS.row(key, window), *evicted)

    def settled(self, rows: Iterable[Row]) -> None:
        """Record that the batches that changed ``rows``, windows, are durable."""
        for _, key, window in rows:
            if window is not None and (producer := self._find(key)) is not None:
                producer.in_flight.pop(window.last_sequence, None)

    def forget(self, vchannel_ids: Iterable[int]) -> None:
        """Delete the producers of destroyed vchannels."""
        gone = set(vchannel_ids)
        for key in [key for key in self._shared.keys() if key[0] in gone]:  # noqa: SIM118 - not a mapping
            self._shared.pop(key)
        for key in [key for key in self._reserved if key[0] in gone]:
            del self._reserved[key]

    # -- Private -------------------------------------------------------------------------------------------

    def _check_is_new(self, vchannel_id: int, vchannel: str, producer: ProducerSequence, latest_tick: int) -> None:
        """Check that an unknown producer never had a window here.

        A name for one process is used once, so its first batch is new unless the client states that it may be a retry.
        Clients retry a batch only within MAX_REPEAT_AGE_MS, so only a window used within that time is relevant. Any
        other name may come back at any time.
        """
        if is_of_one_process(producer.producer_id):
            mark = self._reserved.get((vchannel_id, FORGOTTEN_OF_ONE_PROCESS))
            oldest_ms = physical_ms(latest_tick) - MAX_REPEAT_AGE_MS
            is_new = not producer.is_repeated or mark is None or physical_ms(mark.window.last_sequence) < oldest_ms
        else:
            is_new = (vchannel_id, FORGOTTEN_NAMED) not in self._reserved
        if not is_new:
            raise ProducerForgottenError(vchannel=vchannel, producer_id=producer.producer_id)

    def _track(self, key: ProducerKey, sequence: int, append: Append) -> None:
        """Add a batch in flight."""
        producer = self._find(key)
        assert producer is not None
        assert sequence not in producer.in_flight
        producer.in_flight[sequence] = append

    def _find(self, key: ProducerKey) -> _Producer | None:
        return self._shared.get(key) or self._reserved.get(key)

    def _set(self, key: ProducerKey, producer: _Producer) -> None:
        window = producer.window
        if key[1].startswith(RESERVED_PREFIX):
            self._reserved[key] = producer
        else:
            self._shared.put(key, producer, window.tenant, _OPENED if window.epoch else _UNOPENED)

    def _make_room(self, window: ProducerWindow) -> tuple[Row, ...]:
        """Evict windows until one more fits; several if all were in use before and the table exceeded its limit."""
        evicted = self._shared.make_room(window.tenant, MAX_PRODUCERS, lambda each: bool(each.in_flight))
        if not evicted:
            return ()
        self._on_evicted(len(evicted))
        changes: dict[ProducerKey, ProducerWindow | None] = {}
        for key, _, producer in evicted:
            changes[key] = None
            changes |= self._mark_forgotten(key, producer.window)
        return tuple(WINDOWS.changes(changes))

    def _mark_forgotten(self, key: ProducerKey, window: ProducerWindow) -> dict[ProducerKey, ProducerWindow]:
        """Record on the vchannel that a window was evicted; return the changes to persist."""
        vchannel_id, producer_id = key
        name = FORGOTTEN_OF_ONE_PROCESS if is_of_one_process(producer_id) else FORGOTTEN_NAMED
        tick, mark = max(1, window.last_tick), self._reserved.get((vchannel_id, name))
        if mark is not None and tick <= mark.window.last_sequence:
            return {}
        changed = ProducerWindow(0, tick)
        self._reserved[vchannel_id, name] = _Producer(changed)
        return {(vchannel_id, name): changed}
