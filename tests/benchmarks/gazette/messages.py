"""The messages of ``benchmarks gazette``, and encoders and decoders of JSON alone, which are its floors."""

import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final, Literal

from tidelog.gazette import JSONMessage, ProducerID, build_uuid, clock_at
from tidelog.gazette.uuids import TICK_STEP

CodecName = Literal["json", "msgspec", "orjson"]

_DISTINCT: Final = 1_000
_PRODUCER: Final = ProducerID(bytes.fromhex("0123456789ab"))


@dataclass
class Reading(JSONMessage):
    """A message of the benchmark.

    Attributes:
        number: A number of six digits.
        text: Text that makes the line as long as the settings state.
    """

    number: int = 0
    text: str = ""


@dataclass(frozen=True, slots=True)
class JSONAlone:
    """A package's encoder and decoder, as its documentation uses them.

    Attributes:
        encode: Returns the line of a value, without the newline.
        decode: Returns the value of a line.
    """

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]


def installed_codecs() -> list[CodecName]:
    """Return ``json``, and ``msgspec`` if it is installed."""
    return ["json", "msgspec"] if find_spec("msgspec") else ["json"]


def json_alone(codec: CodecName) -> JSONAlone:
    """Return the encoder and the decoder of a package, without anything of Tidelog.

    Raises:
        ImportError: The package is not installed.
    """
    if codec == "msgspec":
        import msgspec

        return JSONAlone(msgspec.json.Encoder().encode, msgspec.json.Decoder().decode)
    if codec == "orjson":
        import orjson

        return JSONAlone(orjson.dumps, orjson.loads)
    encode = json.JSONEncoder(separators=(",", ":")).encode
    return JSONAlone(lambda value: encode(value).encode(), json.loads)


def distinct_readings(size_bytes: int) -> list[Reading]:
    """Return different messages whose lines have ``size_bytes`` each, with the newline and a UUID.

    Lines have at least 75 bytes.
    """
    clock = clock_at(time.time_ns())
    text = "x" * (size_bytes - len(line_of(Reading(100_000))))
    return [
        Reading(100_000 + number, text, uuid=build_uuid(_PRODUCER, clock + number * TICK_STEP, 0))
        for number in range(_DISTINCT)
    ]


def line_of(reading: Reading) -> bytes:
    """Return the line of a message."""
    return json.dumps(reading.to_json(), separators=(",", ":")).encode() + b"\n"


def repeated(items: list[Any], count: int) -> Iterator[Any]:
    """Return ``count`` of ``items``, which begin again after the last."""
    return itertools.islice(itertools.cycle(items), count)


def encode_alone(encode: Callable[[Any], bytes], readings: list[Reading], count: int) -> "Spent":
    """Return the time in which ``encode`` turns the values of ``count`` messages into lines."""
    values = [reading.to_json() for reading in readings]
    watch = Stopwatch()
    for value in repeated(values, count):
        encode(value)
    return watch.spent()


def decode_alone(decode: Callable[[bytes], Any], readings: list[Reading], count: int) -> "Spent":
    """Return the time in which ``decode`` turns the lines of ``count`` messages into values."""
    lines = [line_of(reading) for reading in readings]
    watch = Stopwatch()
    for line in repeated(lines, count):
        decode(line)
    return watch.spent()


@dataclass(frozen=True, slots=True)
class Spent:
    """Time of a measurement.

    Attributes:
        seconds: Time that passed.
        cpu_seconds: CPU time of this process, all threads; it does not depend on other programs' load.
    """

    seconds: float
    cpu_seconds: float


class Stopwatch:
    """Measures time from its creation."""

    def __init__(self) -> None:
        self._start, self._cpu_start = time.perf_counter(), time.process_time()

    def spent(self) -> Spent:
        """Return the time since the creation."""
        return Spent(time.perf_counter() - self._start, time.process_time() - self._cpu_start)
