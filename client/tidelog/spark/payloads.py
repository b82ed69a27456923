"""Payloads as text or JSON, in the task: by columns where that is certain, one by one where it is not."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.spark.arrow import COLUMNS, BatchRun
from tidelog.spark.json_columns import JsonColumns
from tidelog.spark.json_rows import Corrupt, JsonRows
from tidelog.spark.payload_options import CORRUPT_RECORD, PayloadFormat

# So few are decoded one by one; more are halved, so that one that is corrupt does not make thousands slow.
_FEW: Final = 128


class CorruptPayloadError(ValueError):
    """A payload is not what it is taken for, and ``mode`` is failfast; the message names vchannel and tick."""


class Decoder(ABC):
    """Makes columns of payloads."""

    @abstractmethod
    def together(self, payloads: pa.BinaryArray) -> pa.Array | None:
        """Return a row for each payload, or None if some may be corrupt."""

    @abstractmethod
    def one_by_one(self, payloads: Sequence[bytes]) -> tuple[pa.Array, list[Corrupt]]:
        """Return a row for each payload, NULL for those that are corrupt, and these."""


class TextDecoder(Decoder):
    """Payloads that are UTF-8."""

    def together(self, payloads: pa.BinaryArray) -> pa.Array | None:
        """See Decoder."""
        try:
            return payloads.cast(pa.string())
        except pa.ArrowInvalid:
            return None

    def one_by_one(self, payloads: Sequence[bytes]) -> tuple[pa.Array, list[Corrupt]]:
        """See Decoder."""
        texts: list[str | None] = []
        corrupt: list[Corrupt] = []
        for position, payload in enumerate(payloads):
            try:
                texts.append(payload.decode())
            except UnicodeDecodeError as error:
                texts.append(None)
                corrupt.append(Corrupt(position, f"is not UTF-8 from byte {error.start} on"))
        return pa.array(texts, pa.string()), corrupt


class JsonDecoder(Decoder):
    """Payloads that are JSON objects."""

    def __init__(self, target: pa.StructType) -> None:
        """Decode into ``target``; see ``json_rows``."""
        self._columns = JsonColumns(target)
        self._rows = JsonRows(target)

    def together(self, payloads: pa.BinaryArray) -> pa.Array | None:
        """See Decoder."""
        return self._columns.decode(payloads)

    def one_by_one(self, payloads: Sequence[bytes]) -> tuple[pa.Array, list[Corrupt]]:
        """See Decoder."""
        return self._rows.decode(payloads)


class Payloads:
    """Makes the columns ``payload`` and ``_corrupt_record`` of a read, unless payloads stay as they are."""

    def __init__(self, format_: PayloadFormat, schema: pa.Schema) -> None:
        """Make those of ``schema``."""
        self._is_failfast = format_.is_failfast
        self._wanted = [name for name in ("payload", CORRUPT_RECORD) if name in schema.names]
        self._decoder: Decoder | None = None
        if format_.kind == "string":
            self._decoder = TextDecoder()
        elif format_.kind == "json" and self._wanted:
            # The column is there whenever _corrupt_record is: what is corrupt depends on its fields.
            self._decoder = JsonDecoder(schema.field("payload").type)

    @property
    def needed(self) -> tuple[str, ...]:
        """The column that must be there to decode: ``payload``, or none if nothing is decoded."""
        return ("payload",) if self._decoder is not None and self._wanted else ()

    def columns(self, run: BatchRun) -> Mapping[str, pa.Array]:
        """Return the columns that differ from those of ``arrow.COLUMNS``.

        Raises:
            CorruptPayloadError: See there.
        """
        if not self.needed:
            return {}

        def place(row: int) -> tuple[str, int]:
            return f"{run.channel}/{run.index}", COLUMNS["tick"](run)[row].as_py()

        return self.decoded(COLUMNS["payload"](run), place)

    def decoded(self, payloads: pa.BinaryArray, place: Callable[[int], tuple[str, int]]) -> Mapping[str, pa.Array]:
        """Return what ``payloads`` become; ``place`` tells vchannel and tick of a row.

        Raises:
            CorruptPayloadError: See there.
        """
        assert self._decoder is not None
        parts: list[pa.Array] = []
        corrupt = decode(self._decoder, payloads, parts)
        if corrupt and self._is_failfast:
            raise _failure(*place(corrupt[0].position), corrupt[0])
        columns = {"payload": parts[0] if len(parts) == 1 else pa.concat_arrays(parts)}
        if CORRUPT_RECORD in self._wanted:
            columns[CORRUPT_RECORD] = _only(payloads, [each.position for each in corrupt])
        return {name: columns[name] for name in self._wanted}


def decode(decoder: Decoder, payloads: pa.BinaryArray, parts: list[pa.Array], begin: int = 0) -> list[Corrupt]:
    """Append the rows of ``payloads`` from ``begin`` on to ``parts``, and return the corrupt ones by position."""
    rest = payloads[begin:]
    together = decoder.together(rest)
    if together is not None:
        parts.append(together)
        return []
    if len(rest) <= _FEW:
        rows, corrupt = decoder.one_by_one(rest.to_pylist())
        parts.append(rows)
        return [Corrupt(begin + each.position, each.reason) for each in corrupt]
    middle = begin + len(rest) // 2
    return decode(decoder, payloads[:middle], parts, begin) + decode(decoder, payloads, parts, middle)


def _only(payloads: pa.BinaryArray, positions: Sequence[int]) -> pa.BinaryArray:
    """Return the payloads at ``positions``, NULL elsewhere."""
    if not positions:
        return pa.nulls(len(payloads), pa.binary())
    is_corrupt = pc.is_in(pa.arange(0, len(payloads)), value_set=pa.array(positions, pa.int64()))
    return pc.if_else(is_corrupt, payloads, pa.scalar(None, pa.binary()))


def _failure(vchannel: str, tick: int, corrupt: Corrupt) -> CorruptPayloadError:
    return CorruptPayloadError(
        f"{vchannel}: the payload at tick {tick} {corrupt.reason}. Read it as payloadFormat=binary, or "
        "set the option mode to permissive: such payloads are then NULL, and their bytes are in the column "
        f"{CORRUPT_RECORD}, if it is asked for"
    )
