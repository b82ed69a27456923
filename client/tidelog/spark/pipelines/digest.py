"""Order-independent digests of messages, to compare log, archive and producer.

A digest is two sums modulo 2^64 of message hashes, written as 32 hexadecimal digits: the first sum, then the second.
The digest of a union is the sum of its parts' digests. There are two kinds::

    content   channel, key, payload: the fields that a producer knows before it appends
    full      these, then vchannel (4 bytes), tick (8 bytes), type (4 bytes), and the properties sorted by name

The hash of a message is a chain of XXH64, as Spark's ``xxhash64`` computes it: the hash of each field is the seed of
the next, numbers are little-endian, texts UTF-8, and NULL is skipped. The chain of the first sum starts with the seed
42, that of the second with XXH64(01 00 00 00 00 00 00 00, seed 42). A key, payload or text of more than 1,024 bytes is
replaced by its SHA-256. With any XXH64, here that of the package ``xxhash``::

    def content(channel: bytes, key: bytes | None, payload: bytes) -> tuple[int, int]:
        first, second = 42, xxh64((1).to_bytes(8, "little"), 42)
        for field in (channel, key, payload):
            if field is not None:
                field = field if len(field) <= 1024 else sha256(field).digest()
                first, second = xxh64(field, first), xxh64(field, second)
        return first, second

Two sets of messages that differ by chance have the same digest with a probability of at most 2^-64. A digest is no
protection against deliberate forgery.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidelog.spark.errors import OptionError
from tidelog.spark.pipelines.xxh64 import Hashes, Places, hash_bytes, hash_int32, hash_int64, hash_rows

MAX_HASHED_BYTES: Final = 1_024
"""Longer values are replaced by their SHA-256."""

COLUMNS: Final = ("channel", "vchannel", "tick", "type", "key", "payload", "properties")
"""The columns of a full digest."""

_FIRST_SEED: Final = 42
_SECOND_SEED: Final = hash_bytes((1).to_bytes(8, "little"), _FIRST_SEED)
_SEEDS: Final = (_FIRST_SEED, _SECOND_SEED)
_MODULUS: Final = 1 << 64
_DIGITS: Final = re.compile("[0-9a-fA-F]{32}")


@dataclass(frozen=True, slots=True)
class Digest:
    """Sums of message hashes, modulo 2^64; ``a + b`` is the digest of both sets of messages."""

    first: int = 0
    second: int = 0

    def __add__(self, other: "Digest") -> "Digest":
        return Digest((self.first + other.first) % _MODULUS, (self.second + other.second) % _MODULUS)

    def __str__(self) -> str:
        return f"{self.first:016x}{self.second:016x}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse 32 hexadecimal digits. Raises OptionError."""
        if not _DIGITS.fullmatch(text):
            raise OptionError(f"the digest is {text!r}, expected 32 hexadecimal digits")
        return cls(int(text[:16], 16), int(text[16:], 16))

    @classmethod
    def total(cls, parts: Iterable["Digest"]) -> "Digest":
        """Return the digest of the union of ``parts``."""
        return sum(parts, Digest())


class Digests(NamedTuple):
    """Both digests of the same messages."""

    full: Digest = Digest()
    content: Digest = Digest()

    @classmethod
    def of(cls, texts: Iterable[tuple[str, str]]) -> Self:
        """Return the digests of the union of sets of messages, from the texts of their full and content digests."""
        parts = [(Digest.parse(full), Digest.parse(content)) for full, content in texts]
        return cls(Digest.total(full for full, _ in parts), Digest.total(content for _, content in parts))

    def plus(self, other: "Digests") -> "Digests":
        """Return the digests of both sets of messages."""
        return Digests(self.full + other.full, self.content + other.content)


def digest_contents(channel: str, payloads: Sequence[bytes], keys: Sequence[bytes | None] | None = None) -> Digest:
    """Return the content digest of messages that a producer sends to ``channel``. Fastest with thousands at once.

    Raises:
        ValueError: The numbers of keys and payloads differ.
    """
    if keys is not None and len(keys) != len(payloads):
        raise ValueError(f"there are {len(payloads)} payloads and {len(keys)} keys: pass one key per payload, or None")
    hashes = [_start(channel, seed, len(payloads)) for seed in _SEEDS]
    if keys is not None:
        hashes = _chain(pa.array(keys, pa.binary()), hashes)
    return _sums(_chain(pa.array(payloads, pa.binary()), hashes))


def digest_batch(batch: pa.RecordBatch) -> Digests:
    """Return both digests of the rows of ``batch``, which has at least COLUMNS."""
    names = pc.unique(batch.column("channel"))
    if len(names) == 1:
        hashes = [_start(names[0].as_py(), seed, batch.num_rows) for seed in _SEEDS]
    else:
        hashes = _chain(batch.column("channel"), [np.full(batch.num_rows, seed, np.uint64) for seed in _SEEDS])
    hashes = _chain(batch.column("payload"), _chain(batch.column("key"), hashes))
    content = _sums(hashes)
    hashes = [hash_int32(_numbers(batch, "vchannel"), each) for each in hashes]
    hashes = [hash_int64(_numbers(batch, "tick"), each) for each in hashes]
    hashes = [hash_int32(_numbers(batch, "type"), each) for each in hashes]
    return Digests(_sums(_chain_properties(batch.column("properties"), hashes)), content)


def content_columns() -> tuple[Column, Column]:
    """Return the hashes of the content digest as Spark columns, for any DataFrame with the columns of the source."""
    fields = [F.col("channel"), _shortened("key"), _shortened("payload")]
    return F.xxhash64(*fields), F.xxhash64(F.lit(1).cast("bigint"), *fields)


def digest_frame(frame: DataFrame) -> tuple[int, Digest]:
    """Return the number of rows and the content digest of any DataFrame with ``channel``, ``key`` and ``payload``.

    Spark computes them without Python workers.
    """
    first, second = content_columns()
    # As decimals: a sum of 64-bit hashes has more bits, and Spark raises an error on overflow.
    sums = [F.sum(each.cast("decimal(20,0)")) for each in (first, second)]
    row = frame.agg(F.count("*"), *sums).first()
    assert row is not None
    return int(row[0]), Digest(*(int(value or 0) % _MODULUS for value in row[1:]))


def _shortened(name: str) -> Column:
    column = F.col(name)
    return F.when(F.octet_length(column) > MAX_HASHED_BYTES, F.unhex(F.sha2(column, 256))).otherwise(column)


def _start(channel: str, seed: int, count: int) -> Hashes:
    """Return the hash of the channel's name, repeated ``count`` times."""
    return np.full(count, hash_bytes(_short(channel.encode()), seed), np.uint64)


def _sums(hashes: Sequence[Hashes]) -> Digest:
    return Digest(*(int(each.sum(dtype=np.uint64)) for each in hashes))


def _numbers(batch: pa.RecordBatch, name: str) -> Any:
    return batch.column(name).to_numpy(zero_copy_only=False)


def _chain(values: pa.Array, hashes: Sequence[Hashes]) -> list[Hashes]:
    """Return the hashes of ``values``, with ``hashes`` as seeds; for NULL the seed."""
    if values.null_count == len(values):
        return list(hashes)
    data, starts, lengths = _strings(values)
    if values.null_count:
        rows = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        return [_replaced(each, rows, _hash(data, starts[rows], lengths[rows], each[rows])) for each in hashes]
    return [_hash(data, starts, lengths, each) for each in hashes]


def _hash(data: npt.NDArray[np.uint8], starts: Places, lengths: Places, seeds: Hashes) -> Hashes:
    is_long = lengths > MAX_HASHED_BYTES
    if not is_long.any():
        return hash_rows(data, starts, lengths, seeds)
    short, long = np.flatnonzero(~is_long), np.flatnonzero(is_long)
    hashes = np.empty(len(starts), np.uint64)
    hashes[short] = hash_rows(data, starts[short], lengths[short], seeds[short])
    shas = [
        hashlib.sha256(data[begin : begin + length].data).digest()
        for begin, length in zip(starts[long].tolist(), lengths[long].tolist(), strict=True)
    ]
    size = hashlib.sha256().digest_size
    places = np.arange(len(shas), dtype=np.int64) * size
    hashes[long] = hash_rows(np.frombuffer(b"".join(shas), np.uint8), places, np.full_like(places, size), seeds[long])
    return hashes


def _short(value: bytes) -> bytes:
    return value if len(value) <= MAX_HASHED_BYTES else hashlib.sha256(value).digest()


def _chain_properties(properties: pa.Array, hashes: Sequence[Hashes]) -> list[Hashes]:
    """Return the hashes of names and values, sorted by name, with ``hashes`` as seeds."""
    offsets = np.frombuffer(properties.buffers()[1], np.int32)[properties.offset :][: len(properties) + 1]
    counts = np.diff(offsets)
    hashes = list(hashes)
    if not counts.any():
        return hashes
    begin, end = int(offsets[0]), int(offsets[-1])
    names, values = properties.keys[begin:end], properties.items[begin:end]
    rows = pa.array(np.repeat(np.arange(len(counts)), counts))
    order = pc.sort_indices(pa.table({"row": rows, "name": names}), [("row", "ascending"), ("name", "ascending")])
    names, values = names.take(order), values.take(order)
    first = offsets[:-1] - begin
    for number in range(int(counts.max())):
        some = np.flatnonzero(counts > number)
        places = pa.array(first[some] + number)
        chained = _chain(values.take(places), _chain(names.take(places), [each[some] for each in hashes]))
        hashes = [_replaced(each, some, new) for each, new in zip(hashes, chained, strict=True)]
    return hashes


def _replaced(hashes: Hashes, rows: npt.NDArray[np.intp], new: Hashes) -> Hashes:
    changed = hashes.copy()
    changed[rows] = new
    return changed


def _strings(values: pa.Array) -> tuple[npt.NDArray[np.uint8], Places, Places]:
    """Return the bytes of all strings, and the start and length of each."""
    is_large = pa.types.is_large_binary(values.type) or pa.types.is_large_string(values.type)
    _, offset_buffer, data_buffer = values.buffers()
    kind = np.int64 if is_large else np.int32
    offsets = np.frombuffer(offset_buffer, kind)[values.offset :][: len(values) + 1].astype(np.int64)
    data = np.frombuffer(data_buffer if data_buffer is not None else b"", np.uint8)
    return data, offsets[:-1], np.diff(offsets)
