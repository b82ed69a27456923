"""The synchronous twin of the consumer."""

from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Self

from tidelog.errors import TidelogError
from tidelog.groups.consumer import AsyncConsumer
from tidelog.tick import Tick
from tidelog.transport.background import background
from tidelog.types import PositionCommit
from tidelog.wire.batch import Batch


class Consumer(Iterator[Batch]):
    """A member of a consumer group: ``with`` joins, ``for batch in consumer`` delivers. See ``AsyncConsumer``.

    Assignment callbacks run on the client's background thread: they must not call this client.
    """

    def __init__(self, consumer: AsyncConsumer) -> None:
        self._consumer = consumer
        self.group = consumer.group
        self.channels = consumer.channels
        self.member_id = consumer.member_id
        self.auto_commit = consumer.auto_commit

    @property
    def assignment(self) -> tuple[str, ...]:
        """Vchannels that this member consumes now, in order of name."""
        return self._consumer.assignment

    @property
    def positions(self) -> Mapping[str, Tick]:
        """By vchannel of this member, the tick after the last delivered message."""
        return self._consumer.positions

    def commits(self) -> list[PositionCommit]:
        """Return the commits of everything delivered so far. See ``AsyncConsumer.commits``."""
        return self._consumer.commits()

    def note_committed(self, commits: Iterable[PositionCommit]) -> None:
        """Record that ``commits`` are committed. See ``AsyncConsumer.note_committed``."""
        self._consumer.note_committed(commits)

    def rewind(self, cause: TidelogError | None = None) -> None:
        """Redeliver what is not committed. See ``AsyncConsumer.rewind``."""
        self._consumer.rewind(cause)

    def join(self) -> None:
        """Join the group; ``with`` calls this. See ``AsyncConsumer.join``."""
        background.run(self._consumer.join())

    def commit(self) -> None:
        """Commit everything delivered so far, durably. See ``AsyncConsumer.commit``."""
        background.run(self._consumer.commit())

    def commit_soon(self) -> None:
        """Commit everything delivered so far, without waiting. See ``AsyncConsumer.commit_soon``."""

        async def commit() -> None:
            self._consumer.commit_soon()

        background.run(commit())

    def wait_rebalance(self, timeout_s: float = 0.0) -> tuple[str, ...]:
        """Accept assigned vchannels and release revoked ones. See ``AsyncConsumer.wait_rebalance``."""
        return background.run(self._consumer.wait_rebalance(timeout_s))

    def poll(self, timeout_s: float = 1.0, *, max_batches: int = 100) -> list[Batch]:
        """Wait for batches, and return those available; empty if none arrived. See ``AsyncConsumer.poll``."""
        return background.run(self._consumer.poll(timeout_s, max_batches=max_batches))

    def close(self) -> None:
        """Commit processed messages if ``auto_commit`` is set, and leave the group. Idempotent."""
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
