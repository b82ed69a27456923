"""The rule that chooses the vchannel (partition) of a key. Pure; the client and the Spark source share it.

By default it is CRC-32C of the key modulo the number of vchannels. ``murmur2`` is the rule of Kafka's producers, for
streams that move from Kafka with their partitions.
"""

import struct
from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Final, Literal, cast

from crc32c import crc32c

Partitioner = Literal["crc32c", "murmur2"] | Callable[[bytes, int], int]
"""How the vchannel of a key is chosen: ``crc32c``, the default; ``murmur2``, as by Kafka; or a function of the key and
the number of vchannels that returns the index of the vchannel. A function must depend on its arguments only."""

NO_KEY: Final = -1
"""The index of a message without a key."""

_UINT32: Final = (1 << 32) - 1
# Kafka, org.apache.kafka.common.utils.Utils.murmur2: the seed, and the constants of the algorithm.
_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_SHIFT: Final = 24
# Of a signed 32-bit number: Utils.toPositive clears the sign.
_POSITIVE: Final = (1 << 31) - 1


def partition_keys(
    keys: Iterable[bytes | None], vchannels: int, partitioner: Partitioner | None = None
) -> "array[int]":
    """Return the index of the vchannel of each key, ``NO_KEY`` (-1) for None, as an array of 32-bit integers.

    Args:
        keys: The keys.
        vchannels: Number of vchannels, at least 1.
        partitioner: See ``Partitioner``; None for ``crc32c``.

    Raises:
        ValueError: ``vchannels`` or ``partitioner`` is invalid, or a function has returned another index than 0 to
            ``vchannels`` - 1.
    """
    return array("i", indices_of(list(keys), vchannels, partitioner))


def indices_of(keys: list[bytes | None], vchannels: int, partitioner: Partitioner | None) -> list[int]:
    """Return what ``partition_keys`` returns, as a list: for the client's own appends."""
    if vchannels < 1:
        raise ValueError(f"the number of vchannels is {vchannels}, expected at least 1")
    check_is_partitioner(partitioner)
    if None not in keys:
        return _indices(cast("list[bytes]", keys), vchannels, partitioner)
    each = iter(_indices([key for key in keys if key is not None], vchannels, partitioner))
    return [NO_KEY if key is None else next(each) for key in keys]


def check_is_partitioner(partitioner: object) -> None:
    """Raise ValueError unless ``partitioner`` is a Partitioner or None."""
    if partitioner is not None and partitioner not in ("crc32c", "murmur2") and not callable(partitioner):
        raise ValueError(f"the partitioner is {partitioner!r}, expected 'crc32c', 'murmur2' or a function")


def murmur2(key: bytes) -> int:
    """Return the 32-bit hash of ``key`` that Kafka's producers use, unsigned.

    Source: Kafka, ``org.apache.kafka.common.utils.Utils.murmur2``: MurmurHash2 by Austin Appleby.
    """
    length = len(key)
    value = _SEED ^ length
    in_words = length & ~3
    for (word,) in struct.iter_unpack("<I", key[:in_words]):
        mixed = word * _MULTIPLIER & _UINT32
        mixed = (mixed ^ mixed >> _SHIFT) * _MULTIPLIER & _UINT32
        value = (value * _MULTIPLIER & _UINT32) ^ mixed
    if length > in_words:
        value = (value ^ int.from_bytes(key[in_words:], "little")) * _MULTIPLIER & _UINT32
    value = (value ^ value >> 13) * _MULTIPLIER & _UINT32
    return value ^ value >> 15


def _indices(keys: list[bytes], vchannels: int, partitioner: Partitioner | None) -> list[int]:
    if partitioner is None or partitioner == "crc32c":
        return [value % vchannels for value in map(crc32c, keys)]
    if partitioner == "murmur2":
        return [(murmur2(key) & _POSITIVE) % vchannels for key in keys]
    return list(_checked(map(partitioner, keys, repeat(vchannels)), vchannels))


def _checked(indices: Iterable[object], vchannels: int) -> Iterator[int]:
    for index in indices:
        if not isinstance(index, int) or not 0 <= index < vchannels:
            raise ValueError(
                f"the partitioner returned {index!r}, expected the index of a vchannel: 0 to {vchannels - 1}"
            )
        yield int(index)
