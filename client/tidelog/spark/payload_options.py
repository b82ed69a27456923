"""The payload format of a read: bytes, text or JSON. Parsed on the driver, pickled with the reader."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pyspark.sql import types as T

from tidelog.spark.errors import OptionError
from tidelog.spark.option_values import choice_of

Kind = Literal["binary", "string", "json"]
_KINDS: Final[Mapping[str, Kind]] = {"binary": "binary", "string": "string", "json": "json"}
_MODES: Final = {"permissive": False, "failfast": True}
"""Whether a payload that cannot be decoded fails the read."""
_LEAVES: Final = (
    T.StringType, T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType,
    T.DecimalType, T.DateType, T.TimestampType, T.BinaryType,
)  # fmt: skip
_SUPPORTED: Final = (
    "STRING, BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL, DATE, TIMESTAMP, BINARY, and STRUCT, "
    "ARRAY and MAP<STRING, ...> of these"
)
_EXPECTED_MODE: Final = (
    "expected permissive, for NULL if a payload cannot be decoded, or failfast; to drop such rows, filter them"
)

CORRUPT_RECORD: Final = "_corrupt_record"
"""The optional column with the bytes of a payload that could not be decoded; NULL for all others."""


@dataclass(frozen=True, slots=True)
class PayloadFormat:
    """How payloads become the column ``payload``.

    Attributes:
        kind: Expected format of the payloads.
        ddl: Fields of the JSON objects, as a Spark schema string; empty if ``.schema(...)`` defines them.
        is_failfast: True if a payload that cannot be decoded fails the read; False if it becomes NULL.
    """

    kind: Kind = "binary"
    ddl: str = ""
    is_failfast: bool = False

    @property
    def may_be_null(self) -> bool:
        """True if the column ``payload`` may be NULL."""
        return self.kind != "binary" and not self.is_failfast

    def column_ddl(self) -> str:
        """Return the type of the column ``payload`` as a Spark schema string.

        Why a string: only the JVM can parse ``ddl``, and PySpark lets it parse a schema that is a string.

        Raises:
            OptionError: The fields of the JSON objects are not set.
        """
        if self.kind != "json":
            return self.kind.upper()
        if not self.ddl:
            raise OptionError(
                "payloadFormat is json, and its fields are not set: set the option 'payloadSchema', such as "
                '"id BIGINT, name STRING", or use .schema(...)'
            )
        return f"STRUCT<{self.ddl}>"

    def check_corrupt_record(self) -> None:
        """Raise OptionError if the format is binary, in which no payload can be corrupt."""
        if self.kind == "binary":
            raise OptionError(
                f"the column '{CORRUPT_RECORD}' requires payloadFormat string or json: binary payloads are never "
                "corrupt"
            )

    def check_column(self, column: T.DataType, *, nullable: bool) -> None:
        """Check the type of the column ``payload`` that the user requests.

        Raises:
            OptionError: Payloads cannot be decoded to this type.
        """
        if self.kind == "json":
            if not isinstance(column, T.StructType):
                raise OptionError(f"payloadFormat is json: 'payload' is a STRUCT<...>, not {column.simpleString()}")
            _check_json_type(column, "payload")
        if not nullable and self.may_be_null:
            raise OptionError(
                f"payloadFormat is {self.kind}: 'payload' is NULL if a payload cannot be decoded; remove NOT NULL, or "
                "set the option mode to failfast"
            )


AS_THEY_ARE: Final = PayloadFormat()
"""Payloads as bytes, the default."""


def parse_payload_format(options: Mapping[str, str]) -> PayloadFormat:
    """Parse the options about payloads, which have their documented names.

    Raises:
        OptionError: A value is invalid, or options contradict each other.
    """
    if "payloadFormat" in options and "valueFormat" in options:
        raise OptionError("the options 'payloadFormat' and 'valueFormat' are aliases: set one of them")
    named = {"payloadFormat": options["valueFormat"]} if "valueFormat" in options else options
    kind = choice_of(named, "payloadFormat", _KINDS, "binary", "expected binary, string or json")
    ddl = options.get("payloadSchema", "")
    if ddl and kind != "json":
        raise OptionError(f"the option 'payloadSchema' requires payloadFormat json, but payloadFormat is {kind}")
    if "mode" in options and kind == "binary":
        raise OptionError("the option 'mode' requires payloadFormat string or json, but payloadFormat is binary")
    return PayloadFormat(kind, ddl, choice_of(options, "mode", _MODES, "permissive", _EXPECTED_MODE))


def _check_json_type(kind: T.DataType, path: str) -> None:
    if isinstance(kind, T.StructType):
        if not kind.fields or len(set(kind.names)) < len(kind.names):
            raise OptionError(f"'{path}' is {kind.simpleString()}: expected at least one field, and unique names")
        for field in kind:
            _check_nullable(field.nullable, f"{path}.{field.name}")
            _check_json_type(field.dataType, f"{path}.{field.name}")
    elif isinstance(kind, T.ArrayType):
        _check_nullable(kind.containsNull, f"{path}[]")
        _check_json_type(kind.elementType, f"{path}[]")
    elif isinstance(kind, T.MapType) and isinstance(kind.keyType, T.StringType):
        _check_nullable(kind.valueContainsNull, f"{path}[]")
        _check_json_type(kind.valueType, f"{path}[]")
    elif not isinstance(kind, _LEAVES):
        raise OptionError(f"'{path}' is {kind.simpleString()}, unsupported for JSON: choose from {_SUPPORTED}")


def _check_nullable(nullable: bool, path: str) -> None:
    if not nullable:
        raise OptionError(f"'{path}' is NOT NULL, but a field missing in a JSON object is NULL: remove NOT NULL")
