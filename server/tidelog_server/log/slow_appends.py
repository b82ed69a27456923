"""What the log says of appends that took long (the threshold that Milvus has for its own, a second)."""

import math
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from tidelog_server.runtime.clock import Clock

# A slow disk makes every append slow, and one line tells that as well as a thousand.
_SILENT_FOR_S: Final = 1.0
_NAMES: Final = 3
_log = structlog.get_logger()


class SlowAppends:
    """Logs appends whose acknowledgement took longer than a threshold: one in a second, with how many were passed over.

    Attributes:
        threshold_s: Seconds; infinite for none, which it is at first.
    """

    def __init__(self, clock: Clock, vchannel_name: Callable[[int], str | None]) -> None:
        self.threshold_s = math.inf
        self._clock = clock
        self._vchannel_name = vchannel_name
        self._silent_until_s = 0.0
        self._passed_over = 0

    def set_threshold(self, milliseconds: int) -> None:
        """Change the threshold; 0 for none."""
        self.threshold_s = milliseconds / 1e3 if milliseconds else math.inf

    def note(
        self, took_s: float, vchannel_ids: Sequence[int], *, size_bytes: int, write_s: float, sync_s: float | None
    ) -> None:
        """Log the oldest append of a group, which took longer than the threshold.

        Args:
            took_s: From its arrival to its acknowledgement.
            vchannel_ids: Where it is.
            size_bytes: Of its group.
            write_s: What the write of the group took.
            sync_s: What its sync took; None if it was not synced.
        """
        now_s = self._clock.monotonic_s()
        if now_s < self._silent_until_s:
            self._passed_over += 1
            return
        names = [self._vchannel_name(vchannel_id) for vchannel_id in vchannel_ids[:_NAMES]]
        _log.warning(
            "slow_append",
            vchannels=[name for name in names if name is not None],
            vchannel_count=len(vchannel_ids),
            took_ms=_ms(took_s),
            # The rest it waited, for room or for the groups before it.
            write_ms=_ms(write_s),
            sync_ms=None if sync_s is None else _ms(sync_s),
            group_bytes=size_bytes,
            passed_over=self._passed_over,
        )
        self._silent_until_s = now_s + _SILENT_FOR_S
        self._passed_over = 0


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 1)
