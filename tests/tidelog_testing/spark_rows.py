"""What tests of Spark put into the log, and what they look at of what they read."""

from collections.abc import Callable

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tidelog import Client, Tick


def append(client: Client, vchannel: str, *payloads: str) -> list[Tick]:
    """Append one batch and return its ticks."""
    result = client.append(vchannel, [payload.encode() for payload in payloads])
    return [Tick(tick) for tick in range(result.first_tick, result.last_tick + 1)]


def payloads(frame: DataFrame) -> list[str]:
    """Read a DataFrame and return its payloads, sorted."""
    return sorted(bytes(row.payload).decode() for row in frame.select("payload").collect())


def error_of(run: Callable[[], object]) -> str:
    """Return what Spark says when ``run`` fails, which it must."""
    with pytest.raises(PySparkException) as raised:
        run()
    return str(raised.value)
