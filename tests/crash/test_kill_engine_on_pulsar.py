"""Servers whose log is in Pulsar, and that take it over from each other under load, keep every promise.

The storm is that of ``test_engine_storm``, on a real broker. Pulsar refuses what a former owner appends, so this tests
what a folder cannot: producers that end each other.

Promises of docs/reference/guarantees.md: G1, G2, G3, G5, G7, G8.
"""

import random
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.loads.engine_storm import ENDS, EngineStorm
from tidelog_testing.parts.soaks import Recorder
from tidelog_testing.servers.commands import run_command
from tidelog_testing.servers.contenders import SingleContenders
from tidelog_testing.servers.pulsar import PulsarProcess

pytestmark = pytest.mark.crash

_JUDGED_EVERY: Final = 5
# Each judgement reads all that was written: two storms take half the time of one with twice as many.
_SOAK_TAKEOVERS: Final = 25
_numbers = count()


def storm_on(pulsar: PulsarProcess, folder: Path, seed: int) -> EngineStorm:
    """Return a storm on a new log."""
    topic = f"storm-{next(_numbers)}"
    created = run_command(["engine", "create", topic, *pulsar.flags])
    assert created.returncode == ExitCode.OK, created.stderr
    contenders = SingleContenders.on_pulsar(folder, seed, pulsar, topic)
    return EngineStorm(folder / "storm", seed, contenders, _JUDGED_EVERY, may_end=True)


async def test_nothing_acknowledged_is_lost_with_any_owner(
    pulsar: PulsarProcess, tmp_path: Path, record_property: Recorder
) -> None:
    storm = storm_on(pulsar, tmp_path, random.randrange(1 << 32))
    record_property("measured", await storm.weather(storm.random.sample(ENDS, len(ENDS))))


@pytest.mark.soak
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", range(2))
async def test_nothing_is_lost_in_fifty_takeovers(
    pulsar: PulsarProcess, tmp_path: Path, seed: int, record_property: Recorder
) -> None:
    storm = storm_on(pulsar, tmp_path, seed)
    record_property("measured", await storm.weather([storm.random.choice(ENDS) for _ in range(_SOAK_TAKEOVERS)]))
