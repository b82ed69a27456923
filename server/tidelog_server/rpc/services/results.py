"""Encoding of acknowledgements."""

from itertools import groupby
from operator import attrgetter

from tidelog.v1 import message_pb2, wal_service_pb2
from tidelog_server.core.ticks import encode_message_id
from tidelog_server.log.append import Append
from tidelog_server.txn.inline import TxnAppend


def result_of(append: Append) -> wal_service_pb2.AppendResult:
    """Return the position of the only batch of a settled append, in the log or in its transaction."""
    if append.staged:
        return wal_service_pb2.AppendResult(txn_sequence=append.staged[0].sequence, duplicate=append.is_duplicate)
    (entry,) = append.entries
    return _result(append, entry.base_tick, entry.last_tick)


def transaction_result(append: TxnAppend) -> wal_service_pb2.TransactionResult:
    """Return the position of a settled transaction."""
    txn = append.span
    parts = []
    # Entries with a longer span are those of mailboxes, which have no part of their own.
    messages = (entry for entry in append.entries if entry.txn == txn)
    for _, run in groupby(messages, attrgetter("vchannel_id")):
        entries = list(run)
        parts.append(_result(append, entries[0].base_tick, entries[-1].last_tick))
    return wal_service_pb2.TransactionResult(
        txn_id=txn.txn_id, first_tick=txn.first_tick, last_tick=txn.last_tick, parts=parts
    )


def _result(append: Append, first_tick: int, last_tick: int) -> wal_service_pb2.AppendResult:
    return wal_service_pb2.AppendResult(
        message_id=encode_message_id(last_tick),
        first_tick=first_tick,
        last_tick=last_tick,
        durability=message_pb2.DURABILITY_SYNC if append.needs_sync else message_pb2.DURABILITY_OS,
        duplicate=append.is_duplicate,
    )
