"""The log of a node that this process does not serve, applied to a view until it is claimed."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import structlog

from tidelog_server.cluster.log_records import Lag
from tidelog_server.recordlog.engine import EngineUnavailableError, PositionGoneError
from tidelog_server.runtime.clock import Clock
from tidelog_server.storage.engine.open import PreparedStore
from tidelog_server.storage.engine.store import EngineLogStore

# How long a read waits for a record, before it is looked whether this has ended.
_WAIT_S: Final = 0.1
# How often the end of a log is asked for. Brokers tell it in a millisecond.
_MEASURE_EVERY_S: Final = 1.0
_log = structlog.get_logger()

PrepareStore = Callable[[Callable[[], bool]], PreparedStore]
"""Opens the view of a log, which is abandoned once the argument returns True: it may be gigabytes. Blocks, and raises
as ``prepare_engine_store`` and the engine do."""


class FollowedLog:
    """Applies a log on a thread of its own, because reads wait for the engine. Lives on the event loop.

    Attributes:
        failure: Why it is not applied any more; None while it is. Call ``close`` then.
        has_caught_up: Whether it was once applied up to its end.
    """

    def __init__(self, node_id: str, prepare: PrepareStore, on_change: Callable[[], None], clock: Clock) -> None:
        """Do nothing yet.

        Args:
            node_id: The node, for the log of the process.
            prepare: Opens the view.
            on_change: Called on the event loop after an attribute has changed.
            clock: Source of time.
        """
        self.failure: Exception | None = None
        self.has_caught_up = False
        self._node_id = node_id
        self._prepare = prepare
        self._on_change = on_change
        self._clock = clock
        # The last lag that was measured, and when the log was last applied up to its end; from the thread.
        self._positions: int | None = None
        self._complete_s = clock.monotonic_s()
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"log-{node_id}")
        # Set once it is not applied any more, by the claim too; and once nothing of it is wanted.
        self._is_ended, self._is_abandoned = threading.Event(), threading.Event()
        # Used by the thread only.
        self._prepared: PreparedStore | None = None
        self._store: EngineLogStore | None = None

    def lag(self) -> Lag | None:
        """Return how far the view is behind; None until that is known."""
        positions = self._positions
        return None if positions is None else Lag(positions, self._clock.monotonic_s() - self._complete_s)

    def start(self) -> None:
        """Apply the log from now on."""
        self._thread.submit(self._run)

    async def claim(self, term: int) -> EngineLogStore:
        """Claim the log in ``term`` and return its store; call ``release`` or ``close`` afterwards, also if it fails.

        Raises:
            As ``PrepareStore`` and ``PreparedStore.claim`` do.
        """
        self._is_ended.set()
        return await self._loop.run_in_executor(self._thread, self._claim, term)

    def release(self) -> None:
        """End the thread; the store that was claimed belongs to the caller."""
        self._thread.shutdown(wait=False)

    async def close(self) -> None:
        """End, and close the view, or the store that was claimed."""
        self._is_ended.set()
        self._is_abandoned.set()
        await self._loop.run_in_executor(self._thread, self._close)
        self.release()

    def _run(self) -> None:
        try:
            while not self._is_ended.is_set():
                self._follow(self._opened())
        except Exception as error:  # noqa: BLE001 - the event loop raises it, or logs it
            self._loop.call_soon_threadsafe(self._failed, error)

    def _follow(self, prepared: PreparedStore) -> None:
        """Apply the log until this ends, or the view must be opened again."""
        was_silent = False
        measure_s = self._clock.monotonic_s()
        while not self._is_ended.is_set():
            try:
                prepared.follow(_WAIT_S)
                if measure_s <= (now_s := self._clock.monotonic_s()):
                    self._measure(prepared)
                    measure_s = now_s + _MEASURE_EVERY_S
                is_silent = False
            except PositionGoneError as error:
                _log.warning("view_is_behind", node=self._node_id, problem=str(error))
                self._close()
                return
            except EngineUnavailableError as error:
                is_silent = True
                if not was_silent:
                    _log.warning("followed_log_silent", node=self._node_id, problem=str(error))
            was_silent = is_silent
            if not self.has_caught_up and prepared.has_caught_up:
                self._loop.call_soon_threadsafe(self._caught_up)
            if is_silent:
                self._is_ended.wait(_WAIT_S)

    def _measure(self, prepared: PreparedStore) -> None:
        asked_s = self._clock.monotonic_s()
        self._positions = prepared.behind()
        if not self._positions:
            self._complete_s = asked_s

    def _claim(self, term: int) -> EngineLogStore:
        self._store = self._opened().claim(term)
        return self._store

    def _opened(self) -> PreparedStore:
        if self._prepared is None:
            self._prepared = self._prepare(self._is_abandoned.is_set)
        return self._prepared

    def _close(self) -> None:
        if self._store is not None:
            self._store.close()
        elif self._prepared is not None:
            self._prepared.close()
        self._prepared = None

    def _caught_up(self) -> None:
        self.has_caught_up = True
        _log.info("log_caught_up", node=self._node_id)
        self._on_change()

    def _failed(self, error: Exception) -> None:
        self.failure = error
        self._on_change()
