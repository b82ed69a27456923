"""The synchronous twin of the consumer."""

from collections.abc import Iterator

from tidelog.groups.consumer import AsyncConsumer
from tidelog.sync.generated.consumer import ConsumerBase
from tidelog.transport.background import background, called
from tidelog.transport.in_one_process import InOneProcess
from tidelog.wire.batch import Batch


class Consumer(InOneProcess, ConsumerBase, Iterator[Batch]):
    """A member of a consumer group: ``with`` joins, ``for batch in consumer`` delivers. See ``AsyncConsumer``.

    Assignment callbacks run on the client's background thread: they must not call this client.
    """

    def __init__(self, consumer: AsyncConsumer) -> None:
        self._consumer = consumer
        self.group = consumer.group
        self.channels = consumer.channels
        self.member_id = consumer.member_id
        self.auto_commit = consumer.auto_commit

    def __repr__(self) -> str:
        return f"<Consumer of group {self.group!r}, {len(self.assignment)} vchannels>"

    def commit_soon(self) -> None:
        """Commit everything delivered so far, without waiting. See ``AsyncConsumer.commit_soon``."""
        background.run(called(self._consumer.commit_soon))

    def resume(self) -> None:
        """Deliver again after ``pause``; any thread may call it. See ``AsyncConsumer.resume``."""
        background.run(called(self._consumer.resume))

    def __next__(self) -> Batch:
        """Return the next batch. Raises as ``AsyncConsumer.__anext__``."""
        return self._consumer.take_ready() or background.run(anext(self._consumer))
