"""The synchronous twins of streams on Pulsar."""

from collections.abc import Iterable

from tidelog.msgstream._dispatcher import UnmarshalDispatcher
from tidelog.msgstream._generated_stream import MsgStream
from tidelog.msgstream._pulsar.tt_stream import AsyncPulsarTtMsgStream, TickStatus


class PulsarMsgStream(MsgStream):
    """A plain stream on Pulsar; see ``AsyncPulsarMsgStream``.

    Closing one that ``new_pulsar_msg_stream`` returned closes its connection.
    """

    def create_pulsar_producers(self, topics: Iterable[str]) -> None:
        """Add topics to send to. See ``AsyncMsgStream.as_producer``."""
        self.as_producer(topics)

    def create_pulsar_consumers(
        self, sub_name: str, topics: Iterable[str], unmarshal: UnmarshalDispatcher | None = None
    ) -> None:
        """Add topics to receive from, and decode their messages with ``unmarshal``, if it is given.

        See ``AsyncMsgStream.as_consumer``.
        """
        if unmarshal is not None:
            self.dispatcher = self._stream.dispatcher = unmarshal
        self.as_consumer(topics, sub_name)


class PulsarTtMsgStream(PulsarMsgStream):
    """A time-tick stream on Pulsar; see ``AsyncPulsarTtMsgStream``.

    Closing one that ``new_pulsar_tt_msg_stream`` returned closes its connection.
    """

    @property
    def status(self) -> TickStatus:
        """The late messages so far, and the topics that hold the next pack back."""
        assert isinstance(self._stream, AsyncPulsarTtMsgStream)
        return self._stream.status
