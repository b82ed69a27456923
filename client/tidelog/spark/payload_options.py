"""What a read makes of payloads: bytes as they are, text, or JSON. Decided on the driver, pickled with the reader."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from tidelog.spark.option_error import OptionError

Kind = Literal["binary", "string", "json"]
_KINDS: Final[Mapping[str, Kind]] = {"binary": "binary", "string": "string", "json": "json"}
_MODES: Final = ("permissive", "failfast")
_LEAVES: Final = (
    StringType, BooleanType, ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType, DecimalType, DateType,
    TimestampType, BinaryType,
)  # fmt: skip
_SUPPORTED: Final = (
    "STRING, BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL, DATE, TIMESTAMP, BINARY, and STRUCT, "
    "ARRAY and MAP<STRING, ...> of these"
)

CORRUPT_RECORD: Final = "_corrupt_record"
"""The column on request with the bytes of a payload that could not be decoded, NULL for all others."""


@dataclass(frozen=True, slots=True)
class PayloadFormat:
    """How payloads become the column ``payload``.

    Attributes:
        kind: What they are taken for.
        ddl: Fields of the JSON objects, as Spark writes a schema; empty if ``.schema(...)`` is to say it.
        is_failfast: Whether a payload that is not of this kind fails the read, rather than becoming NULL.
    """

    kind: Kind = "binary"
    ddl: str = ""
    is_failfast: bool = False

    @property
    def may_be_null(self) -> bool:
        """Whether the column ``payload`` may have NULLs."""
        return self.kind != "binary" and not self.is_failfast

    def column_ddl(self) -> str:
        """Return the type of the column ``payload`` as Spark writes it.

        Why text: only the JVM can parse ``ddl``, and PySpark has it parse a schema that is text.

        Raises:
            OptionError: The fields of JSON objects are not known.
        """
        if self.kind != "json":
            return self.kind.upper()
        if not self.ddl:
            raise OptionError(
                "payloadFormat is json: say which fields are wanted, with option 'payloadSchema' such as "
                '"id BIGINT, name STRING", or in .schema(...)'
            )
        return f"STRUCT<{self.ddl}>"

    def check_corrupt_record(self) -> None:
        """Raise OptionError if no payload can be corrupt."""
        if self.kind == "binary":
            raise OptionError(
                f"the column '{CORRUPT_RECORD}' is about payloadFormat string and json: every payload is binary"
            )

    def check_column(self, column: DataType, *, nullable: bool) -> None:
        """Check the type of the column ``payload`` that a read is to have.

        Raises:
            OptionError: Payloads cannot become that.
        """
        if self.kind == "json":
            if not isinstance(column, StructType):
                raise OptionError(f"payloadFormat is json: 'payload' is a STRUCT<...>, not {column.simpleString()}")
            _check_json_type(column, "payload")
        if not nullable and self.may_be_null:
            raise OptionError(
                f"payloadFormat is {self.kind}: 'payload' is NULL where a payload is none, so leave NOT NULL out, or "
                "set the option mode to failfast"
            )


AS_THEY_ARE: Final = PayloadFormat()
"""Bytes."""


def parse_payload_format(options: Mapping[str, str]) -> PayloadFormat:
    """Return what options (under the names as documented) say about payloads.

    Raises:
        OptionError: A value is unknown, or options contradict each other.
    """
    if "payloadFormat" in options and "valueFormat" in options:
        raise OptionError("the options 'payloadFormat' and 'valueFormat' are the same: give one of them")
    text = options.get("payloadFormat", options.get("valueFormat", "binary"))
    kind = _KINDS.get(text.lower())
    if kind is None:
        raise OptionError(f"the option 'payloadFormat' is {text!r}: write binary, string or json")
    ddl, mode = options.get("payloadSchema", ""), options.get("mode", "permissive")
    if ddl and kind != "json":
        raise OptionError(f"the option 'payloadSchema' is about payloadFormat json, which is {kind} here")
    if "mode" in options and kind == "binary":
        raise OptionError("the option 'mode' is about payloadFormat string and json: every payload is binary")
    if mode.lower() not in _MODES:
        raise OptionError(
            f"the option 'mode' is {mode!r}: write permissive, for NULL where a payload cannot be decoded, or "
            "failfast; to leave such rows out, filter them"
        )
    return PayloadFormat(kind, ddl, mode.lower() == "failfast")


def _check_json_type(kind: DataType, path: str) -> None:
    if isinstance(kind, StructType):
        if not kind.fields or len(set(kind.names)) < len(kind.names):
            raise OptionError(f"'{path}' is {kind.simpleString()}: name at least one field, and none twice")
        for field in kind:
            _check_nullable(field.nullable, f"{path}.{field.name}")
            _check_json_type(field.dataType, f"{path}.{field.name}")
    elif isinstance(kind, ArrayType):
        _check_nullable(kind.containsNull, f"{path}[]")
        _check_json_type(kind.elementType, f"{path}[]")
    elif isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        _check_nullable(kind.valueContainsNull, f"{path}[]")
        _check_json_type(kind.valueType, f"{path}[]")
    elif not isinstance(kind, _LEAVES):
        raise OptionError(f"'{path}' is {kind.simpleString()}, which is not read from JSON: choose from {_SUPPORTED}")


def _check_nullable(nullable: bool, path: str) -> None:
    if not nullable:
        raise OptionError(f"'{path}' is NOT NULL: what a JSON object does not have is NULL, so leave NOT NULL out")
