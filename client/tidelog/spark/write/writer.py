"""Writing: the part of one task, and the driver's commit of all tasks.

Exactly once: each task stages its rows in transactions and prepares them. The driver commits those of all tasks at
once, under the application's id and the number of the batch, which the log accepts once. Transactions of a task or
driver that died end with the application's next commit, or by timeout.

Imported where it runs, after Spark's forks.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from tidelog import (
    AppCommitMismatchError,
    Client,
    Columns,
    Durability,
    PreparedCommit,
    PreparedTransaction,
    Transaction,
)
from tidelog.spark.owners import owner_of
from tidelog.spark.write.options import WriteOptions
from tidelog.spark.write.routing import Router

_log = logging.getLogger("tidelog.spark")

# Half of the server's byte limit per transaction, less than its batch limit, and exactly its vchannel limit. A task may
# write any number of transactions.
_MAX_TXN_BYTES: Final = 512 << 20
_MAX_TXN_BATCHES: Final = 2_048
_MAX_TXN_VCHANNELS: Final = 256
# Bytes that an at-least-once task buffers before it commits.
_FLUSH_BYTES: Final = 16 << 20
# Job property in which Spark stores the id of a streaming query.
_QUERY_ID: Final = "sql.streaming.queryId"
_COMMIT_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The result of one task.

    Attributes:
        prepared: Transactions to commit; empty if the task has committed its rows itself.
        rows: Number of rows.
        takes_turns: See ``Router``.
        query_id: Id of the Spark streaming query; empty for a batch.
    """

    prepared: tuple[PreparedTransaction, ...]
    rows: int
    takes_turns: bool = False
    query_id: str = ""


def write_exactly_once(rows: Iterator[pa.RecordBatch], options: WriteOptions, app_id: str) -> Written:
    """Stage and prepare the rows of a task. They become visible when the driver commits.

    Raises:
        ValueError: A row is not a valid message.
        TidelogError: The rows cannot be staged. Staged rows end by timeout.
    """
    prepared: list[PreparedTransaction] = []
    with _client(options) as client:
        router = _router(client, options)

        def prepare(txn: Transaction) -> None:
            done = txn.prepare(app_id, app_version=options.app_version, keepalive_s=options.timeout_s)
            if done is not None:
                prepared.append(done)

        try:
            rows_written = _Sink(client).write(_routed(router, rows), prepare)
        except BaseException:
            # Spark retries the task, and only what the retry prepares is committed.
            if prepared:
                client.roll_back_prepared(prepared)
            raise
    return Written(tuple(prepared), rows_written, router.takes_turns, _query_id())


def write_at_least_once(rows: Iterator[pa.RecordBatch], options: WriteOptions) -> Written:
    """Append the rows of a task as they come. Raises as ``write_exactly_once``; rows committed before that stay."""
    with _client(options) as client:
        sink = _Sink(client, options.durability, _FLUSH_BYTES)
        return Written((), sink.write(_routed(_router(client, options), rows), Transaction.commit))


def commit(written: Sequence[Written | None], options: WriteOptions, app_id: str, version: int) -> None:
    """Commit the prepared transactions of all tasks; at most once per version.

    Raises:
        AppCommitMismatchError: ``app_id`` belongs to another query, or this version was committed with other rows.
        TidelogError: Nothing was committed, unless the effect is unknown: then retrying the batch is safe.
    """
    done = [message for message in written if message is not None]
    with _client(options) as client:
        try:
            result = client.commit_prepared(
                _prepared(written),
                app_id,
                version,
                # Without a txnAppId the batch has a unique id, which is used for this commit only.
                is_last=not options.app_id,
                is_first=options.is_new or not options.app_id,
                query_id=next((message.query_id for message in done if message.query_id), ""),
                any_vchannel=any(message.takes_turns for message in done),
                durability=options.durability,
                timeout_s=_COMMIT_TIMEOUT_S,
            )
        except AppCommitMismatchError as error:
            raise _in_words_of_spark(error, app_id, version) from None
    _log_commit(result, app_id, version)


def abort(written: Sequence[Written | None], options: WriteOptions) -> None:
    """Roll back the prepared transactions of all tasks.

    Raises:
        TidelogError: The server was not reached; the transactions end by timeout.
    """
    prepared = _prepared(written)
    if prepared:
        with _client(options) as client:
            client.roll_back_prepared(prepared)


def _client(options: WriteOptions) -> AbstractContextManager[Client]:
    """Provide a client of the channel's owner, which is looked up if the options name several nodes."""
    connection = options.connection
    return (owner_of(connection, options.channel) if len(connection.endpoints) > 1 else connection).client()


class _Sink:
    """Appends batches to a transaction, and ends it to begin another one when it is full."""

    def __init__(self, client: Client, durability: Durability | None = None, full_bytes: int = _MAX_TXN_BYTES) -> None:
        """Begin the first transaction.

        Args:
            client: Client of the channels' owner.
            durability: That of the commits; None for the server's default.
            full_bytes: Size at which a transaction is full.
        """
        self._client = client
        self._durability = durability
        self._full_bytes = full_bytes
        self._begin()

    def _begin(self) -> None:
        self._txn: Transaction = self._client.txn(durability=self._durability, timeout_s=_COMMIT_TIMEOUT_S)
        self._size_bytes = self._batches = 0
        self._vchannels: set[str] = set()

    def write(self, batches: Iterator[tuple[str, Columns]], end: Callable[[Transaction], object]) -> int:
        """Append ``batches``, each with its vchannel, and return the number of rows; ``end`` ends a transaction.

        Rolls the open transaction back if anything fails.
        """
        rows = 0
        try:
            for vchannel, columns in batches:
                if self._is_full_for(vchannel, columns):
                    end(self._txn)
                    self._begin()
                self._txn.append_columns(vchannel, columns)
                self._size_bytes += columns.size_bytes
                self._batches += 1
                self._vchannels.add(vchannel)
                rows += columns.count
            end(self._txn)
        except BaseException:
            self._txn.rollback()
            raise
        return rows

    def _is_full_for(self, vchannel: str, columns: Columns) -> bool:
        return (
            self._size_bytes >= self._full_bytes
            or self._size_bytes + columns.size_bytes > _MAX_TXN_BYTES
            or self._batches >= _MAX_TXN_BATCHES
            or (vchannel not in self._vchannels and len(self._vchannels) >= _MAX_TXN_VCHANNELS)
        )


def _router(client: Client, options: WriteOptions) -> Router:
    def count_vchannels(channel: str) -> int:
        (description,) = client.describe_channels([channel])
        return len(description.vchannels)

    return Router(options.channel, count_vchannels)


def _routed(router: Router, rows: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, Columns]]:
    for batch in rows:
        if batch.num_rows:
            yield from router.divide(batch)


def _query_id() -> str:
    """Return the id of this task's streaming query, which is stable per checkpoint; empty for a batch.

    Read in tasks: Spark commits in a separate process, without a task context.
    """
    context = TaskContext.get()
    return (context.getLocalProperty(_QUERY_ID) if context else None) or ""


def _prepared(written: Sequence[Written | None]) -> list[PreparedTransaction]:
    return [txn for message in written if message is not None for txn in message.prepared]


def _in_words_of_spark(error: AppCommitMismatchError, app_id: str, version: int) -> AppCommitMismatchError:
    """Return the error with the options to change."""
    if error.values["mismatch"] == "query":
        text = (
            f"the option txnAppId is {app_id!r}, which another streaming query uses, or the same query with another "
            "checkpoint. Each numbers its batches from 0, so this batch could be mistaken for one of the other query. "
            "Nothing was written. Choose a txnAppId for this checkpoint"
        )
    else:
        text = (
            f"version {version} of the txnAppId {app_id!r} was committed with other rows: a retry must have as many "
            "rows as the first write, for the same channels and vchannels. Nothing was written. Choose a txnAppId for "
            "each target, and a txnVersion for each batch"
        )
    return AppCommitMismatchError(f"{text} ({error})", effect=error.effect, values=error.values)


def _log_commit(result: PreparedCommit, app_id: str, version: int) -> None:
    if result.duplicate:
        _log.warning(
            "batch %d of %s was already committed, with %d messages up to tick %d: this retry changed nothing",
            version, app_id, result.messages, result.last_tick,
        )  # fmt: skip
    else:
        _log.info("batch %d of %s: %d messages up to tick %d", version, app_id, result.messages, result.last_tick)
