"""The appends to one journal, from the first frame to the answer. Pure.

Frames gather in a batch, which is the unit of sending and of retries. Invariants I1 to I5 are those without which a
read-committed reader would lose or repeat messages. Source: Gazette's message and client packages, where they are
implied.
"""

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from tidelog.append.sender import ProducerBatch, Room, Sender
from tidelog.errors import BufferFullError, ClosedError, ProducerStoppedError, TidelogError
from tidelog.wire.columns import MAX_MESSAGES_PER_BATCH

MAX_BATCH_BYTES: Final = 1 << 20
"""Size at which a batch takes no more frames, the memory of its objects included."""
FRAME_OVERHEAD_BYTES: Final = 48
"""Memory of a frame besides its bytes: its object, and its place in the list."""


class AppendHandle:
    """What the callers of a batch share.

    Attributes:
        journal: Name of the journal.
        future: Receives the position of the batch, or the error.
    """

    __slots__ = ("future", "journal")

    def __init__(self, journal: str, future: Any) -> None:
        self.journal = journal
        self.future = future

    def done(self) -> bool:
        """Return whether the frames are acknowledged or the append has failed."""
        return bool(self.future.done())


Handle = TypeVar("Handle", bound=AppendHandle)


@dataclass(slots=True, eq=False)
class FrameBatch(ProducerBatch, Generic[Handle]):
    """Frames that travel in one request, and are sent again as a whole. It grows until it is full, or sent.

    Attributes:
        handle: The object that all callers of the batch share, to wait for it.
        unmet: Number of appends and futures that must succeed before the batch is sent.
    """

    handle: Handle = field(kw_only=True)
    unmet: int = field(kw_only=True)

    def seal(self) -> int:
        """Keep out the threads that add frames, from now on."""
        with self.sender.lock:
            if self.sender.gathering is self:
                self.sender.gathering = None
            return ProducerBatch.seal(self)


class JournalQueue(Sender[FrameBatch[Handle]], Generic[Handle]):
    """The exclusive append slot of one journal, and its batches in the order of the calls.

    A batch is passed to the append stream with its first frame; before, it waits here while the channel of the journal
    is not known, or it or one before it has an unmet dependency. Its bytes are counted in the room, and only there.

    Invariant (I2): batches are sent in the order in which they were begun, each as one numbered batch of one producer,
    which repeats it unchanged until it is answered, before anything later is written. The first failure stops the
    queue, so nothing follows a gap.
    Calls are made on the event loop; ``add`` and ``add_first`` in any thread, if they hold the lock.

    Attributes:
        journal: Name of the journal.
        last: The batch that was begun last; None before the first.
        lost_frames: Number of frames that were not appended, or whose outcome is unknown.
        unwritten_intents: Acknowledgements that a publisher has built and that are not appended yet.
    """

    def __init__(
        self,
        journal: str,
        room: Room,
        make: Callable[[], Handle],
        begun: Callable[[], object],
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        """Create an empty queue.

        Args:
            journal: Name of the journal.
            room: Memory that the queue shares with those of other journals.
            make: Returns the handle of a new batch.
            begun: Called when a batch was begun or may be sent, so that ``ready`` is called soon.
            lock: What callers hold that add frames in other threads.
        """
        super().__init__(room, self._error_of_unsent, lock or nullcontext())
        self.journal = journal
        self.last: FrameBatch[Handle] | None = None
        self.lost_frames = 0
        self.unwritten_intents: set[bytes] = set()
        self._make = make
        self._begun = begun
        self._held: deque[FrameBatch[Handle]] = deque()
        self._is_closed = False

    def add(self, frame: bytes) -> Handle:
        """Append ``frame`` after everything that was added before, and return the handle of its batch.

        Raises:
            TypeError: The frame is not bytes. It was not added.
            BufferFullError: There is no room. The frame was not added.
            ProducerStoppedError: An earlier append to the journal failed. The frame was not added.
            ClosedError: The queue is closed. The frame was not added.
        """
        if type(frame) is not bytes:
            raise self._type_error(frame)
        size_bytes = len(frame) + FRAME_OVERHEAD_BYTES
        room = self.room
        used_bytes = room.used_bytes + size_bytes
        if used_bytes > room.limit_bytes and room.used_bytes:
            raise self._full()
        batch = self.gathering
        if (
            batch is None
            or batch.growing_bytes + size_bytes > MAX_BATCH_BYTES
            or len(batch.messages) == MAX_MESSAGES_PER_BATCH
        ):
            batch = self._begin()
        room.used_bytes = used_bytes
        batch.growing_bytes += size_bytes
        batch.messages.append(frame)
        return batch.handle

    def add_first(self, frame: bytes, unmet: int = 0) -> FrameBatch[Handle]:
        """Append ``frame`` as the first of a new batch, which is sent once ``unmet`` dependencies are met.

        Invariant (I4): an acknowledgement is added with this method, so it is the first of its batch, and the next one
        is in another batch. Frames that follow ride behind it, as repeating (ACK, next CONTINUEs) is safe.
        Its size is counted, but it is accepted without room, because only acknowledgements free what waits for them.

        Raises:
            TypeError, ProducerStoppedError, ClosedError: As ``add``.
        """
        if type(frame) is not bytes:
            raise self._type_error(frame)
        batch = self._begin(unmet)
        batch.growing_bytes = len(frame) + FRAME_OVERHEAD_BYTES
        batch.messages.append(frame)
        self.room.used_bytes += batch.growing_bytes
        self.unwritten_intents.discard(frame)
        return batch

    def met(self, batch: FrameBatch[Handle]) -> None:
        """Record that one dependency of ``batch`` has succeeded."""
        batch.unmet -= 1
        self._begun()

    def ready(self) -> list[FrameBatch[Handle]]:
        """Return the batches that were not returned before and may be sent, for the append stream."""
        ready = []
        with self.lock:
            while self._held and not self._held[0].unmet:
                ready.append(self._held.popleft())
        return ready

    def settled(self, batch: FrameBatch[Handle], error: TidelogError | None = None) -> None:
        """Record that ``batch`` was answered, or has failed with ``error``; that stops the queue."""
        super().settled(batch, error)
        if error is not None:
            self._held.clear()
            self.lost_frames += batch.count

    def lost_only(self, handle: Handle) -> bool:
        """Return whether the batch of ``handle`` has failed with one frame, and no other frame is lost or in flight."""
        is_last = self.last is not None and self.last.handle is handle
        return is_last and self.lost_frames == 1 and not self._unsettled

    def close(self) -> None:
        """Refuse further frames with ClosedError, also after a failure, and fail what is not sent."""
        self._is_closed = True
        self.stop(ClosedError(f"the journal client was closed before it appended to {self.journal}"))

    def stopped(self) -> TidelogError:
        """Return the error of appends after the failed one, or after ``close``."""
        if self._is_closed:
            return closed_error(self.journal)
        error = ProducerStoppedError(
            f"appends to {self.journal} stopped because an earlier one failed ({self.failure}): create another journal "
            "client and another publisher, and continue from the last checkpoint"
        )
        error.__cause__ = self.failure
        return error

    @property
    def has_passed(self) -> bool:
        """Whether the append stream has batches of the journal."""
        return len(self._unsettled) > len(self._held)

    def _error_of_unsent(self) -> TidelogError:
        return self.failure if self._is_closed and self.failure is not None else self.stopped()

    def _begin(self, unmet: int = 0) -> FrameBatch[Handle]:
        if self.failure is not None:
            raise self.stopped()
        handle = self._make()
        batch = FrameBatch([], True, 0, handle.future, sender=self, handle=handle, unmet=unmet)
        self.last = batch
        self.begin(batch)
        self._held.append(batch)
        self._begun()
        return batch

    def _type_error(self, frame: object) -> TypeError:
        # A subclass is refused as well: only bytes are sent unchanged for sure, and one comparison is all that fits.
        return TypeError(
            f"a frame for {self.journal} is a {type(frame).__name__}, expected bytes: convert it with bytes(frame)"
        )

    def _full(self) -> BufferFullError:
        return BufferFullError(
            f"{self.room.used_bytes} bytes wait to be acknowledged, the limit is {self.room.limit_bytes}: wait for "
            "room(), or raise max_pending_bytes"
        )


def closed_error(journal: str) -> ClosedError:
    """Return the error of appends to a closed journal client."""
    return ClosedError(f"the journal client is closed: create a new one to append to {journal}")
