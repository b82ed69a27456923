"""The references of messages to blobs, which follow from the states of the mailboxes. Pure.

Why no events: a message refers to its blob exactly as long as it is in a mailbox, so the log of the mailbox has these
references already. A second record of them could differ.
"""

from collections.abc import Callable, Iterable


class LiveReferences:
    """Number of messages that refer to each blob, of the mailboxes that are open.

    Attributes:
        on_released: Called with the key of a blob when the last message that refers to it is gone.
    """

    def __init__(self) -> None:
        self.on_released: Callable[[bytes], None] = lambda _: None
        self._messages: dict[bytes, int] = {}

    def messages_of(self, key: bytes) -> int:
        """Return the number of messages that refer to a blob."""
        return self._messages.get(key, 0)

    def is_live(self, key: bytes) -> bool:
        """Return whether a message refers to a blob."""
        return key in self._messages

    def count(self, key: bytes, delta: int) -> None:
        """Add ``delta`` messages that refer to a blob; negative for messages that are gone."""
        messages = self._messages.get(key, 0) + delta
        assert messages >= 0
        if messages:
            self._messages[key] = messages
        elif self._messages.pop(key, None) is not None:
            self.on_released(key)


class MessageBlobs:
    """The blobs to which the messages of one mailbox refer.

    Attributes:
        keys: Key of the blob of each message that refers to one, by id.
    """

    __slots__ = ("_count", "keys")

    def __init__(self) -> None:
        self.keys: dict[int, bytes] = {}
        self._count: Callable[[bytes, int], None] = _no_count

    def add(self, message_id: int, key: bytes) -> None:
        """Add a message that refers to a blob."""
        self.keys[message_id] = key
        self._count(key, 1)

    def remove(self, message_ids: Iterable[int]) -> None:
        """Remove deleted messages, of which some may refer to blobs."""
        for message_id in message_ids:
            if (key := self.keys.pop(message_id, None)) is not None:
                self._count(key, -1)

    def attach(self, count: Callable[[bytes, int], None]) -> None:
        """Count the messages now and all later changes with ``count``: the mailbox is open."""
        self._count = count
        for key in self.keys.values():
            count(key, 1)

    def detach(self) -> None:
        """Remove all messages from the count: the mailbox was deleted."""
        for key in self.keys.values():
            self._count(key, -1)
        self._count = _no_count


def _no_count(_key: bytes, _delta: int) -> None:
    """The messages of a mailbox that is not open are not counted."""
