"""Appends of batches to staged transactions."""

from tidelog.v1 import message_pb2, wal_service_pb2
from tidelog_server.core.errors import InvalidRequestError


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
