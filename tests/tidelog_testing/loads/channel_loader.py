"""A program that numbers its appends to a channel, and continues where an earlier process stopped.

It prints the number of each append that is acknowledged: ``python -m tidelog_testing.loads.channel_loader ENDPOINT N``
ends after append N.
"""

import sys
import time
import zlib
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TypeVar

import tidelog
from tidelog import Client, Message
from tidelog_testing.loads.outage import PASSING

CHANNEL = "orders"
PRODUCER = "loader"
_Result = TypeVar("_Result")


def call(number: int) -> list[Message]:
    """Return the messages of an append."""
    chance = Random(number)
    return [
        Message(b"%d:%d" % (number, place), key=b"key-%d" % chance.randrange(50))
        for place in range(chance.randint(1, 6))
    ]


def partitioner(key: bytes, vchannels: int) -> int:
    """Return the vchannel of a key: another one than by default."""
    return zlib.adler32(key) % vchannels


def load(client: Client, last: int) -> None:
    """Append up to number ``last``, and repeat each append until it is acknowledged."""
    channel = client.channel(CHANNEL)
    position = _until_answered(lambda: channel.open_producer(PRODUCER))
    for number in range(position.last_sequence + 1, last + 1):
        append = partial(channel.append, call(number), producer=position.sequence(number), partitioner=partitioner)
        _until_answered(append)
        print(number, flush=True)  # noqa: T201 - what the test reads


def _until_answered(request: Callable[[], _Result]) -> _Result:
    while True:
        try:
            return request()
        except (*PASSING, tidelog.AppendPartlyDoneError) as error:
            if isinstance(error, tidelog.AppendPartlyDoneError) and not isinstance(error.__cause__, PASSING):
                raise
            time.sleep(0.01)


if __name__ == "__main__":
    with Client(sys.argv[1], timeout_s=5, connect_timeout_s=30) as connected:
        load(connected, int(sys.argv[2]))
