"""The RocksDB floor in its own process: ``python -m tidelog_server.commands.bench.floors.rocksdb_floor_process``.

Reads a RocksdbFloorRun from standard input as one JSON line, then the batches with their lengths; prints the seconds of
each tenth as a JSON list.
"""

import json
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, Final

from tidelog_cli.child_environment import child_environment

_LENGTH: Final = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class RocksdbFloorRun:
    """Arguments of ``rocksdb_floor.measure_rocksdb_floor``."""

    folder: str
    count: int
    warm_up: int
    batches_per_group: float
    synced: bool


def run_in_child(run: RocksdbFloorRun, batches: Sequence[bytes]) -> list[float]:
    """Measure in a new process, like that of the server, and return the seconds of each tenth."""
    lines = [json.dumps(asdict(run)).encode() + b"\n"]
    lines += [part for batch in batches for part in (_LENGTH.pack(len(batch)), batch)]
    done = subprocess.run(
        [sys.executable, "-m", "tidelog_server.commands.bench.floors.rocksdb_floor_process"],
        input=b"".join(lines), stdout=subprocess.PIPE, env=child_environment(), check=True,
    )  # fmt: skip
    return [float(seconds) for seconds in json.loads(done.stdout)]


def _read_batches(stream: BinaryIO) -> list[bytes]:
    batches = []
    while header := stream.read(_LENGTH.size):
        batches.append(stream.read(_LENGTH.unpack(header)[0]))
    return batches


def _main() -> None:
    # Imported here because the parent process does not need RocksDB.
    from tidelog_server.commands.bench.floors.rocksdb_floor import measure_rocksdb_floor

    run = RocksdbFloorRun(**json.loads(sys.stdin.buffer.readline()))
    batches = _read_batches(sys.stdin.buffer)
    seconds = measure_rocksdb_floor(
        Path(run.folder), batches, count=run.count, warm_up=run.warm_up, batches_per_group=run.batches_per_group,
        synced=run.synced,
    )  # fmt: skip
    print(json.dumps(seconds))


if __name__ == "__main__":
    _main()
