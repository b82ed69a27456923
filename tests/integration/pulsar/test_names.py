"""Synchronous streams and tickers under the names of Milvus, and the example of the guide."""

import subprocess
import sys
from pathlib import Path

import pytest

from tidelog import Client
from tidelog.msgstream import (
    InsertMsg,
    MemBroker,
    MemMsgStreamFactory,
    MsgPack,
    MsgStream,
    ProtoUDFactory,
    PulsarBroker,
    PulsarMsgStreamFactory,
    RmqMsgStream,
    RmqTtMsgStream,
    StreamFencedError,
    TimeTicker,
    new_pulsar_msg_stream,
    new_pulsar_tt_msg_stream,
    new_rmq_msg_stream,
    new_rmq_tt_msg_stream,
)
from tidelog.testing import start_server
from tidelog_testing.documents.examples import examples_of, page
from tidelog_testing.parts.streams import pack
from tidelog_testing.servers.processes import ROOT
from tidelog_testing.servers.pulsar import PulsarProcess


@pytest.fixture(scope="module")
def creating(tmp_path_factory: pytest.TempPathFactory) -> "object":
    with PulsarProcess(tmp_path_factory.mktemp("creating"), {"allowAutoTopicCreation": "true"}) as running:
        yield running


def ids_from(stream: MsgStream, number: int) -> list[int]:
    found: list[int] = []
    while len(found) < number:
        found += [message.id for message in stream.consume().msgs]
    return found


def test_a_plain_stream_on_pulsar(creating: PulsarProcess) -> None:
    dispatcher = ProtoUDFactory().new_unmarshal_dispatcher()
    with new_pulsar_msg_stream(creating.url, 16) as stream:
        stream.create_pulsar_producers(["plain"])
        stream.create_pulsar_consumers("sub", ["plain"], dispatcher)
        assert stream.dispatcher is dispatcher
        stream.produce(pack(1, 2))
        assert ids_from(stream, 2) == [1, 2]
    with pytest.raises(ValueError, match="buffer_size must be at least 1"):
        new_pulsar_msg_stream(creating.url, 0)


def test_a_time_tick_stream_on_pulsar(creating: PulsarProcess) -> None:
    with new_pulsar_tt_msg_stream(creating.url) as stream, PulsarBroker(creating.url) as broker:
        stream.create_pulsar_producers(["one", "two"])
        stream.create_pulsar_consumers("sub", ["one", "two"])
        assert len(stream.status.waits_for) in (0, 2)
        with TimeTicker(broker, ["one", "two"], interval_ms=20) as ticker:
            stream.broadcast(pack(1))
            assert ids_from(stream, 2) == [1, 1]
            assert ticker.last_tick > 0
            with TimeTicker(broker, ["one", "two"], interval_ms=20):
                with pytest.raises(StreamFencedError):
                    ticker.wait()


def test_streams_on_a_server() -> None:
    with start_server() as server, Client(server.endpoint) as client:
        client.create_channel("orders")
        for new, kind in ((new_rmq_msg_stream, RmqMsgStream), (new_rmq_tt_msg_stream, RmqTtMsgStream)):
            with new(client) as stream:
                assert isinstance(stream, kind)
                stream.as_producer(["orders"])
                stream.as_consumer(["orders"], kind.__name__)
                stream.produce(MsgPack(msgs=[InsertMsg(id=1)]))
                assert ids_from(stream, 1) == [1]


def test_factories_state_their_capabilities() -> None:
    on_pulsar, in_memory = PulsarMsgStreamFactory(PulsarBroker()), MemMsgStreamFactory(MemBroker())

    assert (on_pulsar.capabilities.atomic_produce, on_pulsar.capabilities.log_ticks) == (False, False)
    assert (in_memory.capabilities.atomic_produce, in_memory.capabilities.log_ticks) == (True, True)


def test_the_example_of_the_guide_runs(creating: PulsarProcess, tmp_path: Path) -> None:
    [program] = examples_of(page("msgstream-pulsar.md"))
    program = program.replace("pulsar://127.0.0.1:6650", creating.url).replace(
        "http://127.0.0.1:8080", creating.admin_url
    )
    file = tmp_path / "example.py"
    file.write_text(program)
    done = subprocess.run(
        [sys.executable, str(file)], capture_output=True, text=True, timeout=120, check=False,
        env={"PYTHONPATH": f"{ROOT / 'client'}"},
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "messages [0, 1, 2, 3]\nends in the past: True\n"
