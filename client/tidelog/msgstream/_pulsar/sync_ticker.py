"""The synchronous twin of the ticker."""

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from tidelog.msgstream._backends.pulsar.broker import PulsarBroker
from tidelog.msgstream._pulsar.ticker import DEFAULT_TICK_INTERVAL_MS, AsyncTimeTicker, present
from tidelog.transport.background import background


class TimeTicker:
    """Writes a tick to each of several topics at an interval, in the background. See ``AsyncTimeTicker``."""

    def __init__(
        self,
        broker: PulsarBroker,
        topics: Iterable[str],
        *,
        interval_ms: int = DEFAULT_TICK_INTERVAL_MS,
        safe_time: Callable[[], int] = present,
    ) -> None:
        """Create a ticker; does no I/O. ``safe_time`` runs on a background thread, so it must not block."""
        self._ticker = AsyncTimeTicker(broker, topics, interval_ms=interval_ms, safe_time=safe_time)
        background.add(self)

    async def pause(self) -> bool:
        """Return whether a fork may stop the event loop: while no ticks are written."""
        return not self._ticker.is_running

    @property
    def last_tick(self) -> int:
        """The last tick that was written."""
        return self._ticker.last_tick

    def start(self) -> None:
        """Take the topics over, and begin to write ticks. Raises as ``AsyncTimeTicker.start``."""
        background.run(self._ticker.start())

    def wait(self) -> None:
        """Wait until the ticker ends. Raises as ``AsyncTimeTicker.wait``."""
        background.run(self._ticker.wait())

    def close(self) -> None:
        """Stop. Idempotent."""
        background.run(self._ticker.close())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
