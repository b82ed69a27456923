"""Decoding of append options and position commits, and the deadlines and client ids of calls."""

from collections.abc import Sequence
from typing import Final, NamedTuple, cast

from tidelog.v1 import message_pb2, transaction_service_pb2, wal_service_pb2
from tidelog_server.core.callers import Caller, is_clean
from tidelog_server.core.errors import InvalidRequestError
from tidelog_server.core.names import RESERVED_PREFIX, shown
from tidelog_server.core.producers import ONE_PROCESS_PREFIX, ProducerSequence, is_of_one_process
from tidelog_server.groups.types import Commit
from tidelog_server.log.batch import UNCONDITIONAL, Conditions
from tidelog_server.rpc.columns.pages import check_tick
from tidelog_server.rpc.context import Context
from tidelog_server.security.access import current_principal, current_tenant

MAX_CLIENT_ID_BYTES: Final = 64
MAX_PRODUCER_ID_BYTES: Final = 64

CLIENT_ID_KEY: Final = "tidelog-client-id"
"""Metadata key of the client id."""

# Part of a call's remaining time that is reserved for its answer: these seconds, or this share if that is more.
_ANSWER_WITHIN_S: Final = 0.05
_ANSWER_SHARE: Final = 0.1
# The next sequence still fits into a signed 64-bit integer.
_MAX_SEQUENCE: Final = (1 << 63) - 2


def conditions_of(
    wire: wal_service_pb2.AppendOptions | wal_service_pb2.TransactionPart | transaction_service_pb2.CommitCondition,
) -> Conditions:
    """Return the conditions in ``wire``; UNCONDITIONAL if no condition is set."""
    expected_last_tick = wire.expected_last_tick if wire.HasField("expected_last_tick") else None
    if expected_last_tick is None and not wire.fencing_token:
        return UNCONDITIONAL
    return Conditions(expected_last_tick, wire.fencing_token)


def check_producer_id(producer_id: str) -> str:
    """Return ``producer_id`` if it is valid. Raises InvalidRequestError."""
    size_bytes = len(producer_id.encode())
    if not 1 <= size_bytes <= MAX_PRODUCER_ID_BYTES:
        raise InvalidRequestError(
            f"the producer id has {size_bytes} bytes, expected 1 to {MAX_PRODUCER_ID_BYTES}", field="producer_id"
        )
    if producer_id.startswith(RESERVED_PREFIX):
        raise InvalidRequestError(
            f"the producer id '{shown(producer_id)}' is reserved: choose one that does not begin with "
            f"'{RESERVED_PREFIX}'",
            field="producer_id",
        )
    return producer_id


def check_opened_id(producer_id: str) -> str:
    """Return ``producer_id`` if OpenProducer accepts it. Raises InvalidRequestError."""
    if is_of_one_process(producer_id):
        raise InvalidRequestError(
            f"the producer id '{shown(producer_id)}' begins with '{ONE_PROCESS_PREFIX}', so it belongs to one process "
            "and cannot be taken over: choose another id",
            field="producer_id",
        )
    return check_producer_id(producer_id)


def producer_of(options: wal_service_pb2.AppendOptions) -> ProducerSequence | None:
    """Return the producer and sequence in ``options``; None if not set. Raises InvalidRequestError."""
    if not options.HasField("producer"):
        return None
    producer = options.producer
    check_producer_id(producer.producer_id)
    if not 1 <= producer.sequence <= _MAX_SEQUENCE:
        raise InvalidRequestError(
            f"the producer's sequence is {producer.sequence}, expected 1 to {_MAX_SEQUENCE}: the first batch has "
            "sequence 1",
            field="sequence",
        )
    return ProducerSequence(
        producer.producer_id, producer.epoch, producer.sequence, producer.is_repeated, current_tenant(), producer.call
    )


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


def commits_of(wire: Sequence[wal_service_pb2.PositionCommit], maximum: int, *, at_least: int = 0) -> list[Commit]:
    """Return validated position commits. Raises InvalidRequestError."""
    if not at_least <= len(wire) <= maximum:
        raise InvalidRequestError(
            f"the request commits {len(wire)} positions, expected {at_least} to {maximum}", field="positions"
        )
    commits = [
        Commit(
            each.group,
            each.vchannel,
            check_tick(each.next_tick, "next_tick"),
            each.member_id,
            each.epoch,
            each.expected_tick if each.HasField("expected_tick") else None,
        )
        for each in wire
    ]
    if len({(commit.group, commit.vchannel) for commit in commits}) < len(commits):
        raise InvalidRequestError(
            "the request commits a position twice: send only the greatest tick", field="positions"
        )
    return commits


class Syncs(NamedTuple):
    """Which acknowledgements wait for a sync.

    Attributes:
        by_default: Those of appends that request no durability.
        always: All, because the store would lose writes that were not synced with its process.
    """

    by_default: bool
    always: bool = False


def needs_sync(durability: int, syncs: Syncs) -> bool:
    """Return whether an acknowledgement waits for a sync. Raises InvalidRequestError."""
    match durability:
        case message_pb2.DURABILITY_UNSPECIFIED:
            return syncs.by_default or syncs.always
        case message_pb2.DURABILITY_SYNC:
            return True
        case message_pb2.DURABILITY_OS:
            return syncs.always
        case _:
            raise InvalidRequestError(
                f"durability {durability} is unknown: use DURABILITY_SYNC (1) or DURABILITY_OS (2)",
                field="durability",
            )


def longest_wait_s(context: Context, max_s: float) -> float:
    """Return the seconds that a call may wait and still be answered before its deadline; at most ``max_s``."""
    # None without a deadline, although the type does not allow it.
    remaining_s = cast("float | None", context.time_remaining())
    if remaining_s is None:
        return max_s
    return max(0.0, min(max_s, remaining_s - max(_ANSWER_WITHIN_S, remaining_s * _ANSWER_SHARE)))


def caller_of(context: Context) -> Caller:
    """Return the principal and client id of a call. Raises InvalidRequestError if the client id is invalid."""
    for key, value in context.invocation_metadata() or ():
        if key == CLIENT_ID_KEY:
            client_id = value if isinstance(value, str) else value.decode("latin-1")
            if not 1 <= len(client_id) <= MAX_CLIENT_ID_BYTES:
                raise InvalidRequestError(
                    f"the client id has {len(client_id)} bytes, expected 1 to {MAX_CLIENT_ID_BYTES}",
                    field=CLIENT_ID_KEY,
                )
            if not is_clean(client_id):
                raise InvalidRequestError(
                    f"the client id '{shown(client_id)}' has control characters: remove them", field=CLIENT_ID_KEY
                )
            return Caller(current_principal(), client_id)
    return Caller(current_principal(), "")
