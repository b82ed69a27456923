"""Transactions: atomic appends to several vchannels.

All entries of a transaction are one append to the committer, so they are written in one atomic write. Its messages
take a run of consecutive ticks of the node's oracle, and nothing else has a tick of the run. So no watermark and no
cut of a plan is ever within a transaction.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from crc32c import crc32c

from tidelog_server.core.entries import NewEntry, TxnSpan
from tidelog_server.core.producers import ProducerSequence
from tidelog_server.core.ticks import Tick
from tidelog_server.log.append import Settled, TickedAppend
from tidelog_server.log.batch import UNCONDITIONAL, AppendOptions, Batch, Conditions
from tidelog_server.log.channel_log import ChannelLog, LogContext, VchannelLog
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


class TxnAppend(TickedAppend):
    """The append of all parts of a transaction.

    Its entries are those of the parts, in order, then those of the companions. A retry has no companions.

    Attributes:
        companions: What is written with it.
    """

    __slots__ = ("_messages", "_node", "_parts", "_producer", "companions")

    def __init__(
        self,
        node: LogContext,
        parts: Sequence[TxnPart],
        options: AppendOptions,
        on_settled: Settled,
        companions: Companions = ALONE,
    ) -> None:
        """Create it; nothing is submitted yet.

        Args:
            node: Log of the node.
            parts: At least one; distinct vchannels.
            options: Options without conditions. A producer numbers transactions on the vchannel of the first part.
            on_settled: Called once with the outcome.
            companions: What is written with a new transaction.
        """
        assert options.conditions is UNCONDITIONAL
        assert 0 < len({part.vchannel.vchannel_id for part in parts}) == len(parts)
        joined = companions.joined
        messages = sum([batch.count for part in parts for batch in part.batches])
        # A transaction that acknowledges deliveries is synced: they must not be delivered again after a power failure.
        needs_sync = options.needs_sync or joined is not NOTHING_JOINED
        super().__init__(messages + joined.events, options.barrier_tick, needs_sync, on_settled)
        self.companions = companions
        self._messages = messages
        self._node = node
        self._parts = parts
        self._producer = options.producer

    @property
    def vchannels_of_channels(self) -> list[int]:
        """Number of vchannels of the channel of each part."""
        return [len(part.log.vchannels) for part in self._parts]

    @property
    def span(self) -> TxnSpan:
        """Its id and ticks, after the submission."""
        txn = self.entries[0].txn
        assert txn is not None
        return txn

    def try_submit(self) -> bool:
        """See TickedAppend. Works as that of BatchAppend, with the conditions of the parts.

        Raises:
            TidelogServerError: See ``BatchAppend.try_submit`` and Companions. Nothing happened.
        """
        node, parts, producer = self._node, self._parts, self._producer
        for part in parts:
            part.log.check_open()
        if producer is not None and self._is_repeated(producer):
            return True
        node.admission.check()
        for part in parts:
            if part.conditions is not UNCONDITIONAL:
                vchannel = part.vchannel
                part.conditions.check(
                    vchannel.name, last_tick=vchannel.submitted_tick, fencing_token=vchannel.fencing_token
                )
        tick = node.oracle.try_allocate(self.ticks, self.barrier_tick)
        if tick is None:
            return False
        joined, end_tick = self.companions.joined, tick + self._messages
        joined.check(end_tick)
        self.rows = self.companions.move_positions()
        self.on_settled = settled_with(joined, self.on_settled)
        entries = self._entries(tick)
        self.entries = entries
        if producer is not None:
            node.producers.note(parts[0].vchannel.vchannel_id, producer, self, self._digest())
        at = 0
        for part in parts:
            for _ in part.batches:
                part.log.enter(part.vchannel, entries[at])
                at += 1
        entries += joined.enter(end_tick, tick)
        node.committer.submit(self)
        return True

    def _is_repeated(self, producer: ProducerSequence) -> bool:
        """Return whether this is a retry; it is then settled, or will be with the first one.

        Raises like the table of producers.
        """
        node, first = self._node, self._parts[0]
        node.admission.check_storage()
        vchannel = first.vchannel
        window = node.producers.window_for(vchannel.vchannel_id, vchannel.name, producer, node.oracle.last)
        result = known_result(window, vchannel.name, producer, first.batches[0].count, self._digest())
        if result is None:
            return False
        # Without the columns and companions: a retry that waits does not count among the bytes in flight.
        self._parts = [
            replace(part, batches=[replace(batch, columns=b"") for batch in part.batches]) for part in self._parts
        ]
        self.companions = ALONE
        # The ticks of the first attempt follow from the tick of its first message.
        self.entries = self._entries(Tick(result.first_tick))
        self.needs_sync = result.is_synced
        self.is_duplicate = True
        node.producers.settle_with_first((vchannel.vchannel_id, producer.producer_id), producer.sequence, self)
        return True

    def _entries(self, first_tick: Tick) -> list[NewEntry]:
        last_tick = first_tick + self._messages - 1
        txn = TxnSpan(first_tick, first_tick, last_tick)
        entries: list[NewEntry] = []
        tick = first_tick
        for part in self._parts:
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

    def _digest(self) -> int:
        """Return a CRC-32C that identifies the transaction's content."""
        return int(
            crc32c(
                b"".join(
                    _DIGESTED.pack(part.vchannel.vchannel_id, batch.count, batch.columns_crc32c)
                    for part in self._parts
                    for batch in part.batches
                )
            )
        )
