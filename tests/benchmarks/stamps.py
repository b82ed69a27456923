"""Times at which functions are entered and left, in the process of a server and in that of its client.

``CLOCK_MONOTONIC`` is one clock for all processes of a machine, so the times of both can be compared.
``python -m benchmarks.stamps FLAGS`` runs a server with the points below; at its end it writes the times to the file
that the variable ``BENCHMARK_STAMPS`` names.
"""

import functools
import inspect
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

FILE_VARIABLE: Final = "BENCHMARK_STAMPS"


class Point(NamedTuple):
    """A moment in the life of an operation.

    Attributes:
        name: What happens between this moment and the next.
        module, owner, function: Where it is; ``owner`` is the class.
        is_exit: Whether the moment is the end of the function.
    """

    name: str
    module: str
    owner: str
    function: str
    is_exit: bool = False

    @property
    def place(self) -> str:
        """Where it is, as a key: the points of several kinds of operations may share it under different names."""
        return f"{self.module}.{self.owner}.{self.function} {'exit' if self.is_exit else 'entry'}"


_CLIENT: Final = "tidelog.append.queues"
_CALLS: Final = "tidelog_server.rpc.services.append"
_COMMITTER: Final = "tidelog_server.log.committer"

CLIENT_POINTS: Final = (
    Point("client: wake the writer, encode", _CLIENT, "AppendQueues", "submit", is_exit=True),
    Point("client: write; network; server: read", _CLIENT, "AppendQueues", "next_batch", is_exit=True),
    Point("client: settle", _CLIENT, "AppendQueues", "answered"),
    Point("client: wake the caller, return", _CLIENT, "AppendQueues", "answered", is_exit=True),
)
SERVER_POINTS: Final = (
    Point("server: parse, check, submit", _CALLS, "AppendStreamCall", "_take"),
    Point("server: wait for the group", _COMMITTER, "GroupCommitter", "submit", is_exit=True),
    Point("server: write to RocksDB", _COMMITTER, "GroupCommitter", "_write"),
    Point("server: hand over to the thread", _COMMITTER, "GroupCommitter", "_write", is_exit=True),
    Point("server: sync", _COMMITTER, "GroupCommitter", "_sync"),
    Point("server: hand over to the loop", _COMMITTER, "GroupCommitter", "_sync", is_exit=True),
    Point("server: settle", _COMMITTER, "GroupCommitter", "_settle"),
    Point("server: serialise the answer", _CALLS, "AppendStreamCall", "_answer_to"),
    Point("server: write; network; client: read", _CALLS, "AppendStreamCall", "_answer_to", is_exit=True),
)


_BROADCASTS: Final = "tidelog_server.broadcast.service"
BROADCAST_POINTS: Final = (
    Point("server: check, acquire keys", "tidelog_server.rpc.services.broadcasts", "BroadcastService", "broadcast"),
    Point("server: record the broadcast", "tidelog_server.broadcast.store", "BroadcastRecords", "accept"),
    Point("server: submit, wait for the group", _BROADCASTS, "Broadcasts", "_append"),
    *SERVER_POINTS[2:7],
    Point("server: settle, return", _BROADCASTS, "Broadcasts", "_append", is_exit=True),
    Point(
        "server: write; network; client: read, return", "tidelog_server.rpc.services.broadcasts", "BroadcastService",
        "broadcast", is_exit=True,
    ),
)  # fmt: skip


# Of a delivery: those of its append up to the settlement, then those of the follower.
DELIVERY_POINTS: Final = (
    Point("client: wake the writer, encode", _CLIENT, "AppendQueues", "submit", is_exit=True),
    Point("client: write; network; server: read", _CLIENT, "AppendQueues", "next_batch", is_exit=True),
    *SERVER_POINTS[:6],
    Point("server: settle, answer the append, wake the follower", _COMMITTER, "GroupCommitter", "_settle"),
    Point("server: read the page", "tidelog_server.log.scan.follow_turns", "FollowTurns", "next"),
    Point(
        "server: encode the page, write; network; client: read",
        "tidelog_server.rpc.columns.pages",
        "ColumnEncoder",
        "responses",
    ),
    Point("client: unpack, return", "tidelog.read.scan", "ScanCore", "_accept"),
)


class Stamps:
    """Times of points by place, in nanoseconds."""

    def __init__(self, points: Sequence[Point]) -> None:
        """Wrap the functions of the points."""
        self.times: dict[str, list[int]] = {each.place: [] for each in points}
        by_function: dict[tuple[str, str, str], dict[bool, list[int]]] = {}
        for each in points:
            key = each.module, each.owner, each.function
            by_function.setdefault(key, {})[each.is_exit] = self.times[each.place]
        for (module, owner, function), lists in by_function.items():
            found = getattr(import_module(module), owner)
            setattr(found, function, _stamped(getattr(found, function), lists.get(False), lists.get(True)))

    def clear(self) -> None:
        """Forget all times."""
        for each in self.times.values():
            each.clear()


def _stamped(call: Callable[..., Any], entered: list[int] | None, left: list[int] | None) -> Callable[..., Any]:
    now = time.perf_counter_ns

    if inspect.iscoroutinefunction(call):

        @functools.wraps(call)
        async def stamped_coroutine(*args: Any, **kwargs: Any) -> Any:
            if entered is not None:
                entered.append(now())
            try:
                return await call(*args, **kwargs)
            finally:
                if left is not None:
                    left.append(now())

        return stamped_coroutine

    @functools.wraps(call)
    def stamped(*args: Any, **kwargs: Any) -> Any:
        if entered is not None:
            entered.append(now())
        try:
            return call(*args, **kwargs)
        finally:
            if left is not None:
                left.append(now())

    return stamped


def main() -> None:
    """Run a server, and write the times of its points when it has ended."""
    from tidelog_cli import main as run

    stamps = Stamps(list(dict.fromkeys((*SERVER_POINTS, *BROADCAST_POINTS, *DELIVERY_POINTS[2:-1]))))
    try:
        run(["serve", *sys.argv[1:]])
    finally:
        Path(os.environ[FILE_VARIABLE]).write_text(json.dumps(stamps.times))


def read(path: Path) -> Mapping[str, list[int]]:
    """Return the times that a server has written."""
    times: Mapping[str, list[int]] = json.loads(path.read_text())
    return times


if __name__ == "__main__":
    main()
