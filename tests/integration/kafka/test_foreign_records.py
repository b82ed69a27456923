"""Records that other programs append to the topic of a log, in transactions and without, change nothing.

Method: what a reader of the topic finds, position by position, is compared with what was confirmed.
"""

from contextlib import closing

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tidelog_server.recordlog.kafka_access import KafkaAccess
from tidelog_server.recordlog.record_log import RecordLog
from tidelog_server.recordlog.records import EMPTY, Mark
from tidelog_server.recordlog.rules import START, Group, Reader, Taken
from tidelog_server.runtime.clock import SystemClock
from tidelog_testing.servers.kafka import KafkaProcesses

_SOON_S = 30.0
_END = KafkaError._PARTITION_EOF  # its public name


def positions_by_value(servers: str, topic: str) -> dict[int, bytes]:
    """Return every message of a topic, by its offset, as any program reads it."""
    options = {
        "bootstrap.servers": servers, "group.id": "reader", "enable.partition.eof": True,
        "isolation.level": "read_uncommitted",
    }  # fmt: skip
    found: dict[int, bytes] = {}
    with closing(Consumer(options)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(_SOON_S)
            assert message is not None
            if (error := message.error()) is not None:
                assert error.code() == _END, error
                return found
            found[message.offset() or 0] = message.value() or b""


def claimed(access: KafkaAccess, topic: str, taken: list[Taken]) -> tuple[RecordLog, Reader]:
    log = RecordLog(access.engine(topic), SystemClock())
    reader = Reader(START)
    log.claim(reader, 0, None, taken.extend)
    return log, reader


def test_transactions_of_another_program_leave_positions_without_a_record(kafka: KafkaProcesses) -> None:
    """Kafka ends each transaction with a mark, which has a position and is no record."""
    topic = "foreign"
    access = KafkaAccess(kafka.servers)
    access.create(topic)
    first = RecordLog(access.engine(topic), SystemClock())
    first.create(bytes(16))
    log, reader = claimed(access, topic, [])
    stranger = Producer({"bootstrap.servers": kafka.servers, "transactional.id": "stranger", "log_level": 0})
    stranger.init_transactions(_SOON_S)

    foreign: list[int] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        assert error is None
        assert offset is not None
        foreign.append(offset)

    def in_a_transaction(*, commits: bool) -> None:
        stranger.begin_transaction()
        stranger.produce(topic, b"foreign", partition=0, on_delivery=delivered)
        stranger.flush(_SOON_S)
        if commits:
            stranger.commit_transaction(_SOON_S)
        else:
            stranger.abort_transaction(_SOON_S)
        # Kafka writes the mark after it has answered, and not always before the next record.
        while log.bounds().end < foreign[-1] + 2:
            pass

    mark, positions = EMPTY, []
    for number, commits in enumerate((True, False, True), 1):
        in_a_transaction(commits=commits)
        after = Mark(number, bytes(15) + bytes((number,)))
        ticket = log.append(b"%d" % number, mark, after, None)
        assert log.wait(ticket, _SOON_S)
        mark = after
        (group,) = ticket.completed
        assert isinstance(group, Group)
        positions.append(group.position)
    assert reader.foreign == 3
    # A record of the stranger and the mark of its transaction, and then ours.
    assert positions == [position + 2 for position in foreign] == [4, 7, 10]
    found = positions_by_value(kafka.servers, topic)
    assert {position for position, value in found.items() if value == b"foreign"} == {*foreign}
    # The two FENCEs, the groups where they were confirmed, and nothing at the marks.
    assert {*found} - {*foreign} == {0, 1, *positions}
    # The log ends with a mark, which no read returns.
    in_a_transaction(commits=True)
    taken: list[Taken] = []
    owner, _ = claimed(access, topic, taken)
    assert [bytes(each.payloads[0]) for each in taken if isinstance(each, Group)] == [b"1", b"2", b"3"]
    # So does a search for snapshots, which begins at the end.
    in_a_transaction(commits=True)
    assert list(owner.named_snapshots(bytes(16))) == []
    for each in (first, log, owner):
        each.close()
