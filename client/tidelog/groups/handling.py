"""What the caller of a consumer does with the batches that it has, and whether it takes too long.

A member has ``release_within_s`` to release a vchannel for which another member waits, and releases it when its caller
requests the next batch. A caller that does not do so in half of that time is reported.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

from tidelog.groups.member_queue import Holding
from tidelog.read.reader_watch import ReaderWatch
from tidelog.transport import tracing as _tracing
from tidelog.wire.batch import Batch

REPORTED_AT: Final = 0.5
"""Part of ``release_within_s`` after which a caller that has not released a vchannel is reported."""


class Revocations:
    """The vchannels for which other members wait, since when, and which of them were reported. Pure.

    Attributes:
        release_within_s: Time that the member has for each, in seconds.
    """

    def __init__(self, release_within_s: float) -> None:
        self.release_within_s = release_within_s
        # By vchannel the epoch, and the time at which the revocation was received.
        self._since_s: dict[str, tuple[int, float]] = {}
        self._reported: set[str] = set()

    def follow(self, holdings: Mapping[str, Holding], now_s: float) -> None:
        """Replace the revocations by those of ``holdings``; one that was there keeps its time."""
        before = self._since_s
        self._since_s = {}
        for name, holding in holdings.items():
            if holding.is_revoked:
                epoch, since_s = before.get(name, (0, now_s))
                self._since_s[name] = (holding.epoch, since_s if epoch == holding.epoch else now_s)
        self._reported = {name for name in self._reported if self._since_s.get(name) == before[name]}

    def next_s(self) -> float | None:
        """Return when to call ``due``; None if nothing is to be reported."""
        left = [since_s for name, (_, since_s) in self._since_s.items() if name not in self._reported]
        return min(left) + REPORTED_AT * self.release_within_s if left else None

    def due(self, now_s: float, epochs: Mapping[str, int]) -> tuple[list[str], float]:
        """Return which vchannels to report, and the seconds until the first of them is lost.

        Args:
            now_s: The time.
            epochs: The vchannels that the member has not released, with their epochs.
        """
        latest_s = now_s - REPORTED_AT * self.release_within_s
        found = [name for name, (_, since_s) in self._since_s.items() if since_s <= latest_s]
        late = sorted(
            name for name in found if name not in self._reported and self._since_s[name][0] == epochs.get(name)
        )
        self._reported.update(found)
        first_s = min((self._since_s[name][1] for name in late), default=now_s)
        return late, max(0.0, first_s + self.release_within_s - now_s)


class Handling:
    """The time that the caller takes from the delivery of batches to its next request.

    The caller's thread delivers, which for a synchronous consumer is not that of the event loop; ``revoked`` and the
    timer run on the event loop.
    """

    def __init__(
        self,
        group: str,
        release_within_s: float,
        watch: ReaderWatch,
        epochs: Callable[[], Mapping[str, int]],
        endpoint: Callable[[], str],
    ) -> None:
        """Begin without batches.

        Args:
            group: Name of the group.
            release_within_s: See ``Revocations``.
            watch: Reports a caller that takes too long.
            epochs: Returns the vchannels that the consumer has not released, with their epochs.
            endpoint: Returns the address of the server.
        """
        self._group = group
        self._watch = watch
        self._epochs = epochs
        self._endpoint = endpoint
        self._revocations = Revocations(release_within_s)
        # Since when the caller has what was delivered last.
        self._since_s = time.monotonic()
        # Measured only while measures are wanted: the vchannels of the batches in hand, and when the first was taken.
        self._measured: list[str] = []
        self._begin_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def took(self, batch: Batch) -> None:
        """Record that the caller has received ``batch``."""
        self._since_s = time.monotonic()
        if (hooks := _tracing.hooks) is not None:
            hooks.consumed(batch, self._group, self._endpoint())
            self._begin_s = self._begin_s if self._measured else self._since_s
            self._measured.append(batch.vchannel)

    def ended(self, error: BaseException | None = None) -> None:
        """Record that the caller has processed all batches, or has failed."""
        if self._measured:
            vchannels, self._measured = self._measured, []
            if (hooks := _tracing.hooks) is not None:
                hooks.processed(vchannels, self._group, self._endpoint(), time.monotonic() - self._begin_s, error)

    def revoked(self, holdings: Mapping[str, Holding]) -> None:
        """Note for which of the member's vchannels other members wait."""
        self._revocations.follow(holdings, time.monotonic())
        self._set_timer()

    def close(self) -> None:
        """Report nothing more."""
        self._revocations.follow({}, 0.0)
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (at_s := self._revocations.next_s()) is not None:
            self._timer = asyncio.get_running_loop().call_later(at_s - time.monotonic(), self._look)

    def _look(self) -> None:
        now_s = time.monotonic()
        late, lost_in_s = self._revocations.due(now_s, self._epochs())
        if late:
            self._watch.slow(self._group, late, handling_s=now_s - self._since_s, lost_in_s=lost_in_s)
        self._set_timer()
