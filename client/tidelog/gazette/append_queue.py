"""The appends to one journal, from the first frame to the answer. Pure.

Frames gather in a batch, which is the unit of sending and of retries. Invariants I1 to I5 are those without which a
read-committed reader would lose or repeat messages. Source: Gazette's message and client packages, where they are
implied.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Generic, Self, TypeVar

from tidelog.errors import BufferFullError, ClosedError, ProducerStoppedError, TidelogError
from tidelog.wire.columns import MAX_MESSAGES_PER_BATCH

Handle = TypeVar("Handle")

MAX_BATCH_BYTES: Final = 1 << 20
"""Size at which a batch takes no more frames, the memory of its objects included."""
MAX_IN_FLIGHT: Final = 8
"""Maximum number of unanswered batches of one journal."""
_EAGER_BATCHES: Final = 2
"""With as many unanswered batches, frames gather until a batch is full or an answer arrives."""
FRAME_OVERHEAD_BYTES: Final = 48
"""Memory of a frame besides its bytes: its object, and its place in the list."""


@dataclass(slots=True)
class Room:
    """The memory that frames of all journals of a client may occupy until they are acknowledged.

    Attributes:
        limit_bytes: Maximum number of bytes.
        used_bytes: Bytes in use.
    """

    limit_bytes: int
    used_bytes: int = 0

    @classmethod
    def of(cls, limit_bytes: int) -> Self:
        """Return unused room of ``limit_bytes``; raise ValueError if that is not positive."""
        if limit_bytes < 1:
            raise ValueError(f"max_pending_bytes is {limit_bytes}, expected 1 or more")
        return cls(limit_bytes)


@dataclass(slots=True, eq=False)
class FrameBatch(Generic[Handle]):
    """Frames that travel in one request, and are sent again as a whole.

    Attributes:
        handle: The object that all callers of the batch share, to wait for it.
        unmet: Number of appends and futures that must succeed before the batch is sent.
        frames: The frames, at least one.
        size_bytes: Their size, with ``FRAME_OVERHEAD_BYTES`` for each.
    """

    handle: Handle
    unmet: int = 0
    frames: list[bytes] = field(default_factory=list)
    size_bytes: int = 0


class JournalQueue(Generic[Handle]):
    """The exclusive append slot of one journal, and its batches in the order of the calls.

    Invariant (I2): batches are sent in the order in which they were begun, each as one numbered batch of one producer,
    which repeats it unchanged until it is answered, before anything later is written. The first failure stops the
    queue, so nothing follows a gap.
    Not thread-safe: calls are made in one thread, or under one lock.

    Attributes:
        journal: Name of the journal.
        last: The batch that was begun last; None before the first.
        failure: What stopped the queue; None while it works.
        lost_frames: Number of frames that were not appended, or whose outcome is unknown.
        unwritten_intents: Acknowledgements that a publisher has built and that are not appended yet.
    """

    __slots__ = ("_begun", "_closed", "_gathering", "_in_flight", "_is_closed", "_make", "_room", "failure", "journal",
                 "last", "lost_frames", "unwritten_intents")  # fmt: skip

    def __init__(self, journal: str, room: Room, make: Callable[[], Handle], begun: Callable[[], None]) -> None:
        """Create an empty queue.

        Args:
            journal: Name of the journal.
            room: Memory that the queue shares with those of other journals.
            make: Returns the handle of a new batch.
            begun: Called when a batch was begun or may be sent, so that ``next`` is called soon.
        """
        self.journal = journal
        self.last: FrameBatch[Handle] | None = None
        self.failure: TidelogError | None = None
        self.lost_frames = 0
        self.unwritten_intents: set[bytes] = set()
        self._room = room
        self._make = make
        self._begun = begun
        self._gathering: FrameBatch[Handle] | None = None
        self._closed: deque[FrameBatch[Handle]] = deque()
        self._in_flight = 0
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
        room = self._room
        used_bytes = room.used_bytes + size_bytes
        if used_bytes > room.limit_bytes and room.used_bytes:
            raise self._full()
        batch = self._gathering
        if (
            batch is None
            or batch.size_bytes + size_bytes > MAX_BATCH_BYTES
            or len(batch.frames) == MAX_MESSAGES_PER_BATCH
        ):
            batch = self._begin()
        room.used_bytes = used_bytes
        batch.size_bytes += size_bytes
        batch.frames.append(frame)
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
        batch = self._begin()
        batch.unmet = unmet
        batch.size_bytes = len(frame) + FRAME_OVERHEAD_BYTES
        batch.frames.append(frame)
        self._room.used_bytes += batch.size_bytes
        self.unwritten_intents.discard(frame)
        return batch

    def met(self, batch: FrameBatch[Handle]) -> None:
        """Record that one dependency of ``batch`` has succeeded."""
        batch.unmet -= 1
        self._begun()

    def next(self) -> FrameBatch[Handle] | None:
        """Return the next batch to send, which then counts as in flight; None if nothing may be sent now."""
        if self.failure is not None:
            return None
        if self._closed:
            if self._closed[0].unmet or self._in_flight >= MAX_IN_FLIGHT:
                return None
        elif self._gathering is None or self._gathering.unmet or self._in_flight >= _EAGER_BATCHES:
            return None
        else:
            self._close()
        self._in_flight += 1
        return self._closed.popleft()

    def settled(self, batch: FrameBatch[Handle]) -> None:
        """Record that a batch in flight was answered: it occupies no memory any more."""
        self._in_flight -= 1
        self._room.used_bytes -= batch.size_bytes

    def failed(self, batch: FrameBatch[Handle], error: TidelogError) -> list[FrameBatch[Handle]]:
        """Record that a batch in flight has failed; otherwise as ``stop``."""
        self.settled(batch)
        self.lost_frames += len(batch.frames)
        return self.stop(error)

    def lost_only(self, handle: Handle) -> bool:
        """Return whether the batch of ``handle`` has failed with one frame, and no other frame is lost or in flight."""
        is_last = self.last is not None and self.last.handle is handle
        return is_last and self.lost_frames == 1 and not self._in_flight

    def stop(self, error: TidelogError) -> list[FrameBatch[Handle]]:
        """Stop at the first failure; return the batches that were not sent, and never will be."""
        if self.failure is not None:
            return []
        self.failure = error
        self._close()
        unsent = list(self._closed)
        self._closed.clear()
        self.lost_frames += sum(len(batch.frames) for batch in unsent)
        self._room.used_bytes -= sum(batch.size_bytes for batch in unsent)
        return unsent

    def close(self, error: ClosedError) -> list[FrameBatch[Handle]]:
        """Refuse further frames with ClosedError, also after a failure; otherwise as ``stop``."""
        self._is_closed = True
        return self.stop(error)

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
    def is_settled(self) -> bool:
        """Whether everything that was added is acknowledged."""
        is_idle = self._gathering is None and not self._closed and not self._in_flight
        return is_idle and self.failure is None

    def _begin(self) -> FrameBatch[Handle]:
        if self.failure is not None:
            raise self.stopped()
        self._close()
        self.last = self._gathering = FrameBatch(self._make())
        self._begun()
        return self._gathering

    def _close(self) -> None:
        if self._gathering is not None:
            self._closed.append(self._gathering)
            self._gathering = None

    def _type_error(self, frame: object) -> TypeError:
        # A subclass is refused as well: only bytes are sent unchanged for sure, and one comparison is all that fits.
        return TypeError(
            f"a frame for {self.journal} is a {type(frame).__name__}, expected bytes: convert it with bytes(frame)"
        )

    def _full(self) -> BufferFullError:
        return BufferFullError(
            f"{self._room.used_bytes} bytes wait to be acknowledged, the limit is {self._room.limit_bytes}: wait for "
            "room(), or raise max_pending_bytes"
        )


def closed_error(journal: str) -> ClosedError:
    """Return the error of appends to a closed journal client."""
    return ClosedError(f"the journal client is closed: create a new one to append to {journal}")
