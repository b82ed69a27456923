"""How a reader waits for its server: how long, what it logs meanwhile, and what it reports to ``on_event``."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from tidelog._errors import (
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
from tidelog._reader_events import LAGGING_AFTER_S, WAITING_AFTER_S, OnEvent, ReaderEvent, ReaderState
from tidelog._retry import may_repeat, retry_after_s
from tidelog._tick import LOGICAL_BITS
from tidelog._transport import Transport

_log: Final = logging.getLogger("tidelog")
_Result = TypeVar("_Result")
_FENCING: Final = (GroupFencedError, OwnershipLostError, NotOwnerError, UnauthenticatedError, PermissionDeniedError)


class ReaderWatch:
    """The state of one reader, which may consist of several links to the server: the scan and the member of a consumer.

    The reader waits while one of its links does. Lives on the event loop of its client.

    Attributes:
        state: What was reported last; None before the first answer.
    """

    def __init__(self, on_event: OnEvent | None = None) -> None:
        self.state: ReaderState | None = None
        self._on_event = on_event
        self._vchannels: tuple[str, ...] = ()
        # Of links without their server: why.
        self._lost: dict[object, TidelogError] = {}
        self._lost_since_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._has_logged = False
        # How far this machine's clock is ahead of the log's at most, by the watermarks so far.
        self._ahead_ms: int | None = None

    def reads(self, vchannels: Sequence[str]) -> None:
        """Note what the reader reads."""
        self._vchannels = tuple(vchannels)

    def lost(self, link: object, error: TidelogError, transport: Transport, since_s: float) -> None:
        """Note that ``link`` is without its server since ``since_s``, by the event loop's clock, and why.

        Repeating it updates the reason.
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
        """Note that the server has answered ``link``."""
        was_lost = self._lost.pop(link, None) is not None
        if not self._lost and (was_lost or self.state not in ("connected", "lagging")):
            self._found()

    def closed(self, link: object) -> None:
        """Note that ``link`` has ended, also while it waited."""
        if self._lost.pop(link, None) is not None and not self._lost:
            self._stop_timer()

    def failed(self, link: object, error: TidelogError) -> None:
        """Note that ``link`` has ended with ``error``, which the reader raises."""
        if isinstance(error, _FENCING):
            self.fenced(error)
        self.closed(link)

    def fenced(self, error: TidelogError, vchannels: Sequence[str] | None = None) -> None:
        """Report that the reader may not read on as before; on ``vchannels``, if only some are concerned."""
        if vchannels is not None or self.state != "fenced":
            names = self._vchannels if vchannels is None else tuple(vchannels)
            self._report(ReaderEvent("fenced", names, error))

    def reached(self, last_tick: int, watermark: int) -> None:
        """Note how far a reader that follows has got: the last tick of a response, and its watermark; 0 for none."""
        now_ms = time.time_ns() // 1_000_000
        if watermark:
            ahead_ms = now_ms - (watermark >> LOGICAL_BITS)
            self._ahead_ms = ahead_ms if self._ahead_ms is None else min(self._ahead_ms, ahead_ms)
        tick = max(last_tick, watermark)
        if not tick:
            return
        lag_s = (now_ms - (self._ahead_ms or 0) - (tick >> LOGICAL_BITS)) / 1_000
        if lag_s > LAGGING_AFTER_S and self.state == "connected":
            self._report(ReaderEvent("lagging", self._vchannels, lag_s=lag_s))
        elif lag_s <= LAGGING_AFTER_S and self.state == "lagging":
            self._report(ReaderEvent("connected", self._vchannels))

    def _found(self) -> None:
        """Note that no link waits any more."""
        self._stop_timer()
        waited_s = asyncio.get_running_loop().time() - self._lost_since_s if self.state == "waiting" else 0.0
        if self._has_logged:
            self._has_logged = False
            _log.info("the reader of %s is connected again, after %.1f s", self._name, waited_s)
        if self.state in (None, "waiting", "fenced"):
            self._report(ReaderEvent("connected", self._vchannels, waited_s=waited_s))

    def _report_waiting(self, transport: Transport) -> None:
        self._timer = None
        error = next(iter(self._lost.values()))
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
            return "vchannels that are not known yet"
        more = f" and {len(self._vchannels) - 1} more" if len(self._vchannels) > 1 else ""
        return f"{self._vchannels[0]}{more}"

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _report(self, event: ReaderEvent) -> None:
        self.state = event.state
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception:  # noqa: BLE001 - the reader does not depend on it
            _log.exception("the callback on_event failed on %r", event)


class Patience:
    """One wait of one link for its server, ``Retry.give_up_s`` at most."""

    def __init__(self, watch: ReaderWatch, link: object, transport: Transport, give_up_s: float | None = None) -> None:
        self._watch = watch
        self._link = link
        self._transport = transport
        self._clock = asyncio.get_running_loop().time
        self._give_up_at = self._clock() + (transport.retry.give_up_s if give_up_s is None else give_up_s)
        self._pauses_s = transport.retry.pauses_s()
        # When it began to connect, or lost the connection; None while it is connected.
        self._since_s: float | None = None
        self._has_failed = False

    @property
    def _left_s(self) -> float:
        return max(0.0, self._give_up_at - self._clock())

    async def connected(self) -> None:
        """Return once the connection stands. Raises as ``Transport.ready``."""
        if self._since_s is None:
            self._since_s = self._clock()
        # The first try is short, so that the reason is known once the reader reports that it waits.
        timeout_s = self._left_s if self._has_failed else min(WAITING_AFTER_S, self._left_s)
        await self._transport.ready(timeout_s)
        if not self._has_failed:
            self._since_s = None

    async def bear(self, error: TidelogError, *, may_pass: bool | None = None) -> None:
        """Pause after ``error``, and return to try again. Raises ``error`` if that is in vain, or the time is over.

        ``may_pass`` says whether it is in vain; None for the rule of plain reads.
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
    """Return whether a read that ended with ``error`` may be made again; also where no answer came in time."""
    return may_repeat(error) or isinstance(error, DeadlineError)


async def patiently(
    watch: ReaderWatch,
    link: object,
    transport: Transport,
    attempt: Callable[[], Awaitable[_Result]],
    give_up_s: float | None = None,
) -> _Result:
    """Return what ``attempt`` returns, repeating it while the server is away: twice must be the same as once."""
    patience = Patience(watch, link, transport, give_up_s)
    is_unknown = False
    with transport.waiting():
        while True:
            try:
                await patience.connected()
                result = await attempt()
            except TidelogError as error:
                # Not where it did not answer in time: how long an attempt may take is the caller's affair.
                is_unknown = is_unknown or error.effect == "unknown"
                error.effect = "unknown" if is_unknown else "none"
                is_away = isinstance(error, UnavailableError) and not isinstance(error, DiskFullError)
                await patience.bear(error, may_pass=is_away)
            else:
                watch.answered(link)
                return result
