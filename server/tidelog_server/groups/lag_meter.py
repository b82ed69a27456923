"""Lag of consumer groups, measured periodically in the background: for operators, not for decisions."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Final, NamedTuple

import structlog

from tidelog_server.core.errors import DataLossError
from tidelog_server.core.errors.storage import StorageUnreadableError
from tidelog_server.core.groups import GroupPosition
from tidelog_server.core.ticks import physical_ms
from tidelog_server.groups.lag import lag_of
from tidelog_server.groups.positions import GroupPositions
from tidelog_server.runtime.clock import Clock
from tidelog_server.runtime.metrics import Metrics
from tidelog_server.storage.log_store import LogStore

_PAUSE_S: Final = 5.0
# Measuring takes at most a tenth of the time, regardless of the number of positions.
_SHARE: Final = 10
# Positions measured per call on one of the four reader threads: bounds how long other reads wait for a thread.
_POSITIONS_AT_ONCE: Final = 64


_log = structlog.get_logger()


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
        for group in list(self._positions.groups()):
            positions = list(self._positions.of_group(group).values())
            try:
                parts = [
                    await self._measured(positions[begin : begin + _POSITIONS_AT_ONCE])
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

    async def _measured(self, positions: Sequence[GroupPosition]) -> GroupLag:
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._lag, positions)

    def _lag(self, positions: Sequence[GroupPosition]) -> GroupLag:
        parts = []
        for position in positions:
            try:
                lag = lag_of(self._store, position.vchannel_id, position.next_tick)
            except KeyError:
                # The vchannel was destroyed meanwhile.
                continue
            parts.append(GroupLag(lag.messages, physical_ms(lag.first_tick) if lag.messages else None))
        return _sum(parts)


def _sum(parts: Sequence[GroupLag]) -> GroupLag:
    oldest_ms = min((part.oldest_ms for part in parts if part.oldest_ms is not None), default=None)
    return GroupLag(sum(part.messages for part in parts), oldest_ms)


def _age_s(lag: GroupLag, now_ms: int) -> float:
    return 0.0 if lag.oldest_ms is None else max(0, now_ms - lag.oldest_ms) / 1_000
