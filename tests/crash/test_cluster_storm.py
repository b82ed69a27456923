"""Nothing acknowledged is lost or doubled, and no two processes speak for one node, whatever happens to nodes and etcd.

Method: three nodes on one etcd, each behind its own proxy, under load; at random one is killed, stopped for three
lease times, cut off from etcd, has its clock set, or is replaced by another process on a copy of its data while it is
stopped; etcd is killed and started. Then everything is read and the history is judged. A run without enough load or
faults is void.

Promises of docs/reference/guarantees.md: G43, G44, G45, G46.
"""

import asyncio
import random
import time
from pathlib import Path

import pytest

from tidelog_testing.loads.cluster_storm import ClusterStorm
from tidelog_testing.oracles.history import Outcome, shown
from tidelog_testing.parts.soaks import Recorder, soak
from tidelog_testing.servers.etcd import needs_etcd

pytestmark = [pytest.mark.crash, needs_etcd]


async def run(folder: Path, *, seconds: float, min_troubles: int, record: Recorder) -> None:
    seed = random.randrange(1 << 32)
    async with ClusterStorm(folder, seed) as storm:
        troubles: list[str] = []
        begin_s = time.monotonic()
        # Longer on a slow machine: a run with fewer faults would prove little.
        while time.monotonic() < begin_s + seconds or len(troubles) < min_troubles:
            troubles.append(await storm.trouble())
            await asyncio.sleep(0.5)
        anomalies = await storm.judge()
    told = f"seed {seed}; {', '.join(troubles)}"
    assert anomalies == [], f"{told}\n{shown(anomalies)}"
    assert storm.tally.late_acknowledged == 0, told
    acknowledged = storm.history.count(Outcome.OK)
    assert acknowledged >= 10 * seconds, f"{told}: {acknowledged} appends were acknowledged"
    for name, value in (
        ("seed", seed), ("acknowledged", acknowledged), ("unknown", storm.history.count(Outcome.UNKNOWN)),
        ("refused", storm.history.count(Outcome.FAIL)), ("troubles", dict(storm.tally.done)),
        ("paused owners asked", storm.tally.paused_asked),
        ("acknowledged by a paused owner in a newer term", storm.tally.renewed_acknowledged),
    ):  # fmt: skip
        record(name, value)


@pytest.mark.parametrize(("seconds", "min_troubles"), [(12, 2), soak(600, 60, timeout_s=1_200)])
async def test_a_cluster_keeps_its_promises_in_a_storm(
    tmp_path: Path, seconds: float, min_troubles: int, record_property: Recorder
) -> None:
    await run(tmp_path, seconds=seconds, min_troubles=min_troubles, record=record_property)
