"""The process of a floor, as it sees itself: its arguments are an object of JSON, requests and answers are lines."""

import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence


def answer_requests(make: Callable[..., object]) -> None:
    """Make a floor from the argument of this process, and call the method that each line of standard input names."""
    floor = make(**json.loads(sys.argv[1]))
    for line in sys.stdin:
        request = json.loads(line)
        answer = getattr(floor, request.pop("do"))(**request)
        print(json.dumps(answer), flush=True)


class RecordFloor(ABC):
    """Produces records of random bytes in an engine, and reads them.

    The process stays connected between requests, as a server does. Every call returns seconds: of the whole call, or of
    each record for ``lone``.
    """

    def __init__(self) -> None:
        # Records that are not confirmed.
        self._waiting = 0

    def groups(self, count: int, records: Sequence[int], ahead: int) -> list[float]:
        """Produce ``count`` groups of records of the given sizes, with at most ``ahead`` groups unconfirmed."""
        values = [os.urandom(size) for size in records]
        start = time.perf_counter()
        for _ in range(count):
            self._confirm((ahead - 1) * len(values))
            for value in values:
                self._produce(value)
        self._confirm(0)
        return [time.perf_counter() - start]

    def lone(self, count: int, size: int) -> list[float]:
        """Produce ``count`` records, each after the one before it was confirmed."""
        value, durations = os.urandom(size), []
        for _ in range(count):
            start = time.perf_counter()
            self._produce(value)
            self._confirm(0)
            durations.append(time.perf_counter() - start)
        return durations

    @abstractmethod
    def consume(self, topic: str) -> list[float]:
        """Read all records of a topic with a new client; return the seconds and the bytes."""

    @abstractmethod
    def _produce(self, value: bytes) -> None:
        """Produce a record, and count it in ``_waiting``."""

    @abstractmethod
    def _confirm(self, most: int) -> None:
        """Wait until at most ``most`` records are unconfirmed."""
