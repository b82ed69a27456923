"""XXH64 of many byte strings at once, in numpy: the hash of Spark's ``xxhash64``, without Spark.

Rows are hashed in lock step, all first words, then all second ones, so the rows of a batch share the cost of a call.
Long strings should be few or of similar length: each 32 bytes of the longest string cost a step.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]

_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5
_N1, _N2, _N3, _N4, _N5 = (np.uint64(prime) for prime in (_P1, _P2, _P3, _P4, _P5))
_MASK: Final = (1 << 64) - 1
_N1_PLUS_N2: Final = np.uint64((_P1 + _P2) & _MASK)
_STRIPE: Final = 32
_WORD: Final = 8
_HALF_WORD: Final = 4


def hash_bytes(value: bytes, seed: int) -> int:
    """Return the XXH64 of one byte string. Slow: use ``hash_rows`` for many."""
    data = np.frombuffer(value, np.uint8)
    place = np.zeros(1, np.int64)
    return int(hash_rows(data, place, place + len(value), np.array([seed & _MASK], np.uint64))[0])


def hash_rows(data: npt.NDArray[np.uint8], starts: Places, lengths: Places, seeds: Hashes) -> Hashes:
    """Return the XXH64 of each of the strings ``data[start : start + length]``, each with its own seed."""
    if not len(starts):
        return np.empty(0, np.uint64)
    if lengths.min() == lengths.max():
        return _hash_sorted(data, starts, lengths, seeds)
    # Longest first, so that the strings with remaining words are always a prefix.
    order = np.argsort(-lengths, kind="stable")
    hashes = np.empty(len(starts), np.uint64)
    hashes[order] = _hash_sorted(data, starts[order], lengths[order], seeds[order])
    return hashes


def hash_int32(values: npt.NDArray[np.int32], seeds: Hashes) -> Hashes:
    """Return the XXH64 of each number as 4 bytes, little-endian."""
    return _avalanche(_mix_half_word(seeds + _N5 + np.uint64(4), values.view(np.uint32).astype(np.uint64)))


def hash_int64(values: npt.NDArray[np.int64], seeds: Hashes) -> Hashes:
    """Return the XXH64 of each number as 8 bytes, little-endian."""
    return _avalanche(_mix_word(seeds + _N5 + np.uint64(8), values.view(np.uint64)))


def _hash_sorted(data: npt.NDArray[np.uint8], starts: Places, lengths: Places, seeds: Hashes) -> Hashes:
    words = _unaligned(data, "<u8", _WORD)
    stripes = lengths // _STRIPE
    hashes = seeds + _N5
    if stripes[0]:
        long = int(np.count_nonzero(stripes))
        hashes[:long] = _hash_stripes(words, starts[:long], stripes[:long], seeds[:long])
    hashes += lengths.astype(np.uint64)
    left = lengths % _STRIPE
    at = starts + stripes * _STRIPE
    for step in range(_STRIPE // _WORD - 1):
        some = _where(left >= _WORD * (step + 1))
        if some is not None:
            hashes[some] = _mix_word(hashes[some], words[at[some] + _WORD * step])
    at += left // _WORD * _WORD
    left %= _WORD
    some = _where(left >= _HALF_WORD)
    if some is not None:
        halves = _unaligned(data, "<u4", _HALF_WORD)
        hashes[some] = _mix_half_word(hashes[some], halves[at[some]].astype(np.uint64))
    at += left // _HALF_WORD * _HALF_WORD
    left %= _HALF_WORD
    for step in range(_HALF_WORD - 1):
        some = _where(left > step)
        if some is not None:
            mixed = hashes[some] ^ data[at[some] + step].astype(np.uint64) * _N5
            hashes[some] = _rotated(mixed, 11) * _N1
    return _avalanche(hashes)


def _hash_stripes(words: Hashes, starts: Places, stripes: Places, seeds: Hashes) -> Hashes:
    """Return the hash of the whole 32-byte stripes of each string; each has at least one stripe."""
    lanes = [seeds + _N1_PLUS_N2, seeds + _N2, seeds.copy(), seeds - _N1]
    for stripe in range(int(stripes[0])):
        active = int(np.searchsorted(-stripes, -stripe, side="left"))
        at = starts[:active] + _STRIPE * stripe
        for number, lane in enumerate(lanes):
            lane[:active] = _round(lane[:active], words[at + _WORD * number])
    hashes = _rotated(lanes[0], 1) + _rotated(lanes[1], 7) + _rotated(lanes[2], 12) + _rotated(lanes[3], 18)
    for lane in lanes:
        hashes = (hashes ^ _round(np.zeros_like(lane), lane)) * _N1 + _N4
    return hashes


def _where(mask: npt.NDArray[np.bool_]) -> slice | npt.NDArray[np.intp] | None:
    """Return an index of the rows in ``mask``: a slice for all rows, which is faster; None for no rows."""
    if mask.all():
        return slice(None)
    return np.flatnonzero(mask) if mask.any() else None


def _unaligned(data: npt.NDArray[np.uint8], kind: str, size: int) -> Hashes:
    """Return the numbers at each byte offset of ``data``."""
    return np.ndarray((max(0, len(data) - size + 1),), kind, data, strides=(1,))


def _rotated(values: Hashes, bits: int) -> Hashes:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _round(accumulated: Hashes, words: Hashes) -> Hashes:
    return _rotated(accumulated + words * _N2, 31) * _N1


def _mix_word(hashes: Hashes, words: Hashes) -> Hashes:
    return _rotated(hashes ^ _rotated(words * _N2, 31) * _N1, 27) * _N1 + _N4


def _mix_half_word(hashes: Hashes, halves: Hashes) -> Hashes:
    return _rotated(hashes ^ halves * _N1, 23) * _N2 + _N3


def _avalanche(hashes: Hashes) -> Hashes:
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _N2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _N3
    return hashes ^ (hashes >> np.uint64(32))
