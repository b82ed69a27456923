"""Goal: one read of journals on several nodes has one cut, from any endpoint, and finds an owner that has moved.

Method: two real nodes on a real etcd; journals are created until each node owns some. Partitions are planned and read
in the test's process, as Spark's tasks do.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from tidelog import Client, Cluster
from tidelog.gazette import JournalSpec, JournalUpsert, LabelSet, build_uuid
from tidelog.spark.journals.options import parse_journal_options
from tidelog.spark.journals.partition import JournalPartition
from tidelog.spark.journals.plan import plan_journals
from tidelog.spark.payload_options import PayloadFormat
from tidelog.spark.source import JOURNAL_SCHEMA
from tidelog_testing.parts.gazette_messages import ACK, CONTINUE, OUTSIDE, producer_id
from tidelog_testing.servers.cluster import ClusterOfProcesses

pytestmark = pytest.mark.spark

LABELS = LabelSet.of({"content-type": "text/csv", "topic": "shared"})
COUNT = 6


@pytest.fixture(scope="module")
def endpoints(nodes: ClusterOfProcesses) -> tuple[str, ...]:
    return tuple(node.grpc for node in nodes.nodes.values())


@pytest.fixture(scope="module")
def cluster(endpoints: Sequence[str]) -> Iterator[Cluster]:
    with Cluster(endpoints) as opened:
        yield opened


@pytest.fixture(scope="module")
def journals(cluster: Cluster, endpoints: Sequence[str]) -> Sequence[JournalSpec]:
    with Client(endpoints[0]) as client:
        made = client.journals.apply([JournalUpsert(f"cluster/part-{n:03}", LABELS, 0) for n in range(COUNT)])
    assert {cluster.owner_of(each.channel).node_id for each in made} == {"n1", "n2"}
    return made


def record(text: str, clock: int, flags: int) -> bytes:
    return f"{build_uuid(producer_id(1), clock, flags)},{text}\n".encode()


def append(cluster: Cluster, journal: JournalSpec, *frames: bytes, after: int | None = None) -> int:
    """Append frames and return the last tick; all ticks are greater than ``after``, also on another node."""
    return int(cluster.vchannel(f"{journal.channel}/0").append(list(frames), barrier_tick=after).last_tick)


def plan(endpoint: str, **options: str) -> list[JournalPartition]:
    raw = {"journalSelector": "topic=shared", "endpoint": endpoint, **options}
    return plan_journals(parse_journal_options(raw))


def texts(partition: JournalPartition) -> list[str]:
    """Return the messages of a partition, without acknowledgements."""
    schema = to_arrow_schema(JOURNAL_SCHEMA, timezone="UTC")
    rows = [row for batch in partition.read(schema, PayloadFormat()) for row in batch.to_pylist()]
    return [row["payload"].decode().rstrip("\n").partition(",")[2] for row in rows if row["flags"] != ACK]


def test_journals_of_several_nodes_have_one_cut(
    cluster: Cluster, journals: Sequence[JournalSpec], endpoints: Sequence[str]
) -> None:
    first = [append(cluster, journals[0], record("one", 160, OUTSIDE), record("two", 320, CONTINUE))]
    for each in journals[1:]:
        frames = record("one", 160, OUTSIDE), record("two", 320, CONTINUE)
        first.append(append(cluster, each, *frames, after=first[-1]))
    for endpoint in (*endpoints, ",".join(endpoints)):
        partitions = plan(endpoint)
        assert [each.journal for each in partitions] == [each.name for each in journals]
        assert len({each.end_tick for each in partitions}) == 1
        assert [texts(each) for each in partitions] == [["one"]] * COUNT

    cut = append(cluster, journals[2], record("", 480, ACK))
    for journal in journals[:2]:
        append(cluster, journal, record("", 480, ACK), after=cut)
    for endpoint in endpoints:
        at_cut = [texts(each) for each in plan(endpoint, asOfTick=str(cut))]
        assert at_cut == [["one", "two"] if number == 2 else ["one"] for number in range(COUNT)]
        now = [texts(each) for each in plan(endpoint)]
        assert now == [["one", "two"] if number < 3 else ["one"] for number in range(COUNT)]
    before = [texts(each) for each in plan(endpoints[0], endingTick=str(first[0]))]
    assert before == [["one"]] + [[]] * (COUNT - 1)


def test_a_task_finds_an_owner_that_has_moved(
    cluster: Cluster, journals: Sequence[JournalSpec], endpoints: Sequence[str]
) -> None:
    for journal in journals:
        append(cluster, journal, record("moved", 960, OUTSIDE))
    partitions = plan(",".join(endpoints))
    assert {each.connection.endpoint for each in partitions} == set(endpoints)
    for partition in partitions:
        other = next(each for each in endpoints if each != partition.connection.endpoint)
        astray = replace(partition, connection=replace(partition.connection, endpoints=(other,)))
        assert texts(astray)[-1] == "moved"
