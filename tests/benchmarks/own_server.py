"""A server that a benchmark stops, restarts or kills."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog_server.commands.bench.common import bench_target

if TYPE_CHECKING:
    from tidelog_server.commands.bench.server_process import ServerProcess


@contextmanager
def bench_process(parent: Path, settings: Mapping[str, str]) -> Iterator[tuple["ServerProcess", Path]]:
    """Yield the process of a new server, and a new temporary folder, which also has the server's data."""
    with bench_target(None, parent, settings) as (target, folder):
        assert target.process is not None
        yield target.process, folder
