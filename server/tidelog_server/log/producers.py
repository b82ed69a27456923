"""Idempotent producers: which append is new, which is a repetition, which is refused.

The table is in memory and on disk: a window is written with the batch that changed it, in one atomic write, so after a
crash it tells of exactly the batches that are in the log.
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
from tidelog_server.core.forgotten_errors import ProducerForgottenError
from tidelog_server.core.limits import MAX_PRODUCERS, MAX_REPEAT_AGE_MS
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
from tidelog_server.log.committer import PendingAppend, WindowChange

FORGOTTEN_NAMED: Final = f"{RESERVED_PREFIX}forgotten"
FORGOTTEN_OF_ONE_PROCESS: Final = f"{RESERVED_PREFIX}forgotten-of-one-process"
"""Under these names a vchannel has windows that say that windows of others were evicted there: the sequence of one is
the greatest last tick of those, at least 1."""

# Of one tenant, producers that were never opened are evicted first: most of their names are used once.
_UNOPENED: Final = 0
_OPENED: Final = 1


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


def _is_in_use(producer: _Producer) -> bool:
    return bool(producer.in_flight)


class ProducerTable:
    """The producers of a node. Lives on the event loop.

    Past MAX_PRODUCERS the principal with the most producers loses the one that it has not used for longest: see
    ``Shares``. A producer with batches in flight is in use. Those of the server itself, whose names begin with ``_``,
    do not count and stay until they are removed.

    Invariant: a vchannel on which a window was evicted has a window FORGOTTEN_NAMED or FORGOTTEN_OF_ONE_PROCESS, by the
    evicted producer's name. It is written in the same write as the removal.
    """

    def __init__(
        self, windows: Mapping[ProducerKey, ProducerWindow], on_evicted: Callable[[int], None] = lambda _: None
    ) -> None:
        """Start with the windows of earlier runs; ``on_evicted`` is called with a number of evicted windows."""
        self._shared: Shares[ProducerKey, _Producer] = Shares(ranks=2)
        # Of the server itself: the code that writes them also removes them, and nothing else does.
        self._reserved: dict[ProducerKey, _Producer] = {}
        self._on_evicted = on_evicted
        for key, window in sorted(windows.items(), key=lambda item: item[1].last_tick):
            self._set(key, _Producer(window))

    def __len__(self) -> int:
        return len(self._shared)

    def window(self, key: ProducerKey) -> ProducerWindow | None:
        """Return the window as of the last batch that was taken, durable or not."""
        producer = self._find(key)
        return producer.window if producer else None

    def window_for(
        self, vchannel_id: int, vchannel: str, producer: ProducerSequence, latest_tick: int
    ) -> ProducerWindow | None:
        """Return the window for a batch, as ``window``; an unknown producer never had one if this returns.

        Args:
            vchannel_id: Of the vchannel.
            vchannel: Its name, for errors.
            producer: Which batch it is.
            latest_tick: The greatest tick that was ever handed out.

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

    def in_flight(self, key: ProducerKey, sequence: int) -> PendingAppend | None:
        """Return a batch that was taken and is not settled yet; asking for it is using the producer."""
        producer = self._find(key)
        if producer is None:
            return None
        if key not in self._reserved:
            self._shared.use(key)
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
        append.windows = self.put(key, (self.window(key) or UNKNOWN_PRODUCER).extended(result, producer.tenant))
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
        producer = self._find(key)
        evicted: tuple[WindowChange, ...] = ()
        if producer is None:
            producer = _Producer(window)
            if not key[1].startswith(RESERVED_PREFIX):
                evicted = self._make_room(window)
        producer.window = window
        self._set(key, producer)
        return ((key, window), *evicted)

    def remove(self, key: ProducerKey) -> WindowChange:
        """Forget a producer of the server itself that has no batches in flight; return what must be written for it."""
        producer = self._reserved.pop(key, None)
        assert producer is None or not producer.in_flight
        return key, None

    def keys(self, prefix: str) -> list[ProducerKey]:
        """Return the producers of the server itself whose ids begin with ``prefix``."""
        return [key for key in self._reserved if key[1].startswith(prefix)]

    def settled(self, changes: Iterable[WindowChange]) -> None:
        """Note that the batch that brought ``changes`` is durable."""
        for key, window in changes:
            if window is not None and (producer := self._find(key)) is not None:
                producer.in_flight.pop(window.last_sequence, None)

    def forget(self, vchannel_ids: Iterable[int]) -> None:
        """Forget the producers of vchannels that are gone."""
        gone = set(vchannel_ids)
        for key in [key for key in self._shared.keys() if key[0] in gone]:  # noqa: SIM118 - not a mapping
            self._shared.pop(key)
        for key in [key for key in self._reserved if key[0] in gone]:
            del self._reserved[key]

    # -- Private -------------------------------------------------------------------------------------------

    def _check_is_new(self, vchannel_id: int, vchannel: str, producer: ProducerSequence, latest_tick: int) -> None:
        """Check that an unknown producer never had a window here.

        A name of one process is used once, so its first batch is new unless the client says that it may have sent the
        batch before; clients send a batch again within MAX_REPEAT_AGE_MS, so only a window that was used within that
        time can be meant. Any other name may come back at any time.
        """
        if is_of_one_process(producer.producer_id):
            mark = self._reserved.get((vchannel_id, FORGOTTEN_OF_ONE_PROCESS))
            oldest_ms = physical_ms(latest_tick) - MAX_REPEAT_AGE_MS
            is_new = not producer.is_repeated or mark is None or physical_ms(mark.window.last_sequence) < oldest_ms
        else:
            is_new = (vchannel_id, FORGOTTEN_NAMED) not in self._reserved
        if not is_new:
            raise ProducerForgottenError(vchannel=vchannel, producer_id=producer.producer_id)

    def _track(self, key: ProducerKey, sequence: int, append: PendingAppend) -> None:
        """Remember a batch until it is settled."""
        producer = self._find(key)
        assert producer is not None
        producer.in_flight[sequence] = append

    def _find(self, key: ProducerKey) -> _Producer | None:
        return self._shared.get(key) or self._reserved.get(key)

    def _set(self, key: ProducerKey, producer: _Producer) -> None:
        window = producer.window
        if key[1].startswith(RESERVED_PREFIX):
            self._reserved[key] = producer
        else:
            self._shared.put(key, producer, window.tenant, _OPENED if window.epoch else _UNOPENED)

    def _make_room(self, window: ProducerWindow) -> tuple[WindowChange, ...]:
        """Make room for one more, and for more if there are too many since a time when all were in use."""
        evicted = self._shared.make_room(window.tenant, MAX_PRODUCERS, _is_in_use)
        if not evicted:
            return ()
        self._on_evicted(len(evicted))
        changes: dict[ProducerKey, ProducerWindow | None] = {}
        for key, _, producer in evicted:
            changes[key] = None
            changes |= self._mark_forgotten(key, producer.window)
        return tuple(changes.items())

    def _mark_forgotten(self, key: ProducerKey, window: ProducerWindow) -> dict[ProducerKey, ProducerWindow]:
        """Note on the vchannel that a window was evicted; return what must be written for it."""
        vchannel_id, producer_id = key
        name = FORGOTTEN_OF_ONE_PROCESS if is_of_one_process(producer_id) else FORGOTTEN_NAMED
        tick, mark = max(1, window.last_tick), self._reserved.get((vchannel_id, name))
        if mark is not None and tick <= mark.window.last_sequence:
            return {}
        changed = ProducerWindow(0, tick)
        self._reserved[vchannel_id, name] = _Producer(changed)
        return {(vchannel_id, name): changed}
