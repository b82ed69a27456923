"""The append of one batch to one vchannel."""

from dataclasses import replace

from tidelog_server.core.entries import NewEntry
from tidelog_server.core.producers import ProducerSequence
from tidelog_server.core.ticks import Tick
from tidelog_server.log.append import Settled, TickedAppend
from tidelog_server.log.batch import UNCONDITIONAL, AppendOptions, Batch
from tidelog_server.log.producers import known_result
from tidelog_server.log.protocols import Place


class BatchAppend(TickedAppend):
    """An append of one batch."""

    __slots__ = ("_batch", "_is_system", "_log", "_options", "_vchannel")

    def __init__(
        self, place: Place, batch: Batch, options: AppendOptions, on_settled: Settled, *, is_system: bool = False
    ) -> None:
        """Create it; nothing is submitted yet.

        Appends by the server itself (``is_system``) are accepted even if the disk is too full for others: trims must
        be audited.
        """
        super().__init__(batch.count, options.barrier_tick, options.needs_sync, on_settled)
        self._log, self._vchannel = place
        self._batch = batch
        self._options = options
        self._is_system = is_system

    @property
    def vchannels_of_channel(self) -> int:
        """Number of vchannels of its channel."""
        return len(self._log.vchannels)

    def try_submit(self) -> bool:
        """See TickedAppend. Conditions are not checked for a retry.

        Raises:
            ProducerFencedError, ProducerForgottenError, SequenceGapError, SequenceReusedError, SequenceForgottenError:
                See ``known_result`` and ``ProducerTable.window_for``. Nothing happened.
            ChannelNotExistError, StorageFailedError, ShutdownError, DiskFullError: Nothing happened.
            LastTickMismatchError, FencingTokenMismatchError: A condition does not hold. Nothing happened.
        """
        log, vchannel, options = self._log, self._vchannel, self._options
        shared = log.shared
        log.check_open()
        producer = options.producer
        if producer is not None and self._is_repeated(producer):
            return True
        if self._is_system:
            shared.admission.check_storage()
        else:
            shared.admission.check()
        if options.conditions is not UNCONDITIONAL:
            options.conditions.check(
                vchannel.name, last_tick=vchannel.submitted_tick, fencing_token=vchannel.fencing_token
            )
        tick = shared.oracle.try_allocate(self.ticks, self.barrier_tick)
        if tick is None:
            return False
        batch = self._batch
        entry = NewEntry(
            vchannel.vchannel_id, tick, batch.count, batch.message_type, batch.columns_crc32c, batch.columns
        )
        self.entries = (entry,)
        if producer is not None:
            shared.producers.note(vchannel.vchannel_id, producer, self)
        # Ordering: see ``enter``.
        log.enter(vchannel, entry)
        shared.committer.submit(self)
        return True

    def _is_repeated(self, producer: ProducerSequence) -> bool:
        """Return whether this is a retry; it is then settled, or will be with the first one.

        Raises like the table of producers.
        """
        shared, vchannel, batch = self._log.shared, self._vchannel, self._batch
        shared.admission.check_storage()
        window = shared.producers.window_for(vchannel.vchannel_id, vchannel.name, producer, shared.oracle.last)
        result = known_result(window, vchannel.name, producer, batch.count, batch.columns_crc32c)
        if result is None:
            return False
        # Without the columns: a retry that waits does not count among the bytes in flight.
        self._batch = batch = replace(batch, columns=b"")
        self.entries = (
            NewEntry(
                vchannel.vchannel_id, Tick(result.first_tick), batch.count, batch.message_type, batch.columns_crc32c,
                batch.columns,
            ),
        )  # fmt: skip
        self.needs_sync = result.is_synced
        self.is_duplicate = True
        shared.producers.settle_with_first((vchannel.vchannel_id, producer.producer_id), producer.sequence, self)
        return True
