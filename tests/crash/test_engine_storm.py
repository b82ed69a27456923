"""A log that goes from owner to owner keeps every promise: owners are killed, stopped, or serve while others claim it.

Method: see ``tidelog_testing.loads.engine_storm``; on a log in a folder that repeats records, late ones too, and on a
Kafka of three nodes, which are killed and stopped as well. Plants leave out a rule of the log; the storm must fail.

Promises of docs/reference/guarantees.md: G1, G2, G3, G5, G7, G8.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tidelog_cli.exit_codes import ExitCode
from tidelog_server.runtime.failpoints import Failpoint
from tidelog_testing.faults.brokers import NODES, SETTINGS, BrokerTrouble
from tidelog_testing.faults.plants import leave_out_numbers, leave_out_rule_5
from tidelog_testing.loads.engine_storm import ENDS, POINTS, End, EngineStorm
from tidelog_testing.oracles.history import Kind
from tidelog_testing.parts.engine_stores import create_log
from tidelog_testing.parts.folder_engine import FolderEngine, Unruly
from tidelog_testing.parts.soaks import Recorder, soak
from tidelog_testing.servers.commands import run_command
from tidelog_testing.servers.contenders import ClusterContenders, Plant, SingleContenders
from tidelog_testing.servers.etcd import EtcdProcess
from tidelog_testing.servers.kafka import KafkaProcesses
from tidelog_testing.servers.processes import ServerDiedError

pytestmark = pytest.mark.crash

_REPEATS: Final = Unruly(repeated=0.05, repeated_late=0.05)
# Of those that are held back or lost, the owner does not learn the place: it ends by itself.
_GAPS: Final = Unruly(repeated=0.05, repeated_late=0.05, held_back=0.0005, lost=0.0002)
_JUDGED_EVERY: Final = 5
_SOAK_TAKEOVERS: Final = 50
_CLUSTER_TAKEOVERS: Final = 25


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcesses]:
    """Provide a Kafka of three nodes."""
    with KafkaProcesses(tmp_path_factory.mktemp("brokers"), NODES, SETTINGS) as running:
        yield running


def on_folder(folder: Path, seed: int, unruly: Unruly, plant: Plant = None) -> SingleContenders:
    create_log(FolderEngine(folder / "log"))
    return SingleContenders.on_folder(folder, seed, unruly, plant)


def on_kafka(folder: Path, seed: int, kafka: KafkaProcesses, plant: Plant = None) -> tuple[SingleContenders, str]:
    topic = f"storm-{seed}"
    # After the storm before, which may have just brought a node back.
    kafka.wait_ready()
    created = run_command(["engine", "create", topic, "--engine.servers", kafka.servers])
    assert created.returncode == 0, created.stderr
    return SingleContenders.on_kafka(folder, seed, kafka, topic, plant), topic


async def weather(storm: EngineStorm, takeovers: int) -> str:
    """Let owners follow each other that end in each way, equally often; return a summary."""
    ends = [ENDS[number % len(ENDS)] for number in range(takeovers)]
    storm.random.shuffle(ends)
    return await storm.weather(ends)


async def test_nothing_acknowledged_is_lost_with_any_owner(tmp_path: Path, record_property: Recorder) -> None:
    assert {point.partition(":")[0] for point in POINTS.values()} - {"between_parts"} <= set(Failpoint)
    seed = random.randrange(1 << 32)
    storm = EngineStorm(tmp_path / "storm", seed, on_folder(tmp_path, seed, _REPEATS), len(ENDS))
    record_property("measured", await weather(storm, len(ENDS)))


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", range(3))
async def test_nothing_is_lost_in_a_long_storm_of_owners(tmp_path: Path, seed: int, record_property: Recorder) -> None:
    storm = EngineStorm(tmp_path / "storm", seed, on_folder(tmp_path, seed, _GAPS), _JUDGED_EVERY, may_end=True)
    record_property("measured", await weather(storm, _SOAK_TAKEOVERS))


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", range(3))
async def test_nothing_is_lost_in_a_long_storm_of_owners_and_brokers(
    tmp_path: Path, seed: int, brokers: KafkaProcesses, record_property: Recorder
) -> None:
    contenders, topic = on_kafka(tmp_path, seed, brokers)
    trouble = BrokerTrouble(brokers, topic, random.Random(seed))
    storm = EngineStorm(tmp_path / "storm", seed, contenders, _JUDGED_EVERY, trouble=trouble, may_end=True)
    try:
        record_property("measured", f"{await weather(storm, _SOAK_TAKEOVERS)}; brokers: {dict(trouble.done)}")
    finally:
        trouble.repair()
    assert trouble.done.total() >= _SOAK_TAKEOVERS // 10, f"void: {trouble.done}"


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", range(2))
async def test_nothing_is_lost_in_a_long_storm_of_processes_and_brokers(
    tmp_path: Path, seed: int, brokers: KafkaProcesses, etcd: EtcdProcess, record_property: Recorder
) -> None:
    name = f"storm{seed}"
    brokers.wait_ready()
    contenders = ClusterContenders(tmp_path, etcd, brokers, name)
    trouble = BrokerTrouble(brokers, f"tidelog.{name}.n1", random.Random(seed))
    storm = EngineStorm(tmp_path / "storm", seed, contenders, _JUDGED_EVERY, trouble=trouble, may_end=True)
    try:
        record_property("measured", f"{await weather(storm, _CLUSTER_TAKEOVERS)}; brokers: {dict(trouble.done)}")
    finally:
        trouble.repair()
    assert trouble.done.total() >= _CLUSTER_TAKEOVERS // 10, f"void: {trouble.done}"


@pytest.mark.parametrize("nodes", ["kafka", soak("brokers")])
async def test_the_storm_finds_an_owner_without_rule_5(
    tmp_path: Path, nodes: str, request: pytest.FixtureRequest
) -> None:
    seed = random.randrange(1 << 32)
    contenders, _ = on_kafka(tmp_path, seed, request.getfixturevalue(nodes), leave_out_rule_5)
    storm = EngineStorm(tmp_path / "storm", seed, contenders)
    await found_wrong(storm, Kind.LOST)


async def found_wrong(storm: EngineStorm, kind: Kind) -> None:
    """Let an owner serve on beside the next one; the judge must find ``kind``."""
    with storm.contenders as contenders:
        former = contenders.start()
        await storm.prepare(former)
        following = await storm.serve_beside(former)
        with pytest.raises(pytest.fail.Exception, match=kind):
            await storm.judge(following)


@pytest.mark.parametrize("attempt", [0, *(soak(number) for number in range(1, 10))])
async def test_the_storm_finds_readers_without_numbers(tmp_path: Path, attempt: int) -> None:
    seed = random.randrange(1 << 32)
    storm = EngineStorm(
        tmp_path / "storm",
        seed,
        on_folder(tmp_path, seed, Unruly(repeated_late=0.6, lost=0.001), leave_out_numbers),
        may_end=True,
    )
    with pytest.raises((pytest.fail.Exception, ServerDiedError)) as found:
        await storm.weather([End.KILLED, End.LIVE] * 5)
    # The next owner finds that the last rows are not those of the log, unless the judge was faster.
    assert not isinstance(found.value, ServerDiedError) or found.value.code == ExitCode.DATA_LOSS, found.value
