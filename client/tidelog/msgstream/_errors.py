"""Errors of message streams. They belong to the tree of the client (``tidelog.TidelogError``).

The tree::

    TidelogError
    └── MsgStreamError
        ├── StreamStateError        correct the program: no producers, no consumers, no position yet
        ├── EmptyPackError          give a broadcast at least one message
        ├── RepackError             give each message a hash key, or mend the repack function
        ├── MessageTooLargeError    divide the message, or raise ``max_message_bytes`` here and on the server
        ├── UnknownMsgTypeError     add a template with ``dispatcher.add_msg_template``
        ├── MalformedMessageError   look who else appends to the channel, and whether producer and consumer agree
        ├── NotSubscribedError      call ``as_consumer`` with the channel first
        ├── BadPositionError        take positions from packs and messages of this stream's channels
        └── BrokerFullError         of the broker in memory: destroy channels that nobody needs

What comes from the log itself, such as ChannelNotFoundError or PositionTrimmedError, is passed on as it is. All of
these have the effect none: nothing was appended.
"""

from tidelog._errors import TidelogError


class MsgStreamError(TidelogError):
    """Something that a message stream could not do. Nothing was appended by it."""


class StreamStateError(MsgStreamError):
    """The stream is not ready for the call: it has no producers, no consumers, or no position."""


class EmptyPackError(MsgStreamError):
    """A broadcast has no messages."""


class RepackError(MsgStreamError):
    """The messages of a pack cannot be divided among the channels."""


class MessageTooLargeError(MsgStreamError):
    """A message is larger than the stream allows. Nothing of its pack was sent."""

    @property
    def size_bytes(self) -> int:
        """About how large it is."""
        return self._number("size_bytes")

    @property
    def max_bytes(self) -> int:
        """How large it may be."""
        return self._number("max_bytes")


class UnknownMsgTypeError(MsgStreamError):
    """The dispatcher has no template for a type."""

    @property
    def msg_type(self) -> int:
        """The number of the type."""
        return self._number("msg_type")


class MalformedMessageError(MsgStreamError):
    """A message is not what its type says."""


class NotSubscribedError(MsgStreamError):
    """A position is of a channel that the stream does not consume."""

    @property
    def channel(self) -> str:
        """The channel."""
        return self.values.get("channel", "")


class BadPositionError(MsgStreamError):
    """A position names no place: its id is none, or lies beyond everything that was ever appended."""


class BrokerFullError(MsgStreamError):
    """The broker in memory holds as much as it may."""
