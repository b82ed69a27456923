"""Waiting of a reader for its server: the time limit, log messages, and events for ``on_event``."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeVar

from tidelog.errors import (
    DeadlineError,
    DiskFullError,
    GroupFencedError,
    NotOwnerError,
    OwnershipLostError,
    PermissionDeniedError,
    TidelogError,
    UnauthenticatedError,
    UnavailableError,
)
from tidelog.read.reader_events import LAGGING_AFTER_S, WAITING_AFTER_S, OnEvent, ReaderEvent, ReaderState
from tidelog.tick import LOGICAL_BITS
from tidelog.transport.patience_scope import answer_by
from tidelog.transport.retry import may_repeat, retry_after_s
from tidelog.transport.transport import Transport

_log: Final = logging.getLogger("tidelog")
_Result = TypeVar("_Result")
# Maximum number of vchannels that a line of the log names.
_MAX_NAMES: Final = 5
_FENCING: Final = (GroupFencedError, OwnershipLostError, NotOwnerError, UnauthenticatedError, PermissionDeniedError)


class ReaderWatch:
    """The state of one reader, which may have several links to the server: a consumer has scans and a member stream.

    The reader waits, or lags, while one of its links does. Lives on the event loop of its client.

    Attributes:
        state: The state reported last; None before the first response.
    """

    def __init__(self, on_event: OnEvent | None = None) -> None:
        self.state: ReaderState | None = None
        self._on_event = on_event
        self._vchannels: tuple[str, ...] = ()
        # For each link without its server, the reason.
        self._lost: dict[object, TidelogError] = {}
        self._lost_since_s = 0.0
        self._lagging: set[object] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._has_logged = False
        # Upper bound of how far this machine's clock is ahead of the log's, from the watermarks so far.
        self._ahead_ms: int | None = None

    def reads(self, vchannels: Sequence[str]) -> None:
        """Set the vchannels that the reader reads."""
        self._vchannels = tuple(vchannels)

    def lost(self, link: object, error: TidelogError, transport: Transport, since_s: float) -> None:
        """Record that ``link`` has been without its server since ``since_s``, by the event loop's clock, and why.

        A repeated call updates the reason.
        """
        if isinstance(error, OwnershipLostError | GroupFencedError):
            self.fenced(error)
        is_first = not self._lost
        self._lost[link] = error
        if is_first:
            self._lost_since_s = since_s
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(since_s + WAITING_AFTER_S, self._report_waiting, transport)

    def answered(self, link: object) -> None:
        """Record that the server has answered ``link``."""
        was_lost = self._lost.pop(link, None) is not None
        if not self._lost and (was_lost or self.state not in ("connected", "lagging")):
            self._found()

    @property
    def reason(self) -> TidelogError | None:
        """Why the reader waits for its server; None if it does not, or the server is only silent."""
        return next(iter(self._lost.values()), None)

    def closed(self, link: object) -> None:
        """Record that ``link`` has ended, possibly while it waited or lagged."""
        self._lagging.discard(link)
        if self._lost.pop(link, None) is not None and not self._lost:
            self._stop_timer()

    def failed(self, link: object, error: TidelogError) -> None:
        """Record that ``link`` has ended with ``error``, which the reader raises."""
        if isinstance(error, _FENCING):
            self.fenced(error)
        self.closed(link)

    def fenced(self, error: TidelogError, vchannels: Sequence[str] | None = None) -> None:
        """Report that the reader has lost access; to ``vchannels`` if only some are affected, else to all."""
        if vchannels is not None or self.state != "fenced":
            names = self._vchannels if vchannels is None else tuple(vchannels)
            self._report(ReaderEvent("fenced", names, error))

    def slow(self, group: str, vchannels: Sequence[str], *, handling_s: float, lost_in_s: float) -> None:
        """Report that the caller of a consumer of ``group`` keeps vchannels for which another member waits.

        Args:
            group: The group.
            vchannels: The vchannels.
            handling_s: Time since the last delivery, in seconds.
            lost_in_s: Time until the first vchannel is lost, in seconds.
        """
        _log.warning(
            "a consumer of group %s delivered its last batch %.1f s ago, and another member waits for %s: that member "
            "gets them in %.1f s, with all messages that are not committed, unless the next batch is requested before",
            group, handling_s, ", ".join(vchannels[:_MAX_NAMES]), lost_in_s,
        )  # fmt: skip
        self._tell(ReaderEvent("slow", tuple(vchannels), handling_s=handling_s, lost_in_s=lost_in_s))

    def reached(self, link: object, last_tick: int, watermark: int) -> None:
        """Record the progress of a following reader.

        Args:
            link: The link that has received a response.
            last_tick: The last tick of a response; 0 if it has no messages.
            watermark: The response's watermark; 0 if it has no watermark.
        """
        now_ms = time.time_ns() // 1_000_000
        if watermark:
            ahead_ms = now_ms - (watermark >> LOGICAL_BITS)
            self._ahead_ms = ahead_ms if self._ahead_ms is None else min(self._ahead_ms, ahead_ms)
        tick = max(last_tick, watermark)
        if not tick:
            return
        lag_s = (now_ms - (self._ahead_ms or 0) - (tick >> LOGICAL_BITS)) / 1_000
        if lag_s > LAGGING_AFTER_S:
            self._lagging.add(link)
            if self.state == "connected":
                self._report(ReaderEvent("lagging", self._vchannels, lag_s=lag_s))
        else:
            self._lagging.discard(link)
            if self.state == "lagging" and not self._lagging:
                self._report(ReaderEvent("connected", self._vchannels))

    def _found(self) -> None:
        """Record that no link waits any more."""
        self._stop_timer()
        waited_s = asyncio.get_running_loop().time() - self._lost_since_s if self.state == "waiting" else 0.0
        if self._has_logged:
            self._has_logged = False
            _log.info("the reader of %s is connected again, after %.1f s", self._name, waited_s)
        if self.state in (None, "waiting", "fenced"):
            self._report(ReaderEvent("connected", self._vchannels, waited_s=waited_s))

    def _report_waiting(self, transport: Transport) -> None:
        self._timer = None
        error = self.reason
        if transport.may_warn():
            self._has_logged = True
            _log.warning(
                "the reader of %s waits for the server at %s, for up to %.0f s: %s",
                self._name, transport.endpoint, transport.retry.give_up_s, error,
            )  # fmt: skip
        self._report(ReaderEvent("waiting", self._vchannels, error))

    @property
    def _name(self) -> str:
        if not self._vchannels:
            return "vchannels not known yet"
        more = f" and {len(self._vchannels) - 1} more" if len(self._vchannels) > 1 else ""
        return f"{self._vchannels[0]}{more}"

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _report(self, event: ReaderEvent) -> None:
        self.state = event.state
        self._tell(event)

    def _tell(self, event: ReaderEvent) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception:  # noqa: BLE001 - a failing callback must not stop the reader
            _log.exception("the callback on_event raised on %r", event)


class Patience:
    """One wait of one link for its server, at most ``Retry.give_up_s``.

    Attributes:
        give_up_at_s: Its end, by the event loop's clock.
    """

    def __init__(self, watch: ReaderWatch, link: object, transport: Transport, give_up_s: float | None = None) -> None:
        self._watch = watch
        self._link = link
        self._transport = transport
        self._clock = asyncio.get_running_loop().time
        self._begin_s = self._clock()
        self.give_up_at_s = self._begin_s + (transport.retry.give_up_s if give_up_s is None else give_up_s)
        self._pauses_s = transport.retry.pauses_s()
        # When it started to connect, or lost the connection; None while it is connected.
        self._since_s: float | None = None
        self._has_failed = False

    @property
    def _left_s(self) -> float:
        return max(0.0, self.give_up_at_s - self._clock())

    def bounded(self, extra_s: float = 0.0) -> AbstractAsyncContextManager[None]:
        """Run a block that waits for the server, until the time is over or ``extra_s`` later.

        Raises:
            TidelogError: The server did not answer in time. The block was cancelled.
        """
        return answer_by(self.give_up_at_s + extra_s, self.silence)

    def silence(self) -> TidelogError:
        """Return the error of a server that did not answer in time: the one that it answered before, if any."""
        return self._watch.reason or UnavailableError(
            f"the server at {self._transport.endpoint} did not answer for {self._clock() - self._begin_s:.1f} s: check "
            "it, or raise Retry.give_up_s"
        )

    async def connected(self) -> None:
        """Return once the connection is established. Raises as ``Transport.ready``."""
        if self._since_s is None:
            self._since_s = self._clock()
        # The first attempt is short, so that the reason is known when the reader reports that it waits.
        timeout_s = self._left_s if self._has_failed else min(WAITING_AFTER_S, self._left_s)
        await self._transport.ready(timeout_s)
        if not self._has_failed:
            self._since_s = None

    async def bear(self, error: TidelogError, *, may_pass: bool | None = None) -> None:
        """Back off after ``error``, and return for a retry. Raises ``error`` if it is permanent or the time is over.

        Args:
            error: The failure of the last attempt.
            may_pass: Whether the error is temporary; None for the rule of plain reads.
        """
        pause_s = max(next(self._pauses_s), retry_after_s(error))
        may_pass = is_passing(error) if may_pass is None else may_pass
        if not may_pass or pause_s > self._left_s:
            self._watch.failed(self._link, error)
            raise error
        self._has_failed = True
        if self._since_s is None:
            self._since_s = self._clock()
        self._watch.lost(self._link, error, self._transport, self._since_s)
        await asyncio.sleep(pause_s)


def is_passing(error: TidelogError) -> bool:
    """Return whether a read that ended with ``error`` may be retried; a read without a response in time may be."""
    return may_repeat(error) or isinstance(error, DeadlineError)


async def patiently(
    watch: ReaderWatch,
    link: object,
    transport: Transport,
    attempt: Callable[[], Awaitable[_Result]],
    give_up_s: float | None = None,
) -> _Result:
    """Return what ``attempt`` returns; retry it while the server is unavailable. ``attempt`` must be idempotent."""
    patience = Patience(watch, link, transport, give_up_s)
    is_unknown = False
    with transport.waiting():
        while True:
            try:
                await patience.connected()
                result = await attempt()
            except TidelogError as error:
                # A DeadlineError is not retried: the caller sets the time limit of an attempt.
                is_unknown = is_unknown or error.effect == "unknown"
                error.effect = "unknown" if is_unknown else "none"
                is_away = isinstance(error, UnavailableError) and not isinstance(error, DiskFullError)
                await patience.bear(error, may_pass=is_away)
            else:
                watch.answered(link)
                return result
