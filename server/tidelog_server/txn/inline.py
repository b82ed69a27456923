"""Transactions: atomic appends to several vchannels.

All entries of a transaction are one append to the committer, so they are written in one atomic write. Its messages
take a run of consecutive ticks of the node's oracle, and nothing else has a tick of the run. So no watermark and no
cut of a plan is ever within a transaction.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from crc32c import crc32c

from tidelog_server.core.entries import NewEntry, TxnSpan
from tidelog_server.core.producers import ProducerSequence
from tidelog_server.core.ticks import Tick
from tidelog_server.log.append import UNCONDITIONAL, AppendOptions, Batch, Conditions
from tidelog_server.log.channel_log import ChannelLog, LogContext, VchannelLog
from tidelog_server.log.pending import PendingAppend, Settled
from tidelog_server.log.producers import known_result
from tidelog_server.log.protocols import ALONE, NOTHING_JOINED, Companions, settled_with

# vchannel id, count, CRC-32C of the columns.
_DIGESTED: Final = struct.Struct(">III")


@dataclass(frozen=True, slots=True)
class TxnPart:
    """The part of a transaction on one vchannel.

    Attributes:
        batches: At least one.
        conditions: Conditions that the vchannel must meet.
    """

    log: ChannelLog
    vchannel: VchannelLog
    batches: Sequence[Batch]
    conditions: Conditions = UNCONDITIONAL

    @property
    def count(self) -> int:
        """Number of messages."""
        return sum(batch.count for batch in self.batches)


def try_append_transaction(
    node: LogContext,
    parts: Sequence[TxnPart],
    options: AppendOptions,
    on_settled: Settled,
    companions: Companions = ALONE,
) -> PendingAppend | None:
    """Append all parts at once; None if the oracle cannot allocate ticks now: then ``prepare`` it and try again.

    The entries of the append are those of the parts, in order. A producer numbers transactions on the vchannel of the
    first part. Otherwise this works as ``ChannelLog.try_append``, with the conditions of the parts.

    Args:
        node: Log of the node.
        parts: At least one; distinct vchannels.
        options: Options without conditions.
        on_settled: Called once with the outcome.
        companions: What is written with a new transaction.

    Raises:
        TidelogServerError: See ``ChannelLog.try_append`` and ``companions``. Nothing happened.
    """
    assert options.conditions is UNCONDITIONAL
    assert 0 < len({part.vchannel.vchannel_id for part in parts}) == len(parts)
    for part in parts:
        part.log.check_open()
    producer = options.producer
    if producer is not None and (repeated := _repeated(node, parts, producer, on_settled)) is not None:
        return repeated
    node.admission.check()
    for part in parts:
        vchannel = part.vchannel
        part.conditions.check(vchannel.name, last_tick=vchannel.submitted_tick, fencing_token=vchannel.fencing_token)
    joined = companions.joined
    count = sum(part.count for part in parts)
    tick = node.oracle.try_allocate(count + joined.events, options.barrier_tick)
    if tick is None:
        return None
    joined.check(tick + count)
    positions = companions.move_positions()
    # A transaction that acknowledges deliveries is synced: they must not be delivered again after a power failure.
    needs_sync = options.needs_sync or joined is not NOTHING_JOINED
    append = PendingAppend(_entries(parts, tick), needs_sync, settled_with(joined, on_settled), positions=positions)
    if producer is not None:
        node.producers.note(parts[0].vchannel.vchannel_id, producer, append, _digest(parts))
    entries = iter(append.entries)
    for part in parts:
        for _ in part.batches:
            part.log.enter(part.vchannel, next(entries))
    append.entries = [*append.entries, *joined.enter(tick + count, tick)]
    node.committer.submit(append)
    return append


def _repeated(
    node: LogContext, parts: Sequence[TxnPart], producer: ProducerSequence, on_settled: Settled
) -> PendingAppend | None:
    """Return the append that answers a retried transaction; None for a new one. Raises like the table of producers."""
    node.admission.check_storage()
    first = parts[0]
    key = (first.vchannel.vchannel_id, producer.producer_id)
    window = node.producers.window_for(first.vchannel.vchannel_id, first.vchannel.name, producer, node.oracle.last)
    result = known_result(window, first.vchannel.name, producer, first.batches[0].count, _digest(parts))
    if result is None:
        return None
    # The ticks of the first attempt follow from the tick of its first message.
    entries = _entries(parts, Tick(result.first_tick))
    repeated = PendingAppend(entries, result.is_synced, on_settled, is_duplicate=True)
    node.producers.settle_with_first(key, producer.sequence, repeated)
    return repeated


def _entries(parts: Sequence[TxnPart], first_tick: Tick) -> list[NewEntry]:
    last_tick = first_tick + sum(part.count for part in parts) - 1
    txn = TxnSpan(first_tick, first_tick, last_tick)
    entries: list[NewEntry] = []
    tick = first_tick
    for part in parts:
        for batch in part.batches:
            entries.append(
                NewEntry(
                    part.vchannel.vchannel_id, tick, batch.count, batch.message_type, batch.columns_crc32c,
                    batch.columns, txn,
                )
            )  # fmt: skip
            tick = Tick(tick + batch.count)
    assert tick == last_tick + 1
    return entries


def _digest(parts: Sequence[TxnPart]) -> int:
    """Return a CRC-32C that identifies the transaction's content."""
    return int(
        crc32c(
            b"".join(
                _DIGESTED.pack(part.vchannel.vchannel_id, batch.count, batch.columns_crc32c)
                for part in parts
                for batch in part.batches
            )
        )
    )
