"""Options for Kafka's client: a line for each, and none that the log depends on."""

from pathlib import Path

import pytest

from tidelog_server.core.limits import MAX_BATCH_BYTES_CEILING
from tidelog_server.recordlog.engine import EngineUnavailableError, LogSetupError
from tidelog_server.recordlog.kafka import KafkaEngine
from tidelog_server.recordlog.kafka_access import KafkaAccess
from tidelog_server.recordlog.options import read_options
from tidelog_server.recordlog.records import MAX_RECORD_BYTES, Position


def options_in(folder: Path, text: str) -> Path:
    path = folder / "options"
    path.write_text(text)
    return path


def test_options_are_read_and_given_to_the_client(tmp_path: Path) -> None:
    text = "# of the cluster\n\nsecurity.protocol = SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
    text += "sasl.username=a=b\nsasl.password=c\n"
    path = options_in(tmp_path, text)
    expected = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "a=b",
        "sasl.password": "c",
    }
    assert read_options(path) == expected
    assert KafkaAccess.load("127.0.0.1:1", str(path)).options == expected
    assert KafkaAccess.load("127.0.0.1:1", "").options == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("acks=1\n", "options:1: the option acks may not be set"),
        ("# one\nenable.idempotence=false\n", "options:2: the option enable.idempotence may not be set"),
        ("bootstrap.servers=elsewhere:9092\n", "the option bootstrap.servers may not be set"),
        ("request.required.acks=0\n", "the option request.required.acks may not be set"),
        ("transactional.id=x\n", "the option transactional.id may not be set"),
        ("isolation.level=read_committed\n", "the option isolation.level may not be set"),
        ("compression.type=lz4\ncompression.type=zstd\n", "options:2: the option compression.type is given twice"),
        ("compression.type\n", "options:1: expected name=value"),
        ("=lz4\n", "options:1: expected name=value"),
    ],
)
def test_an_option_that_is_not_allowed_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(LogSetupError) as raised:
        KafkaAccess.load("127.0.0.1:1", str(options_in(tmp_path, text)))
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no.such.option=1\n", 'No such configuration property: "no.such.option"'),
        ("security.protocol=nothing\n", 'Invalid value "nothing" for configuration property "security.protocol"'),
    ],
)
def test_an_option_that_the_client_does_not_know_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(LogSetupError) as raised:
        KafkaAccess.load("127.0.0.1:1", str(options_in(tmp_path, text)))
    assert said in str(raised.value)


def test_as_much_is_queued_as_a_store_has_on_its_way() -> None:
    """More than one batch of the largest size, while no broker answers."""
    engine = KafkaEngine("127.0.0.1:1", "topic")
    reported: list[Position | Exception] = []
    for _ in range(2 * MAX_BATCH_BYTES_CEILING // MAX_RECORD_BYTES + 1):
        engine.send(bytes(MAX_RECORD_BYTES), reported.append)
    engine.close()
    # A close ends them; that they may be stored is known of none.
    assert all(isinstance(each, EngineUnavailableError) for each in reported)
    assert len(reported) == 2 * MAX_BATCH_BYTES_CEILING // MAX_RECORD_BYTES + 1


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(LogSetupError, match=r"engine\.options_file: .*No such file"):
        KafkaAccess.load("127.0.0.1:1", str(tmp_path / "missing"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(LogSetupError, match=r"engine\.options_file: .*decode"):
        KafkaAccess.load("127.0.0.1:1", str(tmp_path / "binary"))
