"""What a user of Pulsar sees without a broker; these tests need none."""

import json
import sys
from pathlib import Path

import pytest

import tidelog
from tidelog.msgstream import AsyncPulsarMsgStreamFactory, AsyncTimeTicker, PulsarBroker, StreamStateError
from tidelog_testing.servers.commands import run_command


async def test_a_broker_that_is_away_is_reported() -> None:
    async with PulsarBroker("pulsar://127.0.0.1:1", operation_timeout_s=1) as away:
        async with AsyncPulsarMsgStreamFactory(away).new_msg_stream() as stream:
            with pytest.raises(tidelog.UnavailableError, match=r"127\.0\.0\.1:1: .*refused.*: check the address"):
                await stream.as_producer(["anything"])
    with pytest.raises(tidelog.ClosedError, match="the Pulsar broker is closed"):
        await AsyncPulsarMsgStreamFactory(away).new_msg_stream().as_producer(["anything"])


def test_without_the_library_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pulsar", None)
    with pytest.raises(StreamStateError, match=r"pip install '\.\[pulsar\]'"):
        PulsarBroker().client()


def test_the_files_of_tls_are_read(tmp_path: Path) -> None:
    missing = tidelog.TlsOptions(ca=tmp_path / "missing.pem")
    with pytest.raises(FileNotFoundError):
        PulsarBroker("pulsar+ssl://127.0.0.1:1", admin_url="https://127.0.0.1:1", tls=missing)


@pytest.mark.extended
def test_the_doctor_reports_a_broker_that_is_away() -> None:
    lines = run_command(["doctor", "--pulsar", "pulsar://127.0.0.1:1"]).stdout.splitlines()
    found = {each["check"]: each for each in map(json.loads, lines)}

    assert found["Pulsar"]["severity"] == "failure"
    assert "refused" in found["Pulsar"]["text"]
    assert found["Pulsar log"]["text"] == "not checked: pass --pulsar-admin"


@pytest.mark.parametrize("address", ["127.0.0.1:6650", "http://127.0.0.1:1", "pulsar://127.0.0.1:port"])
async def test_an_invalid_address_is_refused(address: str) -> None:
    async with PulsarBroker(address) as broker:
        with pytest.raises(tidelog.InvalidRequestError, match=r"the address .* of Pulsar is invalid"):
            await AsyncTimeTicker(broker, ["topic"]).start()
