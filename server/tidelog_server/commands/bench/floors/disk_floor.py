"""The floor of the write path: RocksDB alone with the same bytes."""

import itertools
import json
import shutil
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelog_server.commands.bench.floors.floor_process import FloorProcess

_DISTINCT_BATCHES: Final = 16
_MAX_DISTINCT_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class Grouping:
    """How the server grouped the appends.

    Attributes:
        messages_per_batch, batches_per_group: Averages.
    """

    messages_per_batch: float
    batches_per_group: float


def grouping_between(before: Mapping[str, float], after: Mapping[str, float], messages: int) -> Grouping:
    """Return how ``messages`` were grouped, from two readings of the server's metrics.

    Without metrics (a server that the benchmark did not start), assume one batch of 1,000 messages per group.
    """
    batches = _growth("tidelog_commit_batches_total", before, after)
    groups = _growth("tidelog_commit_groups_total", before, after)
    if not batches or not groups:
        return Grouping(messages_per_batch=1_000, batches_per_group=1)
    return Grouping(messages / batches, batches / groups)


def measure_disk_floor(
    folder: Path, size_bytes: int, grouping: Grouping, *, messages: int, warm_up: int, synced: bool
) -> list[float]:
    """Return the seconds that rocksdict alone, in a new process, takes for ``messages`` in the same groups, by tenths.

    It first writes ``warm_up`` messages, because the server was not new either. The batches have the average size of
    the server's batches, and are written to a new database below ``folder``.
    """
    per_batch = max(1, round(grouping.messages_per_batch))
    batch_bytes = per_batch * size_bytes
    distinct = max(1, min(_DISTINCT_BATCHES, _MAX_DISTINCT_BYTES // batch_bytes))
    count = max(1, round(messages / per_batch))
    database = folder / f"floor-{next(_numbers)}"
    arguments = {"folder": str(database), "size_bytes": size_bytes, "per_batch": per_batch, "distinct": distinct}
    with closing(FloorProcess("rocksdb_floor", json.dumps(arguments))) as floor:
        seconds: list[float] = floor.ask(
            "tenths", count=count, warm_up=warm_up // per_batch, batches_per_group=grouping.batches_per_group,
            synced=synced,
        )  # fmt: skip
    shutil.rmtree(database)
    return [part_s * messages / (count * per_batch) for part_s in seconds]


def _growth(name: str, before: Mapping[str, float], after: Mapping[str, float]) -> float:
    return after.get(name, 0.0) - before.get(name, 0.0)


_numbers = itertools.count()
