"""JSON, one payload at a time: the value of a payload, or why it is corrupt.

This is the reference. ``json_columns`` is faster, and returns the same or declines. Accepted values per type::

    STRUCT                object; a missing field is NULL, unknown fields are ignored, the last duplicate field counts
    MAP<STRING, ...>      object
    ARRAY                 array
    STRING                string; no other type
    BOOLEAN               true, false
    TINYINT ... BIGINT    number without decimal point or exponent, in range
    DOUBLE                number in range; rounded to the nearest DOUBLE
    FLOAT                 number in range; rounded to the nearest DOUBLE, then to the nearest FLOAT
    DECIMAL               number that fits without rounding
    DATE                  string, 2026-03-01
    TIMESTAMP             string, 2026-03-01T12:00:00; optional: a space instead of T, a fraction of 1 to 9 digits
                          (truncated to 6), and Z or an offset such as +01:00 (default: UTC)
    BINARY                string in base64

``null`` is NULL for every type. A payload must be a JSON object in UTF-8; otherwise the whole payload is corrupt.
"""

import base64
import json
import re
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Final, NamedTuple, NoReturn

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql.pandas.types import from_arrow_type

# There is no year 0. Without look-ahead, because Arrow's regular expressions do not support it.
DATE: Final = r"(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)-[0-9]{2}-[0-9]{2}"
TIMESTAMP: Final = rf"({DATE})[T ]([0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}})(?:\.([0-9]{{1,9}}))?(Z|[+-][0-9]{{2}}:[0-5][0-9])?"
_DATE: Final = re.compile(DATE)
_TIMESTAMP: Final = re.compile(TIMESTAMP)
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_MAX_DIGITS: Final = 20
_DECIMALS: Final = Context(prec=100)
_SHOWN: Final = 40

Convert = Callable[[Any], Any]


class CorruptPayload(ValueError):
    """A payload cannot be decoded; the text is the predicate of a sentence that begins with "the payload"."""


class Corrupt(NamedTuple):
    """A payload that cannot be decoded.

    Attributes:
        position: Index of the payload.
        reason: Predicate of a sentence that begins with "the payload".
    """

    position: int
    reason: str


class _Integer(str):
    """A number without decimal point or exponent, as text."""

    __slots__ = ()


class _Real(str):
    """Any other number, as text."""

    __slots__ = ()


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not valid JSON")


_DECODER: Final = json.JSONDecoder(parse_int=_Integer, parse_float=_Real, parse_constant=_refuse_constant)


class JsonRows:
    """Decodes payloads that are JSON objects, one by one."""

    def __init__(self, target: pa.StructType) -> None:
        """Decode into ``target``, whose types are in the table above."""
        self._target = target
        self._convert = _converter(target, "")

    def decode(self, payloads: Sequence[bytes]) -> tuple[pa.Array, list[Corrupt]]:
        """Return a row for each payload, NULL for corrupt ones, and the list of corrupt ones."""
        rows: list[object] = []
        corrupt: list[Corrupt] = []
        for position, payload in enumerate(payloads):
            try:
                rows.append(self._row(payload))
            except CorruptPayload as error:
                rows.append(None)
                corrupt.append(Corrupt(position, str(error)))
        return pa.array(rows, self._target), corrupt

    def _row(self, payload: bytes) -> object:
        try:
            value = _DECODER.decode(payload.decode())
        except UnicodeDecodeError as error:
            raise CorruptPayload(f"is invalid UTF-8 at byte {error.start}") from None
        except ValueError as error:
            raise CorruptPayload(f"is not JSON: {error}") from None
        except RecursionError:
            raise CorruptPayload("is nested too deeply") from None
        if type(value) is not dict:
            raise CorruptPayload(f"is {_shown(value)}, not a JSON object")
        return self._convert(value)


def timestamp_us(found: "re.Match[str]") -> int:
    """Return the microseconds since the epoch of a match of TIMESTAMP.

    Raises:
        ValueError: The date or time does not exist.
    """
    day, time, fraction, offset = found.groups()
    moment = datetime.fromisoformat(f"{day}T{time}{offset if offset and offset != 'Z' else '+00:00'}")
    return (moment - _EPOCH) // _MICROSECOND + int((fraction or "")[:6].ljust(6, "0"))


def bytes_of_base64(text: str) -> bytes:
    """Decode base64. Raises ValueError if ``text`` is not valid base64."""
    return base64.b64decode(text, validate=True)


def _converter(kind: pa.DataType, path: str) -> Convert:
    """Return a converter from JSON values to Arrow values, null to NULL. It raises CorruptPayload with ``path``."""
    convert = _converter_of_value(kind, path)

    def or_null(value: object) -> object:
        if value is None:
            return None
        try:
            return convert(value)
        except CorruptPayload:
            raise
        except (ValueError, ArithmeticError):
            raise CorruptPayload(f"has {_shown(value)} as '{path}', expected {_name(kind)}") from None

    return or_null


def _converter_of_value(kind: pa.DataType, path: str) -> Convert:
    if pt.is_struct(kind):
        return _struct(kind, path)
    if pt.is_map(kind):
        return _map(kind, path)
    if pt.is_list(kind):
        element = _converter(kind.value_type, f"{path}[]")
        return lambda value: [element(each) for each in _expect(value, list)]
    if pt.is_integer(kind):
        return _integer(kind)
    if pt.is_decimal(kind):
        return _decimal(kind)
    return {
        pa.string(): _string,
        pa.bool_(): lambda value: _expect(value, bool),
        pa.float64(): _double,
        pa.float32(): _float,
        pa.date32(): _date,
        pa.binary(): lambda value: bytes_of_base64(_expect(value, str)),
    }.get(kind, _timestamp)


def _struct(kind: pa.StructType, path: str) -> Convert:
    fields = [(field.name, _converter(field.type, f"{path}.{field.name}".removeprefix("."))) for field in kind]

    def convert(value: object) -> dict[str, object]:
        found = _expect(value, dict)
        return {name: convert(found.get(name)) for name, convert in fields}

    return convert


def _map(kind: pa.MapType, path: str) -> Convert:
    item = _converter(kind.item_type, f"{path}[]")
    return lambda value: [(_string(key), item(each)) for key, each in _expect(value, dict).items()]


def _integer(kind: pa.DataType) -> Convert:
    limit = 1 << (kind.bit_width - 1)

    def convert(value: object) -> int:
        text = _expect(value, _Integer)
        # Longer numbers are out of range, and Python refuses to convert very long ones.
        number = int(text) if len(text) <= _MAX_DIGITS else limit
        if not -limit <= number < limit:
            raise ValueError(number)
        return number

    return convert


def _decimal(kind: pa.Decimal128Type) -> Convert:
    unit, limit = Decimal(1).scaleb(-kind.scale), Decimal(10) ** (kind.precision - kind.scale)

    def convert(value: object) -> Decimal:
        exact = Decimal(_expect(value, _Integer, _Real))
        rounded = exact.quantize(unit, context=_DECIMALS)
        # Why not abs(): it rounds to 28 digits.
        if rounded != exact or rounded.copy_abs() >= limit:
            raise ValueError(exact)
        return rounded

    return convert


def _string(value: object) -> str:
    text: str = _expect(value, str)
    if not text.isascii():
        # Fails for half of a surrogate pair, which a JSON escape can produce but UTF-8 cannot encode.
        text.encode()
    return text


def _double(value: object) -> float:
    number = float(_expect(value, _Integer, _Real))
    if number in (float("inf"), float("-inf")):
        raise ValueError(number)
    return number


def _float(value: object) -> float:
    number = _double(value)
    struct.pack("<f", number)  # raises OverflowError
    return number


def _date(value: object) -> date:
    text = _expect(value, str)
    if _DATE.fullmatch(text) is None:
        raise ValueError(text)
    return date.fromisoformat(text)


def _timestamp(value: object) -> int:
    found = _TIMESTAMP.fullmatch(_expect(value, str))
    if found is None:
        raise ValueError(value)
    return timestamp_us(found)


def _expect(value: Any, *kinds: type) -> Any:
    """Return ``value``. Raises ValueError unless its type is exactly one of ``kinds``."""
    if type(value) not in kinds:
        raise ValueError(value)
    return value


def _shown(value: object) -> str:
    try:
        text = value if isinstance(value, _Integer | _Real) else json.dumps(value)
    except RecursionError:
        # A value that could be decoded may be nested too deeply to be encoded.
        text = "a value nested too deeply to show"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _name(kind: pa.DataType) -> str:
    """Return Spark's name of the type; of a nested one without its fields."""
    return from_arrow_type(kind).simpleString().partition("<")[0].upper().replace(",", ", ")
