"""Errors of message streams, part of the client's hierarchy (``tidelog.TidelogError``).

The tree::

    TidelogError
    └── MsgStreamError
        ├── StreamStateError        correct the program: no producers, no consumers, or no position yet
        ├── EmptyPackError          pass at least one message to broadcast
        ├── RepackError             set a hash key on each message, or correct the repack function
        ├── MessageTooLargeError    split the message, or raise ``max_message_bytes`` here and on the server
        ├── UnknownMsgTypeError     add a template with ``dispatcher.add_msg_template``
        ├── MalformedMessageError   check which other programs append to the channel, and that both sides agree
        ├── NotSubscribedError      call ``as_consumer`` with the channel first
        ├── BadPositionError        take positions from packs and messages of this stream's channels
        ├── BrokerFullError         the broker in memory is full: destroy channels that are no longer needed
        ├── PackTooLargeError       write ticks more often, or raise ``max_pack_bytes``
        ├── StreamFencedError       stop this stream or ticker: a later one has taken over
        └── PartialProduceError     send again what ``errors`` names; ``sent`` has the rest

Errors of the log, such as ChannelNotFoundError or PositionTrimmedError, are passed on unchanged. All of the above have
``effect`` none, nothing was appended, except PartialProduceError.
"""

from collections.abc import Mapping, Sequence

from tidelog.errors import TidelogError, number_value, text_value
from tidelog.msgstream._position import MsgPosition


class MsgStreamError(TidelogError):
    """A message stream could not do something. Nothing was appended, unless ``effect`` states otherwise.

    Attributes:
        position: If a received message cannot be decoded, its position: a seek to it skips the message. None in other
            errors, and in time-tick streams on Pulsar, where a template has to replace the message.
    """

    position: MsgPosition | None = None


class StreamStateError(MsgStreamError):
    """The stream is not ready for the call: it has no producers, no consumers, or no position."""


class EmptyPackError(MsgStreamError):
    """A broadcast has no messages."""


class RepackError(MsgStreamError):
    """A pack's messages cannot be divided among the channels."""


class MessageTooLargeError(MsgStreamError):
    """A message exceeds the stream's limit. Nothing of its pack was sent."""

    size_bytes = number_value("Approximate size of the message.")
    max_bytes = number_value("Maximum size of a message.")


class UnknownMsgTypeError(MsgStreamError):
    """The dispatcher has no template for a message type."""

    msg_type = number_value("The number of the type.")


class MalformedMessageError(MsgStreamError):
    """A message does not match its type."""


class NotSubscribedError(MsgStreamError):
    """The stream does not consume the channel of a position."""

    channel = text_value("The channel.")


class BadPositionError(MsgStreamError):
    """A position is unusable: its id is invalid, or it is beyond everything ever appended."""


class BrokerFullError(MsgStreamError):
    """The broker in memory has reached its limit."""


class PackTooLargeError(MsgStreamError):
    """A channel has more between two ticks than a pack may have."""

    max_bytes = number_value("Maximum size of a pack.")


class StreamFencedError(MsgStreamError):
    """A later stream has the subscription, or a later ticker the topic."""


class PartialProduceError(MsgStreamError):
    """Some of a pack was sent and some was not, on a broker that cannot send all or nothing.

    Attributes:
        sent: Ids of the messages that were sent, by channel.
        errors: Why the others were not, by channel. With effect ``unknown`` they may have been sent as well.
    """

    def __init__(self, sent: Mapping[str, Sequence[bytes]], errors: Mapping[str, TidelogError]) -> None:
        self.sent = sent
        self.errors = errors
        took = ", ".join(f"{channel} has {len(ids)} messages" for channel, ids in sent.items())
        failed = "; ".join(f"{channel}: {error}" for channel, error in errors.items())
        super().__init__(
            f"a part of the pack was sent ({took}) and a part was not ({failed}): send that part again, or use a "
            "Tidelog server, which sends all or nothing",
            effect="unknown",
        )
