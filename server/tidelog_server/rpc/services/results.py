"""Encoding of acknowledgements."""

from itertools import groupby
from operator import attrgetter

from tidelog.v1 import message_pb2, wal_service_pb2
from tidelog_server.core.errors import TidelogServerError
from tidelog_server.core.ticks import encode_message_id
from tidelog_server.log.append import Append
from tidelog_server.rpc import status
from tidelog_server.txn.inline import TxnAppend


def result_of(append: Append) -> wal_service_pb2.AppendResult:
    """Return the position of the only batch of a settled append, in the log or in its transaction."""
    if append.staged:
        return wal_service_pb2.AppendResult(txn_sequence=append.staged[0].sequence, duplicate=append.is_duplicate)
    (entry,) = append.entries
    result = result_at(entry.base_tick, entry.last_tick, is_synced=append.needs_sync, is_duplicate=append.is_duplicate)
    return _with_vchannels(result, append.vchannels_of_channel)


def transaction_result(append: TxnAppend) -> wal_service_pb2.TransactionResult:
    """Return the position of a settled transaction."""
    txn = append.span
    parts = []
    # Entries with a longer span are those of mailboxes, which have no part of their own.
    messages = (entry for entry in append.entries if entry.txn == txn)
    runs = groupby(messages, attrgetter("vchannel_id"))
    for (_, run), vchannels in zip(runs, append.vchannels_of_channels, strict=False):
        entries = list(run)
        first_tick, last_tick = entries[0].base_tick, entries[-1].last_tick
        part = result_at(first_tick, last_tick, is_synced=append.needs_sync, is_duplicate=append.is_duplicate)
        parts.append(_with_vchannels(part, vchannels))
    return wal_service_pb2.TransactionResult(
        txn_id=txn.txn_id, first_tick=txn.first_tick, last_tick=txn.last_tick, parts=parts
    )


def result_at(first_tick: int, last_tick: int, *, is_synced: bool, is_duplicate: bool) -> wal_service_pb2.AppendResult:
    """Return the position of messages at consecutive ticks."""
    return wal_service_pb2.AppendResult(
        message_id=encode_message_id(last_tick),
        first_tick=first_tick,
        last_tick=last_tick,
        durability=message_pb2.DURABILITY_SYNC if is_synced else message_pb2.DURABILITY_OS,
        duplicate=is_duplicate,
    )


def _with_vchannels(result: wal_service_pb2.AppendResult, vchannels: int) -> wal_service_pb2.AppendResult:
    if vchannels > 1:
        result.vchannels = vchannels
    return result


def error_of(error: TidelogServerError) -> wal_service_pb2.AppendError:
    """Return why an append or a commit was refused, or failed."""
    return wal_service_pb2.AppendError(
        code=status.code_number_of(error), message=status.text_of(error), detail=status.detail_of(error)
    )
