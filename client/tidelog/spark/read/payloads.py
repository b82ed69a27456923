"""Decoding of payloads as text or JSON, in the task: by columns if that is certain to be right, else one by one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.spark.errors import CorruptPayloadError
from tidelog.spark.payload_options import CORRUPT_RECORD, PayloadFormat
from tidelog.spark.read.json_columns import JsonColumns
from tidelog.spark.read.json_rows import Corrupt, JsonRows

# Up to this number payloads are decoded one by one. Larger runs are halved, so one corrupt payload does not slow down
# thousands.
_FEW: Final = 128


class Decoder(NamedTuple):
    """Decodes payloads into a column.

    Attributes:
        together: Returns a row for each payload, or None if some may be corrupt.
        one_by_one: Returns a row for each payload, NULL for corrupt ones, and the list of corrupt ones.
    """

    together: Callable[[pa.BinaryArray], pa.Array | None]
    one_by_one: Callable[[Sequence[bytes]], tuple[pa.Array, list[Corrupt]]]


def _texts_together(payloads: pa.BinaryArray) -> pa.Array | None:
    try:
        return payloads.cast(pa.string())
    except pa.ArrowInvalid:
        return None


def _texts_one_by_one(payloads: Sequence[bytes]) -> tuple[pa.Array, list[Corrupt]]:
    texts: list[str | None] = []
    corrupt: list[Corrupt] = []
    for position, payload in enumerate(payloads):
        try:
            texts.append(payload.decode())
        except UnicodeDecodeError as error:
            texts.append(None)
            corrupt.append(Corrupt(position, f"is invalid UTF-8 at byte {error.start}"))
    return pa.array(texts, pa.string()), corrupt


TEXT_DECODER: Final = Decoder(_texts_together, _texts_one_by_one)
"""Payloads that are UTF-8."""


class Payloads:
    """Decodes the columns ``payload`` and ``_corrupt_record`` of a read; does nothing for payloadFormat binary."""

    def __init__(self, format_: PayloadFormat, schema: pa.Schema) -> None:
        """Decode the columns that ``schema`` has."""
        self._is_failfast = format_.is_failfast
        self._wanted = [name for name in ("payload", CORRUPT_RECORD) if name in schema.names]
        self._decoder: Decoder | None = None
        if format_.kind == "string":
            self._decoder = TEXT_DECODER
        elif format_.kind == "json" and self._wanted:
            # The schema has 'payload' if it has _corrupt_record, because the fields define what is corrupt.
            target = schema.field("payload").type
            self._decoder = Decoder(JsonColumns(target).decode, JsonRows(target).decode)

    @property
    def made(self) -> Sequence[str]:
        """The columns that are decoded; empty if nothing is."""
        return self._wanted if self._decoder is not None else ()

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns needed for decoding: ``payload``, or empty if nothing is decoded."""
        return ("payload",) if self.made else ()

    def decoded(
        self, column: Callable[[], pa.BinaryArray], place: Callable[[int], tuple[str, int]]
    ) -> Mapping[str, pa.Array]:
        """Return the decoded columns of what ``column`` returns, if any are needed.

        Args:
            column: Returns the payloads.
            place: Returns vchannel and tick of a row.

        Raises:
            CorruptPayloadError: A payload is corrupt, and ``mode`` is failfast.
        """
        if self._decoder is None or not self._wanted:
            return {}
        payloads = column()
        parts: list[pa.Array] = []
        corrupt = decode(self._decoder, payloads, parts)
        if corrupt and self._is_failfast:
            raise _failure(*place(corrupt[0].position), corrupt[0])
        columns = {"payload": parts[0] if len(parts) == 1 else pa.concat_arrays(parts)}
        if CORRUPT_RECORD in self._wanted:
            columns[CORRUPT_RECORD] = _only(payloads, [each.position for each in corrupt])
        return {name: columns[name] for name in self._wanted}


def decode(decoder: Decoder, payloads: pa.BinaryArray, parts: list[pa.Array], begin: int = 0) -> list[Corrupt]:
    """Append the rows of ``payloads[begin:]`` to ``parts``, and return the corrupt ones, with their positions."""
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
        "set the option mode to permissive: such payloads are then NULL, and their bytes are in the optional column "
        f"{CORRUPT_RECORD}"
    )
