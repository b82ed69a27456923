"""What a consumer requires of the place where it commits its checkpoint together with its state."""

from typing import Protocol, TypeVar

from tidelog.gazette.checkpoints import Checkpoint

TransactionT_co = TypeVar("TransactionT_co", covariant=True)


class AsyncCheckpointStore(Protocol[TransactionT_co]):
    """Place of one consumer's checkpoint, beside the consumer's state.

    A store is one instance of a consumer, which its owner names. Of several instances of one name, only the one that
    acquired last can commit. The order of calls is ``acquire``, then for each transaction ``begin`` and ``commit`` or
    ``rollback``. Not thread-safe, and not for concurrent calls.

    After an error of ``commit`` the store is no longer acquired, because the outcome may be unknown: ``acquire`` again
    returns the checkpoint of the last transaction that was committed.
    """

    async def acquire(self) -> Checkpoint:
        """Fence all earlier instances, durably, and return the last checkpoint committed; an empty one at first.

        From then on no earlier instance can commit. An open transaction of this store is rolled back.

        Raises:
            ValueError: The checkpoint has a version that this release does not know.
            Exception: An error of the database.
        """
        ...

    async def begin(self) -> TransactionT_co:
        """Begin a transaction, and return what the consumer's handler changes its state with.

        Raises:
            ConsumerFencedError: A later instance has acquired the consumer; not every store knows it this early.
            RuntimeError: The store is not acquired, or has an open transaction.
        """
        ...

    async def commit(self, checkpoint: Checkpoint) -> None:
        """Commit the open transaction with ``checkpoint``, durably and all or nothing.

        Raises:
            ConsumerFencedError: A later instance has acquired the consumer. Nothing was committed.
            RuntimeError: There is no open transaction, or the handler has ended it.
            Exception: An error of the database. Unless it says otherwise, the outcome is unknown.
        """
        ...

    async def rollback(self) -> None:
        """Discard the open transaction; does nothing if no transaction is open."""
        ...

    async def aclose(self) -> None:
        """Discard the open transaction and release connections. Closing again does nothing."""
        ...
