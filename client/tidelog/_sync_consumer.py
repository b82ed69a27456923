"""The synchronous twin of the consumer."""

from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Self

from tidelog._background import background
from tidelog._batch import Batch
from tidelog._consumer import AsyncConsumer
from tidelog._errors import TidelogError
from tidelog._tick import Tick
from tidelog._types import PositionCommit


class Consumer(Iterator[Batch]):
    """A member of a consumer group: ``with`` joins, ``for batch in consumer`` delivers. See ``AsyncConsumer``.

    Functions that are told of vchannels run on the client's own thread: they must not call this client.
    """

    def __init__(self, consumer: AsyncConsumer) -> None:
        self._consumer = consumer
        self.group = consumer.group
        self.channels = consumer.channels
        self.member_id = consumer.member_id
        self.auto_commit = consumer.auto_commit

    @property
    def assignment(self) -> tuple[str, ...]:
        """The vchannels that this member delivers now, in order of name."""
        return self._consumer.assignment

    @property
    def positions(self) -> Mapping[str, Tick]:
        """For each vchannel of this member the tick behind the last message that was delivered."""
        return self._consumer.positions

    def commits(self) -> list[PositionCommit]:
        """Return what commits everything delivered so far. See ``AsyncConsumer.commits``."""
        return self._consumer.commits()

    def note_committed(self, commits: Iterable[PositionCommit]) -> None:
        """Note that ``commits`` are committed. See ``AsyncConsumer.note_committed``."""
        self._consumer.note_committed(commits)

    def rewind(self, cause: TidelogError | None = None) -> None:
        """Deliver again what is not committed. See ``AsyncConsumer.rewind``."""
        self._consumer.rewind(cause)

    def join(self) -> None:
        """Join the group; ``with`` does so. See ``AsyncConsumer.join``."""
        background.run(self._consumer.join())

    def commit(self) -> None:
        """Commit everything delivered so far, durably. See ``AsyncConsumer.commit``."""
        background.run(self._consumer.commit())

    def commit_soon(self) -> None:
        """Commit everything delivered so far without waiting for it. See ``AsyncConsumer.commit_soon``."""

        async def commit() -> None:
            self._consumer.commit_soon()

        background.run(commit())

    def wait_rebalance(self, timeout_s: float = 0.0) -> tuple[str, ...]:
        """Take what the server gives and give back what it wants. See ``AsyncConsumer.wait_rebalance``."""
        return background.run(self._consumer.wait_rebalance(timeout_s))

    def poll(self, timeout_s: float = 1.0, *, max_batches: int = 100) -> list[Batch]:
        """Return what is there, after a wait for something; nothing if nothing came. See ``AsyncConsumer.poll``."""
        return background.run(self._consumer.poll(timeout_s, max_batches=max_batches))

    def close(self) -> None:
        """Commit what was processed if the consumer commits by itself, and leave the group. Idempotent."""
        background.run(self._consumer.aclose())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        """Return the next batch. Raises as ``AsyncConsumer.__anext__``."""
        return self._consumer.take_ready() or background.run(anext(self._consumer))

    def __enter__(self) -> Self:
        background.run(self._consumer.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        background.run(self._consumer.__aexit__(kind, error, trace))
