"""Batches that several transactions share: marking and splitting them. Bytes only, as in ``tidelog.wire.columns``."""

from array import array
from collections.abc import Iterable, Iterator, Sequence

from tidelog.wire.columns import Buffer, Columns, bitmap, bits, little_endian, numbers, with_crc
from tidelog.wire.layout import crc32c_with_txn_ends


def with_txn_ends(columns: Columns, ends: Sequence[int]) -> Columns:
    """Divide the messages of ``columns`` among transactions that end at ``ends``; return ``columns``.

    The CRC of ``columns`` must be valid beforehand.
    """
    columns.txn_ends = little_endian(array("I", ends))
    columns.crc32c = crc32c_with_txn_ends(columns.crc32c, columns.txn_ends)
    return columns


def txn_parts(columns: Columns) -> Iterator[tuple[int, int, Columns]]:
    """Yield, for each transaction with messages: its number from 0, the index of its first message, its columns.

    Raises:
        ValueError: ``txn_ends`` contradicts the batch.
    """
    ends = numbers("I", columns.txn_ends)
    if list(ends) != sorted(ends) or ends[-1] != columns.count:
        raise ValueError("txn_ends does not divide the batch")
    begin = 0
    for number, end in enumerate(ends):
        if begin < end:
            yield number, begin, part(columns, begin, end)
        begin = end


def part(columns: Columns, begin: int, end: int) -> Columns:
    """Return the messages ``[begin, end)`` as a separate batch of one transaction, including the CRC."""
    return selected(columns, [(begin, end)])


def selected(columns: Columns, runs: Sequence[tuple[int, int]]) -> Columns:
    """Return the messages ``[begin, end)`` of each of ``runs``, which grow, as a separate batch, including the CRC."""
    count = sum(end - begin for begin, end in runs)
    payload_offsets, payloads = _divided(columns.payload_offsets, columns.payloads, runs)
    if columns.is_plain:
        return with_crc(Columns(count, payload_offsets, payloads, uniform_type=columns.uniform_type))
    key_offsets, keys = _divided(columns.key_offsets, columns.keys, runs)
    lists, names = _shifted(columns.property_list_offsets, runs)
    return with_crc(
        Columns(
            count, payload_offsets, payloads,
            key_offsets, keys, _bitmap_part(columns.key_validity, runs),
            columns.uniform_type, _numbers_part(columns.types, 4, runs),
            lists, *_divided(columns.property_key_offsets, columns.property_keys, names),
            *_divided(columns.property_value_offsets, columns.property_values, names),
            _numbers_part(columns.event_times_ms, 8, runs), _bitmap_part(columns.event_time_validity, runs),
        )
    )  # fmt: skip


def runs_of(indices: Iterable[int]) -> list[tuple[int, int]]:
    """Return ``indices``, which grow, as ranges of consecutive ones."""
    runs: list[tuple[int, int]] = []
    for index in indices:
        if runs and runs[-1][1] == index:
            runs[-1] = (runs[-1][0], index + 1)
        else:
            runs.append((index, index + 1))
    return runs


def _divided(offsets: bytes, values: Buffer, runs: Sequence[tuple[int, int]]) -> tuple[bytes, Buffer]:
    """Return the offsets and the values of the items of ``runs``; both empty for an absent column."""
    shifted, places = _shifted(offsets, runs)
    pieces = [values[begin:end] for begin, end in places]
    return shifted, pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _shifted(offsets: bytes, runs: Sequence[tuple[int, int]]) -> tuple[bytes, Sequence[tuple[int, int]]]:
    """Return the offsets of the items of ``runs``, from 0, and the places of their values; empty without offsets."""
    if not offsets:
        return b"", ()
    shifted, places = array("i", (0,)), []
    for begin, end in runs:
        bounds = numbers("i", offsets[4 * begin : 4 * (end + 1)])
        places.append((bounds[0], bounds[-1]))
        shift = shifted[-1] - bounds[0]
        shifted.extend(bounds[1:] if not shift else array("i", [bound + shift for bound in bounds[1:]]))
    return little_endian(shifted), places


def _numbers_part(column: bytes, width: int, runs: Sequence[tuple[int, int]]) -> bytes:
    return b"".join([column[width * begin : width * end] for begin, end in runs]) if column else b""


def _bitmap_part(column: bytes, runs: Sequence[tuple[int, int]]) -> bytes:
    if not column:
        return b""
    flags = bits(column)
    return bitmap([flag for begin, end in runs for flag in flags[begin:end]])
