"""Validation of a batch in columns, once on arrival.

Work per message is done in C only: in numpy, and for small batches in built-in functions, because numpy's calls take
longer than these.

Readers rely on it: every batch in the log can be decoded as rows, in Arrow and in Spark.
"""

import struct
from collections.abc import Iterable
from itertools import pairwise
from operator import sub
from typing import Final

import numpy as np
import numpy.typing as npt

from tidelog_server.core.errors import (
    BatchTooLargeError,
    ChecksumMismatchError,
    EmptyBatchError,
    MalformedColumnsError,
    MessageTooLargeError,
    ReservedPropertyError,
)
from tidelog_server.core.limits import KIB, MAX_MESSAGES_PER_BATCH, Limits
from tidelog_server.core.message_checks import MS_PER_YEAR_9999
from tidelog_server.core.names import RESERVED_PREFIX, shown
from tidelog_server.rpc.columns.view import ColumnsView, Offsets

MAX_KEY_BYTES: Final = 1 * KIB
MAX_PROPERTIES_PER_MESSAGE: Final = 16
MAX_PROPERTY_BYTES_PER_MESSAGE: Final = 8 * KIB
# The years 1 to 9999, which every reader supports: datetimes of Python and SQL, timestamps of Arrow and Spark.
MIN_EVENT_TIME_MS: Final = -62_135_596_800_000
MAX_EVENT_TIME_MS: Final = MS_PER_YEAR_9999

_SMALL_BATCH: Final = 32
"""Messages up to which a check without numpy takes less time than numpy's overhead."""
_OFFSETS: Final = [struct.Struct(f"<{count + 1}i") for count in range(_SMALL_BATCH + 1)]
# Messages per pass of hashing property keys, and bytes hashed per key: half from its beginning, half from its end.
_HASHED_MESSAGES: Final = 1_000
_HASHED_KEY_BYTES: Final = 32
# Weights of the bytes of a key by position, for a sum modulo 2^64. Random per process, so that a client cannot
# construct keys with equal hashes.
_WEIGHTS: Final = np.random.default_rng().integers(0, 1 << 64, _HASHED_KEY_BYTES, np.uint64) | np.uint64(1)
_OWNER_AND_SIZE_WEIGHT: Final = np.uint64(0x9E37_79B9_7F4A_7C15)


def check(view: ColumnsView, size_bytes: int, limits: Limits, *, is_encoded_here: bool = False) -> None:
    """Check that ``view`` is a batch that may be stored. It is not checked again later.

    The CRC of a batch that this process has encoded and summed is not checked.

    Raises:
        EmptyBatchError, BatchTooLargeError, MessageTooLargeError: A count or size exceeds a limit.
        ChecksumMismatchError: The CRC does not match the columns.
        MalformedColumnsError, ReservedPropertyError: The columns contradict each other or the limits.
    """
    if view.count == 0:
        raise EmptyBatchError
    if view.count > MAX_MESSAGES_PER_BATCH:
        raise BatchTooLargeError(actual=view.count, maximum=MAX_MESSAGES_PER_BATCH, unit="messages")
    if size_bytes > limits.max_batch_bytes:
        raise BatchTooLargeError(actual=size_bytes, maximum=limits.max_batch_bytes, unit="bytes")
    if not is_encoded_here and (actual := view.compute_crc32c()) != view.crc32c:
        raise ChecksumMismatchError(expected=view.crc32c, actual=actual)
    if not _has_small_payloads(view, limits.max_message_bytes):
        sizes = _check_divided(view, "payload_offsets", "payloads", view.count)
        _check_size(sizes, limits.max_message_bytes, "payload")
    if view.txn_ends:
        _check_txn_ends(view)
    if view.is_plain:
        return
    _check_keys(view)
    _check_types(view)
    _check_properties(view)
    _check_event_times(view)


def _has_small_payloads(view: ColumnsView, max_bytes: int) -> bool:
    """Return whether the batch has few messages and valid payloads; if not, the checks with numpy find the reason."""
    count, column = view.count, view.column("payload_offsets")
    if count > _SMALL_BATCH or len(column) != 4 * (count + 1):
        return False
    offsets: tuple[int, ...] = _OFFSETS[count].unpack(column)
    sizes = list(map(sub, offsets[1:], offsets))
    is_divided = offsets[0] == 0 <= min(sizes) and offsets[-1] == len(view.column("payloads"))
    return is_divided and max(sizes) <= max_bytes


def _check_divided(view: ColumnsView, offsets_name: str, values_name: str, count: int) -> Offsets:
    """Check an offsets column against the column that it divides, and return the sizes of the items."""
    return _check_offsets(view, offsets_name, count, len(view.column(values_name)), values_name)


def _check_offsets(view: ColumnsView, name: str, count: int, end: int, divided: str) -> Offsets:
    column = view.column(name)
    if len(column) != 4 * (count + 1):
        raise MalformedColumnsError(name, f"has {len(column)} bytes, expected {4 * (count + 1)} for {count} items")
    offsets = np.frombuffer(column, "<i4")
    if offsets[0] != 0:
        raise MalformedColumnsError(name, f"begins at {offsets[0]}, expected 0")
    # In 64 bits: the difference of two int32 may overflow.
    sizes = np.diff(offsets.astype(np.int64))
    if sizes.size and sizes.min() < 0:
        index = int(np.argmin(sizes >= 0))
        raise MalformedColumnsError(name, f"decreases from {offsets[index]} to {offsets[index + 1]} at item {index}")
    if offsets[-1] != end:
        raise MalformedColumnsError(name, f"ends at {offsets[-1]}, but {divided} has {end}")
    return sizes.astype(np.int32)


def _check_size(sizes: Offsets, max_bytes: int, part: str) -> None:
    if sizes.size and sizes.max() > max_bytes:
        index = int(np.argmax(sizes > max_bytes))
        raise MessageTooLargeError(size_bytes=int(sizes[index]), max_bytes=max_bytes, index=index, part=part)


def _check_keys(view: ColumnsView) -> None:
    if not view.column("key_offsets"):
        _check_absent(view, "keys", "key_offsets")
        _check_absent(view, "key_validity", "key_offsets")
        return
    sizes = _check_divided(view, "key_offsets", "keys", view.count)
    _check_size(sizes, MAX_KEY_BYTES, "key")
    _check_validity(view, "key_validity")


def _check_types(view: ColumnsView) -> None:
    column = view.column("types")
    if not column:
        return
    if len(column) != 4 * view.count:
        raise MalformedColumnsError("types", f"has {len(column)} bytes, expected {4 * view.count}")
    if view.uniform_type:
        raise MalformedColumnsError("uniform_type", "must be 0 when the column types is present")


def _check_event_times(view: ColumnsView) -> None:
    column = view.column("event_times_ms")
    if not column:
        _check_absent(view, "event_time_validity", "event_times_ms")
        return
    if len(column) != 8 * view.count:
        raise MalformedColumnsError("event_times_ms", f"has {len(column)} bytes, expected {8 * view.count}")
    _check_validity(view, "event_time_validity")
    times = np.frombuffer(column, "<i8")
    if MIN_EVENT_TIME_MS <= times.min() and times.max() <= MAX_EVENT_TIME_MS:
        return
    is_wrong = (times < MIN_EVENT_TIME_MS) | (times > MAX_EVENT_TIME_MS)
    if validity := view.column("event_time_validity"):
        is_wrong &= np.unpackbits(np.frombuffer(validity, np.uint8), count=view.count, bitorder="little").astype(bool)
    if is_wrong.any():
        index = int(np.argmax(is_wrong))
        raise MalformedColumnsError(
            "event_times_ms",
            f"is {times[index]} at message {index}, expected milliseconds since the epoch within the years 1 to 9999: "
            f"{MIN_EVENT_TIME_MS} to {MAX_EVENT_TIME_MS}",
        )


def _check_txn_ends(view: ColumnsView) -> None:
    if len(view.txn_ends) % 4:
        raise MalformedColumnsError("txn_ends", f"has {len(view.txn_ends)} bytes, expected 4 per transaction")
    ends = np.frombuffer(view.txn_ends, "<u4").astype(np.int64)
    if np.diff(ends, prepend=0).min() < 0:
        raise MalformedColumnsError("txn_ends", "decreases")
    if ends[-1] != view.count:
        raise MalformedColumnsError("txn_ends", f"ends at {ends[-1]}, but the batch has {view.count} messages")


def _check_validity(view: ColumnsView, name: str) -> None:
    column, expected = view.column(name), -(-view.count // 8)
    if column and len(column) != expected:
        raise MalformedColumnsError(name, f"has {len(column)} bytes, expected {expected} or 0")


def _check_absent(view: ColumnsView, name: str, without: str) -> None:
    if view.column(name):
        raise MalformedColumnsError(name, f"is present without {without}")


_PROPERTY_COLUMNS: Final = (
    "property_key_offsets", "property_keys", "property_value_offsets", "property_values"
)  # fmt: skip


def _check_properties(view: ColumnsView) -> None:
    lists = view.column("property_list_offsets")
    if not lists:
        for name in _PROPERTY_COLUMNS:
            _check_absent(view, name, "property_list_offsets")
        return
    total = max(len(view.column("property_key_offsets")) // 4 - 1, 0)
    numbers = _check_offsets(view, "property_list_offsets", view.count, total, "the number of properties")
    if (most := int(numbers.max())) > MAX_PROPERTIES_PER_MESSAGE:
        raise MalformedColumnsError(
            "property_list_offsets",
            f"assigns {most} properties to a message, at most {MAX_PROPERTIES_PER_MESSAGE} are allowed",
        )
    key_sizes = _check_divided(view, "property_key_offsets", "property_keys", total)
    value_sizes = _check_divided(view, "property_value_offsets", "property_values", total)
    running = np.concatenate(([0], np.cumsum(key_sizes.astype(np.int64) + value_sizes)))
    sizes = np.diff(running[view.offsets("property_list_offsets")])
    _check_size(sizes.astype(np.int32), MAX_PROPERTY_BYTES_PER_MESSAGE, "properties")
    _check_property_texts(view, key_sizes)
    if most > 1:
        _check_keys_differ(view, numbers, key_sizes)


def _check_property_texts(view: ColumnsView, key_sizes: Offsets) -> None:
    if key_sizes.size and key_sizes.min() == 0:
        raise MalformedColumnsError("property_keys", "has an empty key")
    for name in ("property_keys", "property_values"):
        try:
            str(view.column(name), "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedColumnsError(name, f"is not UTF-8 at byte {error.start}") from error
        starts = view.offsets(name.removesuffix("s") + "_offsets")[:-1]
        _check_starts_are_characters(view.column(name), starts, name)
    keys = np.frombuffer(view.column("property_keys"), np.uint8)
    starts = view.offsets("property_key_offsets")[:-1]
    reserved = np.flatnonzero(keys[starts] == ord(RESERVED_PREFIX)) if starts.size else starts
    if reserved.size:
        begin = int(starts[reserved[0]])
        key = bytes(view.column("property_keys")[begin : begin + int(key_sizes[reserved[0]])])
        raise ReservedPropertyError(shown(key.decode("utf-8", "replace")))


def _check_starts_are_characters(values: memoryview, starts: Offsets, name: str) -> None:
    """Check that no offset is inside a character: the whole column is UTF-8, so each text is too."""
    bytes_at = np.frombuffer(values, np.uint8)
    inner = starts[starts < bytes_at.size]
    if inner.size and bool(((bytes_at[inner] & 0xC0) == 0x80).any()):
        raise MalformedColumnsError(name, "has an offset within a UTF-8 character")


def _check_keys_differ(view: ColumnsView, numbers: Offsets, key_sizes: Offsets) -> None:
    """Raise if a message has a property key twice: readers build mappings, and might choose different values.

    Args:
        view: The batch, with valid offsets.
        numbers: Number of properties of each message.
        key_sizes: Size of each property's key.
    """
    if _has_same_keys(view, numbers, key_sizes):
        _check_each_key_differs(view, range(1))
        return
    for begin in range(0, view.count, _HASHED_MESSAGES):
        end = min(begin + _HASHED_MESSAGES, view.count)
        hashes = _key_hashes(view, numbers, key_sizes, begin, end)
        order = np.argsort(hashes)
        alike = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
        # Equal keys, long keys that differ only in the middle, or a collision.
        if alike.size:
            owners = np.repeat(np.arange(begin, end), numbers[begin:end])
            _check_each_key_differs(view, np.unique(owners[order[alike + 1]]).tolist())


def _has_same_keys(view: ColumnsView, numbers: Offsets, key_sizes: Offsets) -> bool:
    """Return whether all messages have the keys of the first one, as is usual for messages of one program."""
    if numbers.min() != numbers.max():
        return False
    sizes = key_sizes.reshape(view.count, -1)
    keys = view.column("property_keys")
    return bool((sizes == sizes[0]).all()) and keys == bytes(keys[: sizes[0].sum()]) * view.count


def _key_hashes(
    view: ColumnsView, numbers: Offsets, key_sizes: Offsets, begin: int, end: int
) -> npt.NDArray[np.uint64]:
    """Return a hash of (message, key size, key) for each property of the messages from ``begin`` up to ``end``."""
    lists = view.offsets("property_list_offsets")
    sizes = key_sizes[lists[begin] : lists[end]]
    if not sizes.size:
        return np.empty(0, np.uint64)
    hashed = np.minimum(sizes, _HASHED_KEY_BYTES)
    firsts = np.cumsum(hashed) - hashed
    places = np.arange(int(hashed.sum()), dtype=np.int32) - np.repeat(firsts, hashed)
    starts = view.offsets("property_key_offsets")[lists[begin] : lists[end]]
    at = np.repeat(starts, hashed) + places
    if sizes.max() > _HASHED_KEY_BYTES:
        at += np.where(places < _HASHED_KEY_BYTES // 2, 0, np.repeat(sizes - hashed, hashed))
    values = np.frombuffer(view.column("property_keys"), np.uint8)[at].astype(np.uint64)
    hashes: npt.NDArray[np.uint64] = np.add.reduceat(values * _WEIGHTS[places], firsts)
    owners = np.repeat(np.arange(end - begin, dtype=np.uint64), numbers[begin:end])
    hashes += (owners << np.uint64(32) | sizes.astype(np.uint64)) * _OWNER_AND_SIZE_WEIGHT
    return hashes


def _check_each_key_differs(view: ColumnsView, indices: Iterable[int]) -> None:
    lists, offsets = view.offsets("property_list_offsets"), view.offsets("property_key_offsets")
    for index in indices:
        bounds = offsets[lists[index] : lists[index + 1] + 1].tolist()
        keys = [bytes(view.column("property_keys")[begin:end]) for begin, end in pairwise(bounds)]
        if len(set(keys)) < len(keys):
            key = next(key for key in keys if keys.count(key) > 1)
            raise MalformedColumnsError(
                "property_keys", f"has the key {shown(key.decode())!r} twice in message {index}, expected each key once"
            )
