"""What changes the database of a log store: the contract of its writers, and what they have in common."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from types import MappingProxyType
from typing import Any, ClassVar, Final, Protocol, TypeAlias

from tidelog_server.core.entries import NewEntry
from tidelog_server.core.errors import Effect, StorageFailedError
from tidelog_server.core.errors.cluster import LogFailure
from tidelog_server.core.limits import MIB
from tidelog_server.storage.format.codec import TailRow
from tidelog_server.storage.log_store import StoreHead, WriteMark
from tidelog_server.storage.rocksdb.engine import Engine, error_text, is_damage, is_engine_error
from tidelog_server.storage.rocksdb.pressure import stall_reason

ROW_BYTES: Final = 512
"""What a small row counts as: RocksDB takes about as long for it as for this number of bytes."""
# Bytes after which RocksDB is asked whether it is busy: a buffer of columns is far larger, and asking takes as long as
# writing a small entry.
_ASK_EVERY_BYTES: Final = MIB

Tails: TypeAlias = Mapping[int, TailRow | None]
"""Tails that a change of rows changes, by vchannel id; None for a vchannel that it drops."""
NO_TAILS: Final[Tails] = MappingProxyType({})


class Batch(Protocol):
    """Changes of rows that are made together, in order. A family is named by the writer's ``handles``."""

    def put(self, key: bytes, value: bytes, family: Any, /) -> None:
        """Set a row."""
        ...

    def delete(self, key: bytes, family: Any, /) -> None:
        """Delete a row."""
        ...

    def delete_range(self, begin_key: bytes, end_key: bytes, family: Any, /) -> None:
        """Delete the rows of ``[begin_key, end_key)``."""
        ...


class RowWriter(ABC):
    """Changes a database, and stops at the first failure. Threads: as ``LogStore``.

    Attributes:
        handles: What names a family in a batch, by the name of the family.
        batch: Returns a batch for ``write``.
        writes_at_once: Whether the database has a batch once it was written; else, once it was synced.
        unasked_bytes: Bytes written, about, since RocksDB was last asked whether it is busy.
    """

    writes_at_once: ClassVar[bool]

    def __init__(self, engine: Engine, handles: Mapping[str, Any], batch: Callable[[], Batch]) -> None:
        self.handles = handles
        self.batch = batch
        self.unasked_bytes = 0
        self._engine = engine
        # The first one; nothing is written after it.
        self._failure: LogFailure | None = None
        self._failure_lock = Lock()

    @abstractmethod
    def write(
        self, batch: Any, tails: Tails = NO_TAILS, *, readers_first: bool = False, head: StoreHead | None = None
    ) -> WriteMark:
        """Write a batch, durable with the next sync; return its mark.

        Args:
            batch: What ``batch`` returned.
            tails: Tails that it changes, for readers that see it later than its writer does. The caller may change the
                mapping afterwards.
            readers_first: True if such readers get the tails before the rows, because the batch deletes rows; False if
                after them.
            head: Head of the store after it; None if it has no entries.

        Raises:
            StorageFailedError, OwnershipLostError: The effect is unknown until a restart.
        """

    @abstractmethod
    def sync(self, mark: WriteMark | None = None) -> None:
        """See ``LogStore.sync``."""

    def commit(self, batch: Any, tails: Tails = NO_TAILS) -> None:
        """Write a batch durably. Raises as ``write``."""
        self.sync(self.write(batch, tails))

    def settle(self) -> None:
        """Return once the database has everything that was written. Raises as ``write``."""
        if not self.writes_at_once:
            self.sync()

    def note_head(self, entries: Sequence[NewEntry], head: StoreHead) -> None:
        """Note the entries of the last write, at least one, and the head of the store after it; not if it has them."""
        return

    @abstractmethod
    def raise_format(self, number: int, what: str) -> None:
        """Give what is stored a later format, if it has an earlier one, for rows of ``what``.

        Raises:
            StorageFailedError: It could not be written.
        """

    @abstractmethod
    def close(self) -> None:
        """Write nothing more, and release everything but the database."""

    def stall_reason(self) -> str | None:
        """See ``LogStore.stall_reason``."""
        if self.unasked_bytes < _ASK_EVERY_BYTES:
            return None
        reason = stall_reason(self._engine)
        if reason is None:
            self.unasked_bytes = 0
        return reason

    def check_works(self, effect: Effect = Effect.NONE) -> None:
        """Raise the first failure with ``effect`` if the store has stopped."""
        if self._failure is not None:
            raise self._failure.with_effect(effect)

    def fail(self, cause: str, *, is_damage: bool = False) -> None:
        """Stop the store; only the first cause is stored. Any thread."""
        self.fail_by(StorageFailedError(cause, is_damage=is_damage))

    def fail_by(self, error: LogFailure) -> LogFailure:
        """Stop the store; return the first cause. Any thread."""
        with self._failure_lock:
            if self._failure is None:
                self._failure = error
            return self._failure

    def _or_stop(self, doing: str, change: Callable[[], None]) -> None:
        """Run ``change``; an error of RocksDB in it stops the store. Others are bugs, and raised unchanged."""
        try:
            change()
        except Exception as error:
            if not is_engine_error(error):
                raise
            self.fail(f"{doing}: {error_text(error)}", is_damage=is_damage(error))
            assert self._failure is not None
            raise self._failure.with_effect(Effect.UNKNOWN) from error

    @property
    def works(self) -> bool:
        """True until the first failure."""
        return self._failure is None
