"""Errors of checkpoint stores."""

from typing import Final

from tidelog.errors import TidelogError

NOT_OPEN: Final = "the store has no open transaction: call begin first"
ENDED_BY_HANDLER: Final = (
    "the transaction of the store was ended by the handler: leave commit and rollback to the consumer, and use "
    "savepoints for parts of it"
)


class ConsumerFencedError(TidelogError):
    """A later instance has acquired the consumer; nothing was committed. Stop this instance.

    Attributes:
        consumer: Name of the consumer.
    """

    def __init__(self, consumer: str) -> None:
        super().__init__(
            f"consumer {consumer!r} was acquired by a later instance, and nothing of this transaction is committed: "
            "stop this instance, or acquire the store again to take the consumer over",
            values={"consumer": consumer},
        )
        self.consumer = consumer


def check_name(consumer: str) -> None:
    """Raise ValueError if the name of a consumer is empty."""
    if not consumer:
        raise ValueError("the name of the consumer is empty, expected at least one character")


def check_begin(*, is_acquired: bool, is_open: bool) -> None:
    """Raise RuntimeError unless a store may begin a transaction."""
    if not is_acquired:
        raise RuntimeError("the store is not acquired: call acquire first, and again after an error of commit")
    if is_open:
        raise RuntimeError("the store has an open transaction: commit it or roll it back first")
