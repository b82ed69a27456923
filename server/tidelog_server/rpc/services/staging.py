"""Appends of batches to staged transactions."""

from dataclasses import dataclass
from typing import Final

from tidelog.v1 import message_pb2, wal_service_pb2
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.log.append import AppendOptions, Batch
from tidelog_server.log.pending import PendingAppend, Settled
from tidelog_server.log.protocols import Place
from tidelog_server.txn.staged import Transactions
from tidelog_server.txn.table import BatchOfTxn

_NO_OPTIONS: Final = AppendOptions(needs_sync=False)


def check_staging(options: wal_service_pb2.AppendOptions) -> None:
    """Check that no option is set that applies to the commit only. Raises InvalidRequestError."""
    for field, is_set in (
        ("barrier_tick", options.barrier_tick != 0),
        ("durability", options.durability != message_pb2.DURABILITY_UNSPECIFIED),
        ("expected_last_tick", options.HasField("expected_last_tick")),
        ("fencing_token", options.fencing_token != 0),
        ("producer", options.HasField("producer")),
    ):
        if is_set:
            raise InvalidRequestError(
                f"{field} is set with txn_id: a batch enters the log with the commit of its transaction, so set it in "
                "CommitTxn, and number batches with txn_sequence",
                field=field,
            )


@dataclass(frozen=True, slots=True)
class StageIntent:
    """A batch of a staged transaction; an Intent."""

    transactions: Transactions
    place: BatchOfTxn
    target: Place
    batch: Batch
    on_settled: Settled

    @property
    def options(self) -> AppendOptions:
        """See Intent. The options belong to the commit."""
        return _NO_OPTIONS

    @property
    def count(self) -> int:
        """See Intent."""
        return self.batch.count

    def attempt(self) -> PendingAppend:
        """See Intent. Never None, because staging needs no ticks."""
        return self.transactions.stage(self.place, self.target, self.batch, self.on_settled)
