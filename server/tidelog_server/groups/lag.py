"""The lag of a position, from the sparse index, and that of all groups, measured in the background for operators."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Final, NamedTuple

import structlog

from tidelog_server.core.errors import DataLossError
from tidelog_server.core.errors.storage import StorageUnreadableError
from tidelog_server.core.groups import GroupPosition
from tidelog_server.core.ticks import MAX_TICK, Tick, physical_ms
from tidelog_server.groups.positions import GroupPositions
from tidelog_server.runtime.clock import Clock
from tidelog_server.runtime.metrics import Metrics
from tidelog_server.storage.log_store import LogStore

_PAUSE_S: Final = 5.0
# Measuring takes at most a tenth of the time, regardless of the number of positions.
_SHARE: Final = 10
# Positions measured per call on one of the four reader threads: bounds how long other reads wait for a thread.
_POSITIONS_AT_ONCE: Final = 64
# Headers per read of a chunk.
_PAGE: Final = 1_024
_log = structlog.get_logger()


class Lag(NamedTuple):
    """Messages at or above a position that are still in the log.

    Attributes:
        messages: Number of messages.
        size_bytes: Bytes of their columns; proportional for an entry that was consumed in part.
        first_tick: Tick of the oldest message; 0 without messages.
        is_trimmed: True if messages at or above the position were trimmed.
    """

    messages: int
    size_bytes: int
    first_tick: int
    is_trimmed: bool


def lag_at(store: LogStore, position: GroupPosition) -> Lag | None:
    """Return the lag of a position; None if the vchannel was destroyed meanwhile.

    Blocks for a read of at most one chunk's headers.

    Raises:
        DataLossError: See ``LogStore.headers``.
    """
    try:
        return lag_of(store, position.vchannel_id, position.next_tick)
    except KeyError:
        return None


def lag_of(store: LogStore, vchannel_id: int, next_tick: int) -> Lag:
    """As ``lag_at``. Raises KeyError if the vchannel does not exist."""
    tail = store.tail(vchannel_id)
    if tail.last_tick < next_tick:
        return Lag(0, 0, 0, is_trimmed=False)
    is_trimmed = next_tick < tail.trim_tick
    begin_tick = max(next_tick, tail.trim_tick)
    chunks = store.chunks(vchannel_id, begin_tick, MAX_TICK)
    if not chunks:
        # All of it was trimmed.
        return Lag(0, 0, 0, is_trimmed)
    chunk = chunks[0]
    messages = tail.messages - chunk.messages_before
    size_bytes = tail.columns_bytes - chunk.bytes_before
    # In a chunk that was trimmed in part, the trimmed entries come first.
    messages -= max(0, tail.trimmed_messages - chunk.messages_before)
    size_bytes -= max(0, tail.trimmed_bytes - chunk.bytes_before)
    tick = max(chunk.first_tick, tail.trim_tick)
    while headers := store.headers(vchannel_id, tick, chunk.last_tick + 1, _PAGE):
        for header in headers:
            if begin_tick <= header.last_tick:
                consumed = max(0, begin_tick - header.base_tick)
                share = header.columns_bytes * consumed // header.count
                return Lag(messages - consumed, size_bytes - share, max(begin_tick, header.base_tick), is_trimmed)
            messages -= header.count
            size_bytes -= header.columns_bytes
        tick = Tick(headers[-1].last_tick + 1)
    return Lag(messages, size_bytes, begin_tick, is_trimmed)


class GroupLag(NamedTuple):
    """The unconsumed messages of a group on all its vchannels.

    Attributes:
        messages: Number of messages.
        oldest_ms: Append time of the oldest, in milliseconds since the epoch; None if there are no messages.
    """

    messages: int
    oldest_ms: int | None


class LagMeter:
    """Measures the lag of all groups in the background, and stores the latest figures."""

    def __init__(
        self, store: LogStore, positions: GroupPositions, readers: Executor, clock: Clock, metrics: Metrics
    ) -> None:
        self._store = store
        self._positions = positions
        self._readers = readers
        self._clock = clock
        self._metrics = metrics
        self._lags: dict[str, GroupLag] = {}

    async def run(self) -> None:
        """Measure periodically. Never returns."""
        while True:
            begin_s = self._clock.monotonic_s()
            await self.measure()
            took_s = self._clock.monotonic_s() - begin_s
            await asyncio.sleep(max(_PAUSE_S, _SHARE * took_s))

    async def measure(self) -> None:
        """Measure all groups once. Groups whose lag cannot be read because the log is damaged are left out."""
        lags: dict[str, GroupLag] = {}
        loop = asyncio.get_running_loop()
        for group in list(self._positions.by_group):
            positions = list(self._positions.of_group(group).values())
            try:
                parts = [
                    await loop.run_in_executor(self._readers, self._lag, positions[begin : begin + _POSITIONS_AT_ONCE])
                    for begin in range(0, len(positions), _POSITIONS_AT_ONCE)
                ]
            except (DataLossError, StorageUnreadableError) as error:
                # Readers of the damaged part get the error. A missing metric must not stop the server.
                _log.error("lag_unknown", group=group, cause=str(error))
                continue
            lags[group] = _sum(parts)
        self._lags = lags

    def refresh_metrics(self, *, per_group: bool) -> None:
        """Set the gauges from the latest figures; ages are computed for the current time."""
        metrics, now_ms = self._metrics, self._clock.wall_ms()
        ages = {group: _age_s(lag, now_ms) for group, lag in self._lags.items()}
        metrics.groups_lag_messages.set(sum(lag.messages for lag in self._lags.values()))
        metrics.groups_lag_max_seconds.set(max(ages.values(), default=0.0))
        if per_group:
            metrics.group_lag_messages.replace([(group, float(lag.messages)) for group, lag in self._lags.items()])
            metrics.group_lag_seconds.replace(list(ages.items()))

    def _lag(self, positions: Sequence[GroupPosition]) -> GroupLag:
        lags = (lag_at(self._store, position) for position in positions)
        parts = [
            GroupLag(lag.messages, physical_ms(lag.first_tick) if lag.messages else None)
            for lag in lags
            if lag is not None
        ]
        return _sum(parts)


def _sum(parts: Sequence[GroupLag]) -> GroupLag:
    oldest_ms = min((part.oldest_ms for part in parts if part.oldest_ms is not None), default=None)
    return GroupLag(sum(part.messages for part in parts), oldest_ms)


def _age_s(lag: GroupLag, now_ms: int) -> float:
    return 0.0 if lag.oldest_ms is None else max(0, now_ms - lag.oldest_ms) / 1_000
