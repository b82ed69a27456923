"""The sequencer with the interface of Gazette's message package before September 2021, on the current rules."""

from collections.abc import Iterable, Iterator

from tidelog.gazette.checkpoints import ProducerState
from tidelog.gazette.messages import Envelope, Offset, Offsets
from tidelog.gazette.sequencer.core import DEFAULT_RING_SIZE, StepSequencer


class Sequencer:
    """Sequences the messages of any number of journals and producers; not safe for concurrent use.

    Pass each message that was read to ``queue_uncommitted``, and then call ``deque_committed`` until it raises
    ``EOFError``. It raises ``MustStartReplayError`` if messages must be read again: pass an iterator over
    ``replay_range`` to ``start_replay``, and resume. The caller keeps the positions up to which it has read.

    ``StepSequencer`` has the current interface, which keeps these positions and permits checkpoints at any message.

    Args:
        states: State of each producer, from ``producer_states``.
        buffer: Messages that the ring holds, over all journals and producers; at least 1.
    """

    __slots__ = ("_core",)

    def __init__(self, states: Iterable[ProducerState] = (), buffer: int = DEFAULT_RING_SIZE) -> None:
        self._core = StepSequencer({}, states, buffer)

    def queue_uncommitted(self, envelope: Envelope) -> None:
        """Apply the next message that was read; messages of a journal come in the order of their positions.

        Raises:
            RuntimeError: Committed messages remain to dequeue.
        """
        self._consume_all("queue a message")
        self._core.queue(envelope)

    def deque_committed(self) -> Envelope:
        """Return the next committed message.

        Raises:
            EOFError: No committed message remains; queue the next message that was read.
            MustStartReplayError: A replay of ``replay_range()`` must be started first.
            ReplayError: The replay failed, or read outside of ``replay_range()``. Start another one.
        """
        if not self._core.step():
            raise EOFError("no committed message remains: queue the next message that was read")
        envelope = self._core.dequeued
        assert envelope is not None
        return envelope

    def replay_range(self) -> tuple[Offset, Offset]:
        """Return the half-open range of positions to replay, in the journal of the message that was queued last.

        Raises:
            RuntimeError: ``deque_committed`` did not raise ``MustStartReplayError``.
        """
        _, begin, end = self._core.replay_range()
        return begin, end

    def start_replay(self, replayed: Iterator[Envelope]) -> None:
        """Take the messages of ``replay_range()`` from ``replayed``; ``deque_committed`` reads it.

        Raises:
            RuntimeError: ``deque_committed`` did not raise ``MustStartReplayError``.
        """
        self._core.start_replay(replayed)

    def producer_states(self, prune_horizon_s: float = 0.0) -> list[ProducerState]:
        """Return the state of each producer, after forgetting old ones as ``StepSequencer.checkpoint`` does.

        Raises:
            RuntimeError: Committed messages remain to dequeue.
        """
        self._consume_all("take the states")
        return list(self._core.checkpoint(prune_horizon_s).states)

    def has_pending(self, since: Offsets) -> bool:
        """Return whether a transaction is open that began at its journal's position in ``since`` or later.

        A journal that ``since`` does not have counts from position 0.
        """
        return self._core.has_pending_since(since)

    def _consume_all(self, action: str) -> None:
        if self._core.is_draining:
            raise RuntimeError(
                f"committed messages remain: call deque_committed until it raises EOFError, then {action}"
            )
        self._core.consume()
