"""Conversion between the client's types and protocol messages.

Those of scans are in ``tidelog.read.protocol``, those of groups in ``tidelog.groups.types``; ``tidelog.admin`` has
those of channels and broadcasts, and ``tidelog.transport.status`` those of errors.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tidelog.message import Message
from tidelog.tick import Tick
from tidelog.types import (
    AppendResult,
    ChannelSequence,
    Durability,
    Plan,
    PositionCommit,
    PreparedTransaction,
    ProducerSequence,
    Split,
    StagedSequence,
    TransactionDescription,
    TransactionResult,
    TransactionState,
)  # fmt: skip
from tidelog.v1 import message_pb2, transaction_service_pb2, wal_service_pb2
from tidelog.wire.append_terms import DEFAULT_TERMS, AppendTerms
from tidelog.wire.column_message import columns_to_wire
from tidelog.wire.columns import Buffer, Columns
from tidelog.wire.protowire import (
    FIXED32,
    LENGTH,
    VARINT,
    key_of,
    varint,
)

DURABILITIES: Final[Mapping[Durability | None, message_pb2.Durability]] = {
    None: message_pb2.DURABILITY_UNSPECIFIED,
    "sync": message_pb2.DURABILITY_SYNC,
    "os": message_pb2.DURABILITY_OS,
}

_FIXED32: Final = struct.Struct("<I")
# Cached encoded names; each append needs one.
_NAMES_KEPT: Final = 1_024
_TERMS_KEPT: Final = 128
_Columns = message_pb2.Columns
_REQUEST_ID: Final = key_of(wal_service_pb2.AppendStreamRequest.REQUEST_ID_FIELD_NUMBER, VARINT)
_REQUEST_COLUMNS: Final = key_of(wal_service_pb2.AppendStreamRequest.COLUMNS_FIELD_NUMBER, LENGTH)
_REQUEST_TRANSACTION: Final = key_of(wal_service_pb2.AppendStreamRequest.TRANSACTION_FIELD_NUMBER, LENGTH)
_REQUEST_MORE: Final = key_of(wal_service_pb2.AppendStreamRequest.MORE_FIELD_NUMBER, LENGTH)
_PARTS: Final = key_of(wal_service_pb2.Transaction.PARTS_FIELD_NUMBER, LENGTH)
_PART_BATCHES: Final = key_of(wal_service_pb2.TransactionPart.BATCHES_FIELD_NUMBER, LENGTH)
_COLUMNS_COUNT: Final = key_of(_Columns.COUNT_FIELD_NUMBER, VARINT)
_COLUMNS_PAYLOAD_OFFSETS: Final = key_of(_Columns.PAYLOAD_OFFSETS_FIELD_NUMBER, LENGTH)
_COLUMNS_PAYLOADS: Final = key_of(_Columns.PAYLOADS_FIELD_NUMBER, LENGTH)
_COLUMNS_CRC: Final = key_of(_Columns.CRC32C_FIELD_NUMBER, FIXED32)
_TXN_STATES: Final[dict[int, TransactionState]] = {
    transaction_service_pb2.TXN_STATE_OPEN: "open",
    transaction_service_pb2.TXN_STATE_COMMITTING: "committing",
    transaction_service_pb2.TXN_STATE_COMMITTED: "committed",
    transaction_service_pb2.TXN_STATE_PREPARED: "prepared",
}


def append_options(
    terms: AppendTerms,
    *,
    barrier_tick: int = 0,
    expected_last_tick: int | None = None,
    producer: ProducerSequence | ChannelSequence | StagedSequence | None = None,
) -> wal_service_pb2.AppendOptions:
    """Return the options of an append, or of a batch of a staged transaction."""
    if isinstance(producer, StagedSequence):
        return wal_service_pb2.AppendOptions(txn_id=producer.txn_id, txn_sequence=producer.sequence)
    return wal_service_pb2.AppendOptions(
        barrier_tick=barrier_tick, durability=DURABILITIES[terms.durability], expected_last_tick=expected_last_tick,
        fencing_token=terms.fencing_token or 0, producer=_producer(producer),
    )  # fmt: skip


def _producer(producer: ProducerSequence | ChannelSequence | None) -> wal_service_pb2.ProducerSequence | None:
    if producer is None:
        return None
    return wal_service_pb2.ProducerSequence(
        producer_id=producer.producer_id, epoch=producer.epoch, sequence=producer.sequence,
        call=producer.call if isinstance(producer, ChannelSequence) else 0,
    )  # fmt: skip


def append_stream_request(
    request_id: int,
    vchannel: str,
    columns: Columns,
    terms: AppendTerms,
    producer: ProducerSequence | StagedSequence | None = None,
) -> bytes:
    """Return the bytes of an AppendStreamRequest, identical to protobuf's.

    Payloads are copied once. Protobuf would copy them into its message and again into the bytes, which for a batch of
    1 MiB costs three times as much as encoding it, and adds to the latency of a single small message.
    """
    inner = _columns_bytes(columns)
    return b"".join(
        (
            _REQUEST_ID, varint(request_id), _vchannel_field(vchannel),
            _REQUEST_COLUMNS, varint(sum(map(len, inner))), *inner, _options_of(terms, producer),
        )
    )  # fmt: skip


def requests_together(requests: Sequence[bytes]) -> bytes:
    """Return the bytes of one AppendStreamRequest from those of several: the first one has the others in ``more``."""
    first, *others = requests
    return first + b"".join([_REQUEST_MORE + varint(len(request)) + request for request in others])


@dataclass(frozen=True, slots=True)
class WirePart:
    """The batches and conditions of a transaction on one vchannel."""

    vchannel: str
    batches: Sequence[Columns]
    expected_last_tick: int | None = None
    fencing_token: int | None = None


def transaction_field(parts: Sequence[WirePart], companions: bytes = b"") -> bytes:
    """Return the bytes of a transaction in an AppendStreamRequest.

    ``companions`` are the other fields of the transaction, serialised.
    """
    encoded = b"".join(_PARTS + varint(len(part)) + part for part in map(_part_bytes, parts)) + companions
    return _REQUEST_TRANSACTION + varint(len(encoded)) + encoded


def position_commit(commit: PositionCommit) -> wal_service_pb2.PositionCommit:
    """Return ``commit`` as the protocol message."""
    return wal_service_pb2.PositionCommit(
        group=commit.group,
        vchannel=commit.vchannel,
        next_tick=commit.next_tick,
        member_id=commit.member_id,
        epoch=commit.epoch,
        expected_tick=commit.expected_tick,
    )


def transaction_request(
    request_id: int, transaction: bytes, terms: AppendTerms, producer: ProducerSequence | StagedSequence | None
) -> bytes:
    """Return the bytes of an AppendStreamRequest with what ``transaction_field`` returned."""
    return b"".join((_REQUEST_ID, varint(request_id), _options_of(terms, producer), transaction))


def _part_bytes(part: WirePart) -> bytes:
    rest = wal_service_pb2.TransactionPart(
        expected_last_tick=part.expected_last_tick, fencing_token=part.fencing_token or 0
    ).SerializeToString()
    fields: list[Buffer] = [wal_service_pb2.TransactionPart(vchannel=part.vchannel).SerializeToString()]
    for columns in part.batches:
        inner = _columns_bytes(columns)
        fields += (_PART_BATCHES, varint(sum(map(len, inner))), *inner)
    return b"".join((*fields, rest))


def _columns_bytes(columns: Columns) -> list[Buffer]:
    inner: list[Buffer] = [
        _COLUMNS_COUNT, varint(columns.count),
        _COLUMNS_PAYLOAD_OFFSETS, varint(len(columns.payload_offsets)), columns.payload_offsets,
    ]  # fmt: skip
    if columns.payloads:
        inner += (_COLUMNS_PAYLOADS, varint(len(columns.payloads)), columns.payloads)
    inner.append(_after_payloads(columns))
    return inner


def _options_of(terms: AppendTerms, producer: ProducerSequence | StagedSequence | None) -> bytes:
    if producer is not None:
        return _options_field(terms, producer)
    return b"" if terms == DEFAULT_TERMS else _known_options_field(terms)


def _after_payloads(columns: Columns) -> bytes:
    """Return the fields of ``columns`` that come after the payloads."""
    if columns.is_plain and not columns.uniform_type and columns.crc32c and not columns.txn_ends:
        return _COLUMNS_CRC + _FIXED32.pack(columns.crc32c)
    rest = columns_to_wire(columns)
    for name in ("count", "payload_offsets", "payloads"):
        rest.ClearField(name)
    return rest.SerializeToString()


@lru_cache(_NAMES_KEPT)
def _vchannel_field(vchannel: str) -> bytes:
    return wal_service_pb2.AppendStreamRequest(vchannel=vchannel).SerializeToString()


def _options_field(terms: AppendTerms, producer: ProducerSequence | StagedSequence | None = None) -> bytes:
    return wal_service_pb2.AppendStreamRequest(options=append_options(terms, producer=producer)).SerializeToString()


_known_options_field: Final = lru_cache(_TERMS_KEPT)(_options_field)


def append_result(wire: wal_service_pb2.AppendResult) -> AppendResult:
    """Return the result in a protocol message."""
    durability: Durability = "os" if wire.durability == message_pb2.DURABILITY_OS else "sync"
    return AppendResult(Tick(wire.first_tick), Tick(wire.last_tick), durability, wire.duplicate)


def committed(wire: transaction_service_pb2.CommitTxnResponse) -> TransactionResult:
    """Return the result of a staged transaction; vchannels that were destroyed since are omitted."""
    result = wire.result
    parts = list(map(append_result, result.parts))
    results = {name: part for name, part in zip(wire.vchannels, parts, strict=True) if name}
    # Without messages, the commit was synced: it has deliveries or messages of mailboxes.
    durability, duplicate = (parts[0].durability, parts[0].duplicate) if parts else ("sync", False)
    return TransactionResult(
        result.txn_id, Tick(result.first_tick), Tick(result.last_tick), results, durability, duplicate,
        sent_ids=_sent_ids(result),
    )  # fmt: skip


def _sent_ids(wire: wal_service_pb2.TransactionResult) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(each.ids) for each in wire.sent)


def check_app_version(app_version: int) -> None:
    """Raise ValueError unless ``app_version`` is in 0 … 2**63 - 1."""
    if not 0 <= app_version < 1 << 63:
        raise ValueError(f"the app_version is {app_version}, expected 0 to 2^63 - 1")


def prepared(txns: Sequence[PreparedTransaction]) -> list[transaction_service_pb2.PreparedTxn]:
    """Return prepared transactions as protocol messages."""
    return [transaction_service_pb2.PreparedTxn(txn_id=each.txn_id, client_id=each.client_id) for each in txns]


def transaction_description(wire: transaction_service_pb2.TxnDescription) -> TransactionDescription:
    """Return the description in a protocol message."""
    return TransactionDescription(
        wire.txn_id, _TXN_STATES[wire.state], wire.client_id, tuple(wire.vchannels), wire.batches, wire.messages,
        wire.bytes, wire.keepalive_us / 1e6, wire.expires_in_us / 1e6, wire.principal,
    )  # fmt: skip


def transaction_results(
    counts: Sequence[Mapping[str, int]], wire: wal_service_pb2.TransactionResult
) -> Iterator[TransactionResult]:
    """Yield the results of transactions that shared a request; ``counts`` has the messages of each by vchannel."""
    wholes = dict(zip(counts[0], map(append_result, wire.parts), strict=True))
    begins = dict.fromkeys(wholes, 0)
    for number, count_by_vchannel in enumerate(counts):
        results = {}
        for vchannel, count in count_by_vchannel.items():
            begin = begins[vchannel]
            begins[vchannel] = begin + count
            results[vchannel] = wholes[vchannel].part(begin, begin + count)
        parts = list(results.values())
        yield TransactionResult(
            wire.txn_id + number, Tick(wire.first_tick), Tick(wire.last_tick), results, parts[0].durability,
            parts[0].duplicate, sent_ids=_sent_ids(wire),
        )  # fmt: skip


def message_to_wire(message: Message) -> message_pb2.Message:
    """Return ``message`` in row form.

    Raises:
        ValueError: Its type is not in 0 … 2**32 - 1.
    """
    return message_pb2.Message(
        payload=message.payload, key=message.key, type=message.type, properties=message.properties,
        event_time_ms=message.event_time_ms,
    )  # fmt: skip


def plan(wire: wal_service_pb2.PlanScanResponse) -> Plan:
    """Return the plan in a protocol message."""
    splits = tuple(
        Split(
            split.vchannel, Tick(split.begin_tick), Tick(split.end_tick), split.estimated_messages,
            split.estimated_bytes, Tick(split.created_tick),
        )
        for split in wire.splits
    )  # fmt: skip
    return Plan(Tick(wire.end_tick), splits, {each.name: each.vchannels for each in wire.grown})
