"""A batch read of journals returns each committed message of the cut once, and nothing of open transactions.

Method: frames with chosen UUIDs are appended to journals of a real server, and read by Spark. Where many reads are
compared, the source's reader runs in the test's process, as it does in a task.
"""

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import wrappers_pb2
from pyspark.sql import DataFrame, SparkSession

from tidelog import At, Client, PermissionDeniedError
from tidelog.gazette import (
    FixedFraming,
    JournalDelete,
    JournalSpec,
    JournalUpsert,
    LabelSet,
    MissingJournalError,
    build_uuid,
)
from tidelog.spark import TidelogDataSource
from tidelog.spark.source import JOURNAL_SCHEMA
from tidelog_server.testing import RunningServer
from tidelog_testing.parts.gazette_messages import ACK, CONTINUE, OUTSIDE, producer_id
from tidelog_testing.servers.secured import secured_server
from tidelog_testing.spark.rows import error_of

pytestmark = pytest.mark.spark

NDJSON, CSV, FIXED = "application/x-ndjson", "text/csv", "application/x-protobuf-fixed"
COLUMNS = ["journal", "begin", "end", "timestamp", "uuid", "producer", "clock", "flags", "payload"]
Create = Callable[..., JournalSpec]
_numbers = count()


@pytest.fixture
def load(spark: SparkSession, server: RunningServer) -> Callable[..., DataFrame]:
    def of(journal: JournalSpec | str = "", **options: Any) -> DataFrame:
        source = spark.read.format("tidelog").option("endpoint", server.endpoint)
        if journal:
            source = source.option("journal", journal if isinstance(journal, str) else journal.name)
        return source.options(**options).load()

    return of


@pytest.fixture
def create(client: Client) -> Create:
    """Return a function that creates a journal with a new name."""

    def of(content_type: str = NDJSON, **labels: str) -> JournalSpec:
        name = f"tests/spark/journal-{next(_numbers):03}"
        labels |= {"content-type": content_type} if content_type else {}
        return client.journals.apply([JournalUpsert(name, LabelSet.of(labels), 0)])[0]

    return of


def line(value: str, clock: int, flags: int, producer: int = 1) -> bytes:
    """Return a frame of JSON."""
    return b'{"UUID":"%s","v":"%s"}\n' % (str(build_uuid(producer_id(producer), clock, flags)).encode(), value.encode())


def append(client: Client, journal: JournalSpec, *frames: bytes) -> int:
    """Append frames and return the tick of the last."""
    return int(client.append(f"{journal.channel}/0", list(frames)).last_tick)


def values(frame: DataFrame) -> list[str]:
    """Return the values of the frames in the order of the rows, without acknowledgements."""
    rows = frame.selectExpr("flags", "get_json_object(CAST(payload AS STRING), '$.v') AS v").collect()
    return [row.v for row in rows if row.flags != ACK]


def rows_of(endpoint: str, **options: str) -> list[dict[str, Any]]:
    """Plan and read in this process, and return the rows in order."""
    reader = TidelogDataSource({"endpoint": endpoint, **options}).reader(JOURNAL_SCHEMA)
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def transaction(texts: Sequence[str], clock: int, producer: int = 1) -> list[bytes]:
    """Return the frames of messages and their acknowledgement."""
    held = [line(text, clock + index, CONTINUE, producer) for index, text in enumerate(texts)]
    return [*held, line("", clock + len(texts), ACK, producer)]


def test_committed_messages_come_once_in_the_order_of_their_commits(
    client: Client, create: Create, load: Callable[..., DataFrame]
) -> None:
    journal = create()
    append(client, journal, line("a", 160, OUTSIDE), line("b", 320, CONTINUE, 2), line("c", 480, OUTSIDE))
    # A repeated batch, then the commit of producer 2.
    append(client, journal, line("a", 160, OUTSIDE), line("c", 480, OUTSIDE))
    append(client, journal, line("b", 320, CONTINUE, 2), line("", 640, ACK, 2), line("", 640, ACK, 2))
    # Rolled back by the acknowledgement that was persisted last, then published again.
    append(client, journal, line("x", 800, CONTINUE, 2), line("", 640, ACK, 2), *transaction(["d", "e"], 960, 2))
    # Open at the end of the cut.
    append(client, journal, line("open", 2_000, CONTINUE, 3), line("f", 2_160, OUTSIDE))

    assert values(load(journal)) == ["a", "c", "b", "d", "e", "f"]
    uncommitted = ["a", "b", "c", "a", "c", "b", "x", "d", "e", "open", "f"]
    assert values(load(journal, isolation="read_uncommitted")) == uncommitted
    append(client, journal, line("", 2_320, ACK, 3))
    assert values(load(journal)) == ["a", "c", "b", "d", "e", "f", "open"]


def test_the_columns_have_the_place_and_the_parts_of_the_uuid(
    client: Client, create: Create, load: Callable[..., DataFrame]
) -> None:
    journal = create()
    huge = (1 << 64) - 1
    tick = append(client, journal, line("a", 160, OUTSIDE), line("b", huge, CONTINUE, 7), b'{"v":"no UUID"}\n')
    frame = load(journal, isolation="read_uncommitted")

    assert frame.columns == COLUMNS
    first, second, third = frame.collect()
    assert [(row.begin, row.end) for row in (first, second, third)] == [(tick + n, tick + n + 1) for n in (-2, -1, 0)]
    assert {row.journal for row in (first, second, third)} == {journal.name}
    assert (first.uuid, first.producer, first.clock, first.flags) == (
        "0000000a-0000-1000-8000-010000000001", "010000000001", 160, 0,
    )  # fmt: skip
    assert (second.producer, second.clock, second.flags) == ("010000000007", -1, CONTINUE)
    assert (third.uuid, third.producer, third.clock, third.flags) == (None, None, None, 0)
    assert bytes(third.payload) == b'{"v":"no UUID"}\n'
    assert int(first.timestamp.timestamp() * 1_000) == first.begin >> 18
    # Some of the columns, and payloads as fields.
    decoded = load(journal, payloadFormat="json", payloadSchema="v STRING").selectExpr("`end`", "payload.v")
    assert [tuple(row) for row in decoded.collect()] == [(tick - 1, "a"), (tick + 1, "no UUID")]


def test_spans_longer_than_what_a_task_holds_are_read_a_second_time(
    client: Client, create: Create, server: RunningServer, load: Callable[..., DataFrame]
) -> None:
    journal = create()
    long = [f"long-{number}" for number in range(300)]
    first, second = transaction(long, 1_000, 1), transaction(["x", "y", "z"], 1_000, 2)
    # The spans overlap; the short one commits first.
    append(client, journal, *first[:200], *second[:2])
    append(client, journal, *first[200:250], *second[2:], line("single", 50, OUTSIDE, 3), *first[250:])
    append(client, journal, *transaction(["end"], 5_000))

    expected = ["x", "y", "z", "single", *long, "end"]
    for held in (1, 2, 7, 100, 1_000):
        rows = rows_of(server.endpoint, journal=journal.name, maxHeldMessages=str(held))
        assert [json.loads(row["payload"])["v"] for row in rows if row["flags"] != ACK] == expected
        assert sum(row["flags"] == ACK for row in rows) == 3
    assert values(load(journal, maxHeldMessages=1)) == expected


def test_a_selector_reads_journals_as_one_cut_with_a_partition_each(
    client: Client, create: Create, load: Callable[..., DataFrame]
) -> None:
    topic = f"topic-{next(_numbers)}"
    journals = [create(topic=topic, number=str(number)) for number in range(3)]
    create(topic="other")
    for number, journal in enumerate(journals):
        append(client, journal, *transaction([f"j{number}"], 160))
    frame = load(journalSelector=f"topic={topic}, !retired")

    assert frame.rdd.getNumPartitions() == 3
    assert {(row.journal, row.flags) for row in frame.collect()} == {
        (each.name, flags) for each in journals for flags in (CONTINUE, ACK)
    }
    assert sorted(values(load(journalSelector=f"topic={topic}, number in (0, 2)"))) == ["j0", "j2"]


def test_a_cut_of_the_past_leaves_out_what_was_open_then(
    client: Client, create: Create, load: Callable[..., DataFrame]
) -> None:
    journal = create()
    open_at = append(client, journal, line("a", 160, OUTSIDE), line("b", 320, CONTINUE))
    committed_at = append(client, journal, line("", 480, ACK), line("c", 640, OUTSIDE, 2))

    assert values(load(journal, asOfTick=open_at)) == ["a"]
    assert values(load(journal, endingTick=committed_at)) == ["a", "b"]
    assert values(load(journal, asOfTick=committed_at)) == values(load(journal)) == ["a", "b", "c"]
    assert values(load(journal, endingTick=committed_at + (1 << 50))) == ["a", "b", "c"]
    assert "lies in the future" in error_of(lambda: values(load(journal, asOfTick=committed_at + (1 << 50))))
    assert "lies before the creation" in error_of(lambda: values(load(journal, asOfTick=5)))
    assert values(load(journal, asOfTick=5, failOnDataLoss="false")) == []


def test_a_trimmed_journal_is_read_from_its_first_available_frame(
    client: Client, create: Create, load: Callable[..., DataFrame]
) -> None:
    journal = create()
    tick = append(client, journal, line("a", 160, OUTSIDE), line("b", 320, OUTSIDE))
    client.trim(f"{journal.channel}/0", At.tick(tick))
    assert values(load(journal)) == ["b"]


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_trim_between_the_plan_and_the_task_fails_unless_losses_are_accepted(
    client: Client, create: Create, load: Callable[..., DataFrame], fails: str
) -> None:
    journal = create()
    tick = append(client, journal, line("a", 160, OUTSIDE), line("b", 320, OUTSIDE))
    frame = load(journal, failOnDataLoss=fails)
    assert frame.rdd.getNumPartitions() == 1

    client.trim(f"{journal.channel}/0", At.tick(tick))

    if fails == "true":
        assert "was trimmed while it was read" in error_of(lambda: values(frame))
    else:
        assert values(frame) == ["b"]


def csv(value: str, clock: int, flags: int) -> bytes:
    return f"{build_uuid(producer_id(1), clock, flags)},{value}\n".encode()


def fixed(value: bytes, clock: int, flags: int) -> bytes:
    """Return a fixed frame whose field 1 is the UUID, and which has another field."""
    uuid = build_uuid(producer_id(1), clock, flags).bytes
    # A text in field 9, which the reader does not know.
    message = wrappers_pb2.BytesValue.FromString(b"\x4a" + bytes([len(value)]) + value)
    message.value = uuid
    return FixedFraming().encode_frame(message)


@pytest.mark.parametrize(
    ("content_type", "frames"),
    [
        (CSV, [csv("a", 160, CONTINUE), csv('"b\n,"', 320, CONTINUE), csv("", 480, ACK), csv("c", 640, CONTINUE)]),
        ("test/csv", [csv("a", 160, CONTINUE), csv("b", 320, CONTINUE), csv("", 480, ACK), csv("c", 640, CONTINUE)]),
        (
            FIXED,
            [fixed(b"a", 160, CONTINUE), fixed(b"b", 320, CONTINUE), fixed(b"", 480, ACK), fixed(b"c", 640, CONTINUE)],
        ),
    ],
)
def test_other_framings_keep_their_bytes(
    client: Client, create: Create, load: Callable[..., DataFrame], content_type: str, frames: list[bytes]
) -> None:
    journal = create(content_type)
    append(client, journal, *frames)
    assert [bytes(row.payload) for row in load(journal).collect()] == frames[:3]
    assert [row.clock for row in load(journal, isolation="read_uncommitted").collect()] == [160, 320, 480, 640]


def test_the_place_of_the_uuid_is_an_option(client: Client, create: Create, load: Callable[..., DataFrame]) -> None:
    lines, protos = create(), create(FIXED)
    uuid = build_uuid(producer_id(1), 160, OUTSIDE)
    append(client, lines, b'{"id":"%s"}\n' % str(uuid).encode())
    # Field 3, type bytes.
    append(client, protos, FixedFraming().encode_frame(wrappers_pb2.BytesValue.FromString(b"\x1a\x10" + uuid.bytes)))

    assert [row.uuid for row in load(lines).collect()] == [None]
    assert [row.uuid for row in load(lines, uuidField="id").collect()] == [str(uuid)]
    assert [row.uuid for row in load(protos).collect()] == [None]
    assert [row.uuid for row in load(protos, uuidFieldNumber=3).collect()] == [str(uuid)]


def test_a_frame_that_cannot_be_read_fails_committed_reads_only(
    client: Client, create: Create, load: Callable[..., DataFrame]
) -> None:
    journal = create()
    tick = append(client, journal, line("a", 160, OUTSIDE), b"not JSON\n")
    text = error_of(lambda: values(load(journal)))
    assert f"framing.Unmarshal(offset {tick})" in text
    assert journal.name in text
    rows = load(journal, isolation="read_uncommitted").collect()
    assert [(row.clock, bytes(row.payload)) for row in rows] == [(160, line("a", 160, OUTSIDE)), (None, b"not JSON\n")]


def test_what_does_not_exist_or_is_unknown_is_named(create: Create, load: Callable[..., DataFrame]) -> None:
    unknown, unset = create("application/x-gazette-recoverylog"), create("")
    for frame, expected in (
        (load("not/there"), "named journal does not exist (not/there)"),
        (load(journalSelector="topic=nothing"), "which matches no journal"),
        (load(unknown), "unrecognized content-type (application/x-gazette-recoverylog)"),
        (load(unset), "unrecognized content-type ()"),
    ):
        assert expected in error_of(frame.collect)


def test_a_journal_that_was_created_again_is_not_read_by_an_older_plan(
    client: Client, create: Create, load: Callable[..., DataFrame]
) -> None:
    journal = create()
    append(client, journal, line("old", 160, OUTSIDE))
    frame = load(journal)
    # Plans the frame; `collect` uses this plan.
    assert frame.rdd.getNumPartitions() == 1

    client.journals.apply([JournalDelete(journal.name)])
    (again,) = client.journals.apply([JournalUpsert(journal.name, journal.labels)])
    append(client, again, line("new", 160, OUTSIDE))

    text = error_of(lambda: values(frame))
    assert f"the journal '{journal.name}' was deleted while it was read" in text
    assert values(load(journal)) == ["new"]


def test_streams_of_journals_are_refused(
    spark: SparkSession, create: Create, server: RunningServer, tmp_path: Any
) -> None:
    journal = create()
    source = spark.readStream.format("tidelog").option("endpoint", server.endpoint).option("journal", journal.name)

    def run() -> None:
        query = source.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
        query.awaitTermination()

    assert "a stream cannot read journals" in error_of(run)


@pytest.mark.parametrize("options", [{}, {"maxHeldMessages": "5"}, {"isolation": "read_uncommitted"}])
def test_a_task_may_end_before_the_journal(
    client: Client, create: Create, server: RunningServer, options: dict[str, str]
) -> None:
    journal = create()
    # More rows than one record batch has.
    for begin in range(0, 27_000, 9_000):
        append(client, journal, *transaction([str(begin + n) for n in range(9_000)], 100_000 + 2 * begin))
    raw = {"endpoint": server.endpoint, "journal": journal.name, **options}
    reader = TidelogDataSource(raw).reader(JOURNAL_SCHEMA)
    (partition,) = reader.partitions()
    batches: Any = reader.read(partition)
    with closing(batches):
        first = next(batches).to_pylist()
    assert [json.loads(row["payload"])["v"] for row in first[:3]] == ["0", "1", "2"]
    assert len(rows_of(**raw)) == 27_003


async def test_a_reader_needs_the_permission_for_the_journals_it_reads(tmp_path: Path) -> None:
    async with secured_server(tmp_path) as secured:
        async with secured.client() as client:
            labels = LabelSet.of({"content-type": CSV})
            made = await client.journals.apply([JournalUpsert(f"{name}/part", labels) for name in ("mine", "theirs")])
            for journal in made:
                await client.append(f"{journal.channel}/0", csv("a", 160, OUTSIDE))

        async def journals(grant: str, **options: str) -> list[str]:
            access = {"token": await secured.token(grant), "tlsCa": str(secured.authority.ca)}
            endpoint = secured.server.grpc_endpoint
            rows = await asyncio.to_thread(lambda: rows_of(endpoint, **access, **options))
            return [row["journal"] for row in rows]

        assert await journals("journal.read:*", journalSelector="name:prefix=") == ["mine/part", "theirs/part"]
        assert await journals("journal.read:mine/*", journalSelector="name:prefix=") == ["mine/part"]
        with pytest.raises(MissingJournalError, match="theirs/part"):
            await journals("journal.read:mine/*", journal="theirs/part")
        with pytest.raises(PermissionDeniedError):
            await journals("journal.append:mine/*", journal="mine/part")


def test_the_source_names_the_columns_of_journals() -> None:
    source = TidelogDataSource({"journal": "a/journal", "payloadformat": "string"})
    assert str(source.schema()).startswith("`journal` string NOT NULL, `begin` bigint NOT NULL")
