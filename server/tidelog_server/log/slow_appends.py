"""Logs slow appends (Milvus uses a threshold of one second for its own)."""

import math
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from tidelog_server.runtime.clock import Clock

# A slow disk makes every append slow, and one line shows that as well as a thousand.
_SILENT_FOR_S: Final = 1.0
_NAMES: Final = 3
_log = structlog.get_logger()


class SlowAppends:
    """Logs appends whose acknowledgement exceeded a threshold: one per second, with the number of those not logged.

    Attributes:
        threshold_s: Threshold in seconds; infinite (the initial value) to log none.
    """

    def __init__(self, clock: Clock, vchannel_name: Callable[[int], str | None]) -> None:
        self.threshold_s = math.inf
        self._clock = clock
        self._vchannel_name = vchannel_name
        self._silent_until_s = 0.0
        self._not_logged = 0

    def set_threshold(self, milliseconds: int) -> None:
        """Change the threshold; 0 to log none."""
        self.threshold_s = milliseconds / 1e3 if milliseconds else math.inf

    def note(
        self, took_s: float, vchannel_ids: Sequence[int], *, size_bytes: int, write_s: float, sync_s: float | None
    ) -> None:
        """Log the oldest append of a group, which exceeded the threshold.

        Args:
            took_s: Seconds from its arrival to its acknowledgement.
            vchannel_ids: Its vchannels.
            size_bytes: Bytes of its group.
            write_s: Seconds of the group's write.
            sync_s: Seconds of the group's sync; None if it was not synced.
        """
        now_s = self._clock.monotonic_s()
        if now_s < self._silent_until_s:
            self._not_logged += 1
            return
        names = [self._vchannel_name(vchannel_id) for vchannel_id in vchannel_ids[:_NAMES]]
        _log.warning(
            "slow_append",
            vchannels=[name for name in names if name is not None],
            vchannel_count=len(vchannel_ids),
            took_ms=_ms(took_s),
            # The rest is time spent waiting, for room or for earlier groups.
            write_ms=_ms(write_s),
            sync_ms=None if sync_s is None else _ms(sync_s),
            group_bytes=size_bytes,
            not_logged=self._not_logged,
        )
        self._silent_until_s = now_s + _SILENT_FOR_S
        self._not_logged = 0


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 1)
