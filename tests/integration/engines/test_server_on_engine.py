"""A server whose log is in a real Kafka or Pulsar: killed, its data folder deleted, and started elsewhere."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog import AsyncClient, DeadlineError, OwnershipLostError, TidelogError, UnavailableError
from tidelog_cli.exit_codes import ExitCode
from tidelog_testing.oracles.reads import payloads
from tidelog_testing.servers.brokers import Broker
from tidelog_testing.servers.commands import run_command
from tidelog_testing.servers.kafka import KafkaProcesses
from tidelog_testing.servers.processes import ServerProcess
from tidelog_testing.servers.pulsar import PulsarProcess
from tidelog_testing.servers.secured import ONCE

_LARGE = 700_000


def create(broker: Broker, topic: str) -> None:
    result = run_command(["engine", "create", topic, *broker.flags])
    assert (result.returncode, result.stderr) == (0, f"created the log '{topic}'\n".encode())


async def test_a_killed_server_whose_folder_is_deleted_serves_everything_from_another_one(
    broker: Broker, tmp_path: Path
) -> None:
    topic = "tidelog.single.killed"
    create(broker, topic)
    written: dict[str, list[bytes]] = {"orders/0": [], "orders/1": []}
    with ServerProcess(tmp_path / "first", broker.settings(topic)) as server:
        async with AsyncClient(server.grpc) as client:
            assert await client.wal_name() == broker.settings(topic)["storage.kind"]
            await client.create_channel("orders", vchannels=2)
            for number in range(60):
                vchannel = f"orders/{number % 2}"
                size_bytes = _LARGE if number % 20 == 0 else 50 * number
                messages = [b"%d.%d;" % (number, each) + bytes(size_bytes) for each in range(3)]
                result = await client.append(vchannel, messages, durability="os" if number % 3 else None)
                assert result.durability == "sync"
                written[vchannel] += messages
            async with client.txn() as txn:
                for vchannel, of_vchannel in written.items():
                    await txn.append(vchannel, b"in a transaction")
                    of_vchannel.append(b"in a transaction")
            for vchannel, of_vchannel in written.items():
                assert await payloads(client, vchannel) == of_vchannel
    shutil.rmtree(tmp_path / "first")
    with ServerProcess(tmp_path / "second", broker.settings(topic)) as server:
        async with AsyncClient(server.grpc) as client:
            for vchannel, of_vchannel in written.items():
                assert await payloads(client, vchannel) == of_vchannel
            result = await client.append("orders/0", b"after")
            assert await payloads(client, "orders/0") == [*written["orders/0"], b"after"]
            server.terminate()
        assert server.wait() == ExitCode.OK


async def test_a_server_whose_log_another_one_claimed_stops_with_its_own_code(broker: Broker, tmp_path: Path) -> None:
    topic = "tidelog.single.claimed"
    create(broker, topic)
    with ServerProcess(tmp_path / "first", broker.settings(topic)) as former:
        async with AsyncClient(former.grpc) as client:
            await client.create_channel("orders")
            await client.append("orders", b"1")
            with ServerProcess(tmp_path / "second", broker.settings(topic)) as owner:
                async with AsyncClient(owner.grpc) as other:
                    assert await payloads(other, "orders") == [b"1"]
                    await other.append("orders", b"2")
                    # It learns of the claim with this append, unless it has with a record of its own before.
                    with pytest.raises((OwnershipLostError, UnavailableError)):
                        await client.append("orders", b"3")
                    assert former.wait() == ExitCode.LOG_CLAIMED
                    assert "another process has claimed the log 'tidelog.single.claimed'" in former.errors
                    assert await payloads(other, "orders") == [b"1", b"2"]


@pytest.mark.parametrize("start", [KafkaProcesses, PulsarProcess], ids=["kafka", "pulsar"])
async def test_while_the_engine_is_silent_changes_are_refused_and_all_of_it_recovers(
    start: Callable[[Path], Broker], tmp_path: Path
) -> None:
    with start(tmp_path / "engine") as own:
        create(own, "silent")
        flags = {**own.settings("silent"), "engine.silent_s": 1}
        with ServerProcess(tmp_path / "store", flags) as server:
            async with AsyncClient(server.grpc) as client, AsyncClient(server.grpc) as other:
                await client.create_channel("orders")
                await client.append("orders", b"1")
                own.pause()
                in_flight = asyncio.create_task(client.append("orders", b"2", timeout_s=60))
                while server.get("/readyz")[0] == 200:
                    await asyncio.sleep(0.05)
                assert "the engine of the log has not confirmed a write" in server.get("/readyz")[1]
                async with AsyncClient(server.grpc, retry=ONCE) as hasty:
                    with pytest.raises(TidelogError) as refused:
                        await hasty.append("orders", b"3", timeout_s=2)
                assert refused.value.effect == "none"
                assert isinstance(refused.value, UnavailableError | DeadlineError)
                assert await payloads(other, "orders") == [b"1"]
                own.resume()
                await in_flight
                while server.get("/readyz")[0] != 200:
                    await asyncio.sleep(0.05)
                await other.append("orders", b"4")
                assert await payloads(other, "orders") == [b"1", b"2", b"4"]
